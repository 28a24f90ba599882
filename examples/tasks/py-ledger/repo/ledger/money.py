"""An amount of money in cents."""


class Money:
    def __init__(self, cents):
        self.cents = cents

    @classmethod
    def parse(cls, text):
        """Reads "1234.56"."""
        return cls(int(float(text) * 100))

    def __add__(self, other):
        return Money(self.cents + other.cents)

    def __neg__(self):
        return Money(-self.cents)

    def __eq__(self, other):
        return isinstance(other, Money) and self.cents == other.cents

    def __hash__(self):
        return hash(self.cents)

    def __repr__(self):
        return "Money(%d)" % self.cents

    def __str__(self):
        sign = "-" if self.cents < 0 else ""
        return "%s%d.%02d" % (sign, abs(self.cents) // 100, abs(self.cents) % 100)
