import random
import unittest

from runner import Cycle, UnknownTask, order, parse, run


class Hidden(unittest.TestCase):
    def test_orders(self):
        self.assertEqual(order(parse("a: b\nb: c\nc:\n")), ["c", "b", "a"])
        self.assertEqual(order(parse("x:\na: d\nb:\nd: b\ny:\n")), ["x", "b", "d", "a", "y"])

    def test_random_graphs(self):
        rng = random.Random(5)
        for _ in range(100):
            names = ["t%d" % i for i in range(rng.randrange(1, 20))]
            lines = {n: rng.sample(names[:i], rng.randrange(0, i + 1)) for i, n in enumerate(names)}
            mixed = list(names)
            rng.shuffle(mixed)
            tasks = parse("".join("%s: %s\n" % (n, " ".join(lines[n])) for n in mixed))
            got = order(tasks)
            self.assertEqual(sorted(got), sorted(names))
            for name in names:
                for need in lines[name]:
                    self.assertLess(got.index(need), got.index(name))

    def test_deep(self):
        text = "".join("t%d: t%d\n" % (i, i + 1) for i in range(5000)) + "t5000:\n"
        self.assertEqual(order(parse(text))[0], "t5000")

    def test_cycles(self):
        for text, want in (("a: a\n", {"a"}), ("a: b\nb: c\nc: b\n", {"b", "c"}), ("z:\na: b\nb: c\nc: a\n", set("abc"))):
            with self.assertRaises(Cycle) as caught:
                order(parse(text))
            path = caught.exception.path
            self.assertEqual(path[0], path[-1])
            self.assertEqual(set(path), want)
            self.assertEqual(len(path), len(want) + 1)
            tasks = parse(text)
            for here, there in zip(path, path[1:]):
                self.assertIn(there, tasks[here].needs)

    def test_unknown(self):
        with self.assertRaises(UnknownTask) as caught:
            order(parse("a: ghost\n"))
        self.assertIn("a", str(caught.exception))
        self.assertIn("ghost", str(caught.exception))

    def test_failures(self):
        ran = []

        def execute(command):
            ran.append(command)
            return 1 if command == "bad" else 0

        states = run(parse("top: mid\n  t\nmid: low\n  m\nlow:\n  bad\n  never\nfree:\n  f\n"), execute)
        self.assertEqual(states, {"low": "failed", "mid": "skipped", "top": "skipped", "free": "ok"})
        self.assertEqual(ran, ["bad", "f"])


unittest.main()
