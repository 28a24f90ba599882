import unittest

from ledger import Money, split


class Amounts(unittest.TestCase):
    def test_parse_and_print(self):
        for text in ("0.00", "1.50", "-2.25", "1000.00"):
            self.assertEqual(str(Money.parse(text)), text)

    def test_every_cent(self):
        for cents in range(0, 300):
            text = "%d.%02d" % (cents // 100, cents % 100)
            self.assertEqual(Money.parse(text).cents, cents, text)


class Splitting(unittest.TestCase):
    def test_even(self):
        self.assertEqual(split(Money(300), [1, 1, 1]), [Money(100)] * 3)

    def test_adds_up(self):
        self.assertEqual(sum(m.cents for m in split(Money(100), [1, 1, 1])), 100)

    def test_bad_weights(self):
        for weights in ([], [0, 0], [1, -1]):
            with self.assertRaises(ValueError):
                split(Money(1), weights)
