#!/usr/bin/env python3
"""run_tests.py: runs every test and counts single tests.

Unit tests are the cmocka programs BUILD/tests/unit/test_* (TAP output), run in
the plain and in the sanitizer build; tree tests are tools/check-*.py (one test
each, by exit code); integration tests are tests/integration/test_*.py, each
file one process. Every process has a timeout and its own process group, which
is killed at the end. Last comes the leak check: what our programs left on the
machine since the start counts as a failed test.

Prints one line a test that failed or was skipped (with the missing thing), and
"N passed, N failed, N skipped" at the end. Exit 1 when a test failed or none ran.
"""
import argparse
import glob
import os
import re
import signal
import subprocess
import sys
import time

UNIT_TIMEOUT_S = 120
FILE_TIMEOUT_S = 600
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

sys.path.insert(0, os.path.join(ROOT, "tests", "integration"))
import leaks  # noqa: E402


class Tally:
    def __init__(self):
        self.passed, self.failed, self.skipped = 0, [], []

    def add(self, name, outcome, why=""):
        if outcome == "ok":
            self.passed += 1
        elif outcome == "skip":
            self.skipped.append((name, why))
            print(f"SKIP {name}: {why}", flush=True)
        else:
            self.failed.append(name)
            print(f"FAIL {name}: {why}", flush=True)


def run(argv, env, timeout_s):
    """Returns (exit code or None on timeout, output). The process group dies with it."""
    p = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                         stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        out, _ = p.communicate(timeout=timeout_s)
        code = p.returncode
    except subprocess.TimeoutExpired:
        # A test that hangs gets one chance to undo what it set up.
        os.killpg(p.pid, signal.SIGTERM)
        try:
            out, _ = p.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            os.killpg(p.pid, signal.SIGKILL)
            out, _ = p.communicate()
        code = None
    return code, out.decode("utf-8", "replace")


def tail(text, lines=40):
    return "\n    ".join(text.splitlines()[-lines:])


TAP = re.compile(r"^(ok|not ok) (\d+) - ([^#\n]*?)\s*(?:# ?(SKIP)\b ?(.*))?$", re.M)


def run_tap(tally, label, argv, env, timeout_s):
    started = time.monotonic()
    code, out = run(argv, env, timeout_s)
    n = 0
    for m in TAP.finditer(out):
        n += 1
        name = f"{label}:{m.group(3)}"
        if m.group(4):
            tally.add(name, "skip", m.group(5) or "no reason given")
        elif m.group(1) == "ok":
            tally.add(name, "ok")
        else:
            tally.add(name, "fail", "\n    " + tail(out))
    plan = re.search(r"^1\.\.(\d+)$", out, re.M)
    want = int(plan.group(1)) if plan else None
    if code is None:
        tally.add(label, "fail", f"timed out after {timeout_s} s\n    " + tail(out))
    elif code < 0 or n == 0 or (want is not None and n < want):
        tally.add(label, "fail", f"ended with {code} after {n} of {want} tests\n    " + tail(out))
    elif code != 0 and not any(f.startswith(label + ":") for f in tally.failed):
        tally.add(label, "fail", f"exit code {code}\n    " + tail(out))
    print(f"{label}: {n} tests, {time.monotonic() - started:.1f} s", flush=True)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--build", required=True)
    ap.add_argument("--asan-build")
    ap.add_argument("words", nargs="*")
    args = ap.parse_args()
    build = os.path.abspath(args.build)

    def wanted(name):
        return not args.words or any(w in name for w in args.words)

    tally = Tally()
    before = leaks.snapshot()
    env = dict(os.environ, DSEC_BUILD=build, PYTHONDONTWRITEBYTECODE="1",
               PYTHONPATH=os.pathsep.join([os.path.join(ROOT, "tests", "integration"),
                                           os.path.join(ROOT, "sdk", "python")]))

    for script in sorted(glob.glob(os.path.join(ROOT, "tools", "check-*.py"))):
        name = os.path.basename(script)[:-3]
        if wanted(name):
            code, out = run([sys.executable, script], env, UNIT_TIMEOUT_S)
            tally.add(name, "ok" if code == 0 else "fail", "\n    " + tail(out))

    for folder, mark in ((build, ""), (args.asan_build, " (asan)")):
        if not folder:
            continue
        unit_env = dict(env, CMOCKA_MESSAGE_OUTPUT="TAP",
                        ASAN_OPTIONS="detect_leaks=1:abort_on_error=1",
                        UBSAN_OPTIONS="halt_on_error=1:abort_on_error=1:print_stacktrace=1")
        for prog in sorted(glob.glob(os.path.join(folder, "tests", "unit", "test_*"))):
            name = os.path.basename(prog)
            if os.path.isfile(prog) and os.access(prog, os.X_OK) and wanted(name):
                run_tap(tally, name + mark, [prog], unit_env, UNIT_TIMEOUT_S)

    python_tests = sorted(glob.glob(os.path.join(ROOT, "tests", "integration", "test_*.py")) +
                          glob.glob(os.path.join(ROOT, "sdk", "python", "tests", "test_*.py")))
    runner = os.path.join(ROOT, "tests", "integration", "tap_runner.py")
    for path in python_tests:
        name = os.path.basename(path)[:-3]
        if wanted(name):
            run_tap(tally, name, [sys.executable, runner, path], env, FILE_TIMEOUT_S)

    left = leaks.since(before, settle_s=10)
    tally.add("nothing left behind", "fail" if left else "ok", "\n    ".join([""] + left))

    if tally.failed:
        print("\nfailed: " + ", ".join(tally.failed))
    ran = tally.passed + len(tally.failed)
    print(f"{tally.passed} passed, {len(tally.failed)} failed, {len(tally.skipped)} skipped", flush=True)
    return 1 if tally.failed or ran < 2 else 0


if __name__ == "__main__":
    sys.exit(main())
