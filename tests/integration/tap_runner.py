"""tap_runner.py FILE: runs one unittest file and prints TAP, one line a test.

run_tests.py starts it once a file. SIGTERM becomes KeyboardInterrupt so that
tearDown and addClassCleanup run when the file is stopped for its timeout.
"""
import importlib.util
import os
import signal
import sys
import traceback
import unittest


class TapResult(unittest.TestResult):
    n = 0
    bad = 0

    def _line(self, ok, test, extra=""):
        self.n += 1
        name = test.id().split(".", 1)[-1]
        print(f"{'ok' if ok else 'not ok'} {self.n} - {name}{extra}", flush=True)

    def addSuccess(self, test):
        self._line(True, test)

    def addSkip(self, test, reason):
        self._line(True, test, f" # SKIP {reason}")

    def _fail(self, test, err):
        self.bad += 1
        print("# " + "".join(traceback.format_exception(*err)).replace("\n", "\n# "), flush=True)
        self._line(False, test)

    addFailure = addError = _fail

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self._fail(subtest, err)

    def addExpectedFailure(self, test, err):
        self._line(True, test)

    def addUnexpectedSuccess(self, test):
        self.bad += 1
        self._line(False, test)


def main():
    def stop(signum, frame):
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    path = os.path.abspath(sys.argv[1])
    sys.path.insert(0, os.path.dirname(path))
    name = os.path.basename(path)[:-3]
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    suite = unittest.defaultTestLoader.loadTestsFromModule(module)
    if len(sys.argv) > 2:
        suite = unittest.defaultTestLoader.loadTestsFromNames(sys.argv[2:], module)
    result = TapResult()
    suite.run(result)
    print(f"1..{result.n}", flush=True)
    return 1 if result.bad else 0


if __name__ == "__main__":
    sys.exit(main())
