from .pattern import Pattern
from .table import MethodNotAllowed, NotFound, Table

__all__ = ["MethodNotAllowed", "NotFound", "Pattern", "Table"]
