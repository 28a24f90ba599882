#!/usr/bin/env python3
"""Runs one file of Python tests and reports each test as a JSON line on descriptor DSEC_REPORT_FD (default: stdout).

{"name", "status": "passed"|"failed"|"skipped", "detail"}: subtests count with their test, a class or module that
could not be set up counts as one failed (or skipped) test, an empty file as a failure. Words after the file select
tests by substring. Used by tools/check.py; the human-readable report goes to stderr as unittest prints it.
"""
import importlib.util
import json
import os
import pathlib
import signal
import sys
import unittest


class Reporter(unittest.TextTestResult):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.bad = {}
        signal.signal(signal.SIGTERM, self.interrupted)
        # Not inherited by what the tests start: a leaked child must not hold the report open.
        self.out = os.fdopen(os.dup(int(os.environ.pop("DSEC_REPORT_FD", 1))), "w")

    def interrupted(self, signum, frame):
        """Time is up: the running test fails, it and its class clean up, no other test starts."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # cleaning up is not to be interrupted
        self.shouldStop = self.was_interrupted = True
        raise SystemExit(128 + signum)

    def report(self, test, status, detail=""):
        self.out.write(json.dumps({"name": test.id(), "status": status, "detail": detail}) + "\n")
        self.out.flush()

    # A test may fail and then fail again in its cleanups: it is one failed test, reported when it stops.
    def _keep(self, test, status, detail):
        if status == "failed" or test.id() not in self.bad:
            self.bad[test.id()] = (status, detail)
        if isinstance(test, unittest.TestCase):
            return
        self.report(test, *self.bad.pop(test.id()))  # setUpClass or setUpModule: stopTest never comes

    def addError(self, test, err):
        super().addError(test, err)
        self._keep(test, "failed", str(err[1]))

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._keep(test, "failed", str(err[1]))

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self._keep(test, "failed", "unexpected success")

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._keep(test, "failed", f"{subtest}: {err[1]}")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self._keep(test, "skipped", reason)

    def stopTest(self, test):
        super().stopTest(test)
        self.report(test, *self.bad.pop(test.id(), ("passed", "")))


def select(suite, words):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from select(test, words)
        elif not words or any(w in test.id() for w in words):
            yield test


def main():
    path = pathlib.Path(sys.argv[1]).resolve()
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    suite = unittest.TestSuite(select(unittest.defaultTestLoader.loadTestsFromModule(module), sys.argv[2:]))
    if not suite.countTestCases():
        print(f"{path}: no tests", file=sys.stderr)
        return 1
    result = unittest.TextTestRunner(stream=sys.stderr, verbosity=2, resultclass=Reporter).run(suite)
    if getattr(result, "was_interrupted", False):
        return 128 + signal.SIGTERM
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
