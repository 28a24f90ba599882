#!/usr/bin/env python3
"""Runs the whole test suite: what `make check` and CI do. Usage: check.py BUILD [--asan|--no-asan] [WORD...]

Order: build, include graph, format, unit tests, the same once more with ASan and UBSan (in BUILD-asan), Python SDK
tests, integration tests (as root, one file at a time), leak check. Every file of tests is a process of its own with a
timeout; its output goes to BUILD/check-logs and is shown when it fails. WORDs keep the test files whose name contains
one of them, without the sanitizers unless --asan. The last line counts single tests:
"N passed, N failed, N skipped"; before it each skip is named with what is missing. Exit status 1 on any failure.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "integration"))

UNIT_TIMEOUT_S = 120       # a file may say more in meson's test(timeout:)
PYTHON_TIMEOUT_S = 300     # a file may say more: TIMEOUT_S = 600 at the start of a line
TERM_GRACE_S = 60          # after SIGTERM a test file undoes what it set up
SHOWN_LINES = 60           # of the log of a failed file
TAP = re.compile(r"^(not )?ok \d+(?: -)? ?(.*?)(?:\s+#\s*(SKIP|TODO)\b:?\s*(.*))?$", re.I)
SANITIZERS = {
    "ASAN_OPTIONS": "detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
}


class Tally:
    def __init__(self):
        self.passed, self.failed, self.skipped = 0, [], []

    def add(self, name, status, detail=""):
        if status == "passed":
            self.passed += 1
        elif status == "skipped":
            self.skipped.append((name, detail or "no reason given"))
        else:
            self.failed.append((name, detail))

    def file(self, label, results, seconds, log):
        """Counts the results of one test file and prints its line; its log when something failed."""
        bad = [r for r in results if r[1] == "failed"]
        skipped = sum(r[1] == "skipped" for r in results)
        for name, status, detail in results:
            self.add(f"{label}: {name}" if name else label, status, detail)
        note = f", {len(bad)} FAILED" if bad else ""
        note += f", {skipped} skipped" if skipped else ""
        print(f"{'FAIL' if bad else 'ok  '} {label} ({len(results)} tests{note}, {seconds:.1f} s)", flush=True)
        if bad and log:
            lines = log.read_text(errors="replace").splitlines()
            print(f"---- {log}, last lines:")
            print("\n".join(lines[-SHOWN_LINES:]))
            print("----", flush=True)


def run_process(argv, log, timeout_s, env=None, pass_fds=()):
    """Runs argv with its own session and log file; (exit status or None when it had to be ended, seconds)."""
    began = time.monotonic()
    with open(log, "wb") as out:
        process = subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                   env={**os.environ, **(env or {})}, start_new_session=True, pass_fds=pass_fds)
        try:
            return process.wait(timeout_s), time.monotonic() - began
        except subprocess.TimeoutExpired:
            process.terminate()
            try:
                process.wait(TERM_GRACE_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            return None, time.monotonic() - began
        except BaseException:
            process.terminate()  # interrupted: the file undoes itself
            process.wait(TERM_GRACE_S)
            raise


def verdict(status, timeout_s):
    """What is wrong with an exit status, None when nothing is."""
    if status is None:
        return f"did not end within {timeout_s} s"
    if status < 0:
        return f"killed by {signal.Signals(-status).name}"
    return f"exit status {status}" if status else None


def tap_results(text):
    for line in text.splitlines():
        match = TAP.match(line)
        if match:
            bad, name, directive, detail = match.groups()
            yield name, "skipped" if directive else "failed" if bad else "passed", detail or ""


def run_unit(test, prefix, logs, env):
    label = prefix + test["name"]
    log = logs / (label.replace("/", "-") + ".log")
    timeout_s = max(UNIT_TIMEOUT_S, test.get("timeout") or 0) * (3 if env else 1)
    status, seconds = run_process(test["cmd"], log, timeout_s, {**test["env"], **env})
    results = list(tap_results(log.read_text(errors="replace")))
    wrong = verdict(status, timeout_s)
    if status == 77 and not results:
        results = [("", "skipped", (log.read_text(errors="replace").strip().splitlines() or [""])[-1])]
    elif wrong and not any(r[1] == "failed" for r in results):
        results.append(("", "failed", wrong))
    elif not results:
        results = [("", "passed", "")]
    return label, results, seconds, log


def unit_tests(build, words):
    listed = subprocess.run(["meson", "introspect", "--tests", str(build)], check=True, capture_output=True, text=True)
    return [t for t in json.loads(listed.stdout) if not words or any(w in t["name"] for w in words)]


def run_units(build, words, tally, logs, prefix="unit/", env=None):
    tests = unit_tests(build, words)
    with concurrent.futures.ThreadPoolExecutor(max_workers=min(2, os.cpu_count() or 1)) as pool:
        for done in pool.map(lambda t: run_unit(t, prefix, logs, env or {}), tests):
            tally.file(*done)


def run_asan(build, words, tally, logs):
    """The unit tests in a build of their own. Only their programs are built in it."""
    asan = build.with_name(build.name + "-asan")
    if not (asan / "build.ninja").exists():
        run_build(["meson", "setup", str(asan), "-Db_sanitize=address,undefined", "-Db_lundef=false",
                   "-Dbuildtype=debug", "-Doptimization=1"])
    else:
        run_build(["meson", "setup", "--reconfigure", str(asan)])
    programs = [t["cmd"][0] for t in unit_tests(asan, words)]
    targets = sorted({os.path.relpath(p, asan) for p in programs if p.startswith(f"{asan}/")})
    if targets:
        run_build(["ninja", "-C", str(asan), *targets])
    run_units(asan, words, tally, logs, "asan/", SANITIZERS)


def left_by(tmp):
    """What a file of tests that has ended left in the run's directory; it is removed, so that others start clean."""
    import leaks  # pylint: disable=import-outside-toplevel
    lines = []
    for state in sorted(p for p in tmp.iterdir() if p.is_dir()):
        lines += leaks.found(state) + [f"directory {state}"]
        leaks.clean(state)
        shutil.rmtree(state, ignore_errors=True)
    names = set((tmp / leaks.NAMES_FILE).read_text().split()) if (tmp / leaks.NAMES_FILE).exists() else set()
    lines += leaks.found(tmp, names)
    leaks.clean(tmp, names)
    return lines


def run_python(path, tally, logs, env):
    label = str(path.relative_to(ROOT)).removesuffix(".py").replace("tests/integration/", "integration/")
    log = logs / (label.replace("/", "-") + ".log")
    said = re.search(r"^TIMEOUT_S\s*=\s*(\d+)", path.read_text(), re.M)
    timeout_s = int(said.group(1)) if said else PYTHON_TIMEOUT_S
    with tempfile.TemporaryFile("w+") as report:
        fd = report.fileno()
        argv = [sys.executable, str(ROOT / "tests" / "run_unittest.py"), str(path)]
        status, seconds = run_process(argv, log, timeout_s, {**env, "DSEC_REPORT_FD": str(fd)}, (fd,))
        report.seek(0)
        results = [(r["name"].split(".", 1)[-1], r["status"], r["detail"]) for r in map(json.loads, report)]
    wrong = verdict(status, timeout_s) or (None if results else "reported no test")
    if wrong and not any(r[1] == "failed" for r in results):
        results.append(("", "failed", wrong))
    left = left_by(pathlib.Path(env["DSEC_TEST_TMP"]))
    if left:
        with open(log, "a", encoding="utf-8") as out:
            out.write("\nleft behind (removed now):\n" + "\n".join(left) + "\n")
        results.append(("leaves nothing behind", "failed", "; ".join(left[:3])))
    tally.file(label, results, seconds, log)


def run_build(argv):
    done = subprocess.run(argv, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False)
    if done.returncode:
        print(done.stdout[-20000:])
        sys.exit(f"check: {shlex.join(argv)} failed; no test was run")


def run_tool(label, argv, tally, logs):
    log = logs / f"{label}.log"
    status, seconds = run_process(argv, log, UNIT_TIMEOUT_S)
    wrong = verdict(status, UNIT_TIMEOUT_S)
    tally.file(label, [("", "failed" if wrong else "passed", wrong or "")], seconds, log)


def leak_check(before, tmp, build, tally, logs):
    """Each file was asked after it ended; now also for what is new since the start and names no directory of ours."""
    import leaks  # pylint: disable=import-outside-toplevel
    log, began = logs / "leak-check.log", time.monotonic()
    left = left_by(tmp) + [f"since the start: {line}" for line in leaks.outside(before, tmp, build)]
    log.write_text("\n".join(left) + "\n")
    tally.file("leak-check", [("", "failed" if left else "passed", "; ".join(left[:5]))],
               time.monotonic() - began, log)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--asan", action=argparse.BooleanOptionalAction, default=None,
                        help="sanitized unit tests (default: unless WORDs are given)")
    args = parser.parse_intermixed_args()
    args.build = args.build.resolve()
    args.asan = not args.words if args.asan is None else args.asan
    return args


def main():
    args = arguments()
    import leaks  # pylint: disable=import-outside-toplevel
    if os.geteuid() != 0:
        sys.exit("make check: sandboxes need root; run: sudo make check")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    began = time.monotonic()
    configured = ["--reconfigure"] if (args.build / "build.ninja").exists() else []
    run_build(["meson", "setup", *configured, str(args.build)])
    run_build(["ninja", "-C", str(args.build)])
    logs = args.build / "check-logs"
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir()
    tally, words = Tally(), args.words
    tmp = pathlib.Path(tempfile.mkdtemp(prefix="dsec-check-", dir="/tmp"))
    env = {"DSEC_BUILD": str(args.build), "DSEC_TEST_TMP": str(tmp), "PYTHONDONTWRITEBYTECODE": "1",
           "PYTHONPATH": str(ROOT / "sdk" / "python")}
    before = leaks.snapshot(args.build)
    try:
        if not words:
            run_tool("include-graph", [sys.executable, "tools/check-includes.py"], tally, logs)
            run_tool("format", [sys.executable, "tools/check-format.py"], tally, logs)
        run_units(args.build, words, tally, logs)
        if args.asan:
            run_asan(args.build, words, tally, logs)
        for folder in ("tests/tools", "sdk/python/tests", "tests/integration"):
            for path in sorted((ROOT / folder).glob("test_*.py")):
                if not words or any(w in path.stem for w in words):
                    run_python(path, tally, logs, env)
        leak_check(before, tmp, args.build, tally, logs)
    finally:
        shutil.rmtree(tmp, ignore_errors=True)
    for name, why in tally.skipped:
        print(f"skipped {name}: {why}")
    for name, why in tally.failed:
        print(f"failed {name}: {(why or 'see its log').splitlines()[0][:200]}")
    print(f"took {time.monotonic() - began:.0f} s; logs in {logs}")
    print(f"{tally.passed} passed, {len(tally.failed)} failed, {len(tally.skipped)} skipped", flush=True)
    return 1 if tally.failed or not tally.passed else 0


if __name__ == "__main__":
    sys.exit(main())
