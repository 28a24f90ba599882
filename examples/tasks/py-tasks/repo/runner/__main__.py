import sys

from . import parse, run


def main(argv):
    with open(argv[0]) as f:
        states = run(parse(f.read()))
    for name, state in states.items():
        print("%-8s %s" % (state, name))
    return 0 if set(states.values()) <= {"ok"} else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
