"""Dividing an amount by weights."""
from .money import Money


def split(total, weights):
    """Shares of `total`, one for each weight, in their order."""
    if not weights or min(weights) < 0 or sum(weights) == 0:
        raise ValueError("weights must be 0 or more, and one above 0")
    whole = sum(weights)
    return [Money(round(total.cents * w / whole)) for w in weights]
