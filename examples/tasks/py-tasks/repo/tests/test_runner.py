import unittest

from runner import Cycle, order, parse, run


class Order(unittest.TestCase):
    def test_file_order(self):
        self.assertEqual(order(parse("a:\nb:\nc:\n")), ["a", "b", "c"])

    def test_one_step(self):
        self.assertEqual(order(parse("a: b\nb:\n")), ["b", "a"])

    def test_two_steps(self):
        self.assertEqual(order(parse("a: b\nb: c\nc:\n")), ["c", "b", "a"])

    def test_cycle(self):
        with self.assertRaises(Cycle):
            order(parse("a: b\nb: a\n"))


class Run(unittest.TestCase):
    def test_states(self):
        self.assertEqual(run(parse("a:\n  x\nb:\n  y\n"), lambda c: c == "y"), {"a": "ok", "b": "failed"})
