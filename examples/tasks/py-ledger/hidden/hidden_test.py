import random
import subprocess
import sys
import unittest

from ledger import Money, split


class Hidden(unittest.TestCase):
    def test_parse(self):
        for text, cents in (("0.29", 29), ("1,234.56", 123456), ("(3.10)", -310), ("-3.10", -310), ("7", 700), ("0.5", 50),
                            ("1,000,000.01", 100000001), ("90071992547409.93", 9007199254740993)):
            self.assertEqual(Money.parse(text).cents, cents, text)

    def test_not_amounts(self):
        for text in ("", "x", "1.234", "1e3", "nan", "--1", "(1", "1.2.3", "(-1.00)", "inf", "1,2"):
            with self.assertRaises(ValueError, msg=text):
                Money.parse(text)

    def test_left_over_cents(self):
        self.assertEqual([m.cents for m in split(Money(100), [1, 1, 1])], [34, 33, 33])
        self.assertEqual([m.cents for m in split(Money(101), [1, 1, 1])], [34, 34, 33])
        self.assertEqual([m.cents for m in split(Money(10), [5, 3, 7])], [3, 2, 5])
        self.assertEqual([m.cents for m in split(Money(1), [0, 1, 1])], [0, 1, 0])
        self.assertEqual([m.cents for m in split(Money(-100), [1, 1, 1])], [-34, -33, -33])

    def test_always_adds_up(self):
        rng = random.Random(11)
        for _ in range(500):
            total = Money(rng.randrange(-10**17, 10**17))
            weights = [rng.randrange(0, 9) for _ in range(rng.randrange(1, 9))] + [1]
            self.assertEqual(sum(m.cents for m in split(total, weights)), total.cents)

    def test_command(self):
        got = subprocess.run([sys.executable, "-B", "-m", "ledger", "0.29", "a=1", "b=1"], capture_output=True, text=True)
        self.assertEqual(got.stdout.split(), ["a", "0.15", "b", "0.14"])


unittest.main()
