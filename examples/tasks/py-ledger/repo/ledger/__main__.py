import sys

from .money import Money
from .split import split


def main(argv):
    if len(argv) < 2:
        print("usage: ledger AMOUNT NAME=WEIGHT...", file=sys.stderr)
        return 2
    names, weights = [], []
    for word in argv[1:]:
        name, _, weight = word.partition("=")
        names.append(name)
        weights.append(int(weight or 1))
    for name, share in zip(names, split(Money.parse(argv[0]), weights)):
        print("%-10s %s" % (name, share))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
