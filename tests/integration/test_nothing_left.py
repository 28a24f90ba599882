"""A test file that fails, hangs or is interrupted leaves nothing on the host: each is run as tools/check.py runs it,
with a directory of its own, and what is left is counted while and after it ran."""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

import leaks
from harness import ROOT, wait_until

SAMPLE = """
import pathlib, sys, time, unittest
sys.path.insert(0, {folder!r})
from harness import PlatformTest

class Sample(PlatformTest):
    def test_it(self):
        sb = self.sandbox()
        self.client.start(sb, ["sleep", "1000"])
        pathlib.Path({flag!r}).write_text(str(self.platform.state))
        {end}
"""


@unittest.skipUnless(os.geteuid() == 0, "root is needed to make sandboxes")
class NothingLeft(unittest.TestCase):
    def setUp(self):
        keep = tempfile.TemporaryDirectory(prefix="dsec-left-", dir=os.environ.get("DSEC_TEST_TMP"))
        self.addCleanup(keep.cleanup)
        self.dir = pathlib.Path(keep.name)
        self.tmp = self.dir / "tmp"
        self.tmp.mkdir()

    def start(self, end):
        """Runs the sample until its sandbox runs; its process and the platform's state directory."""
        flag = self.dir / "flag"
        path = self.dir / "test_sample.py"
        path.write_text(SAMPLE.format(folder=str(ROOT / "tests/integration"), flag=str(flag), end=end))
        process = subprocess.Popen([sys.executable, str(ROOT / "tests/run_unittest.py"), str(path)],
                                   env={**os.environ, "DSEC_TEST_TMP": str(self.tmp)}, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(process.kill)
        wait_until("the sample's sandbox", 90, lambda: flag.exists() and flag.read_text() or process.poll() is not None)
        self.assertTrue(flag.exists(), "the sample ended before its sandbox ran")
        return process, pathlib.Path(flag.read_text())

    def assertNothingLeft(self, state):
        names = set((self.tmp / leaks.NAMES_FILE).read_text().split())
        self.assertTrue(names)
        self.assertEqual(leaks.found(state, names), [])
        self.assertFalse(state.exists())

    def test_while_it_runs_there_is_something_to_count(self):
        process, state = self.start("time.sleep(1000)")
        found = leaks.found(state)
        for kind in ("process ", "mount ", "cgroup ", "loop device "):
            self.assertTrue(any(line.startswith(kind) for line in found), f"no {kind}in {found}")
        self.assertTrue(any("in a cgroup" in line and "sleep" in line for line in found), found)
        process.send_signal(signal.SIGTERM)  # as the runner does when the time is up
        self.assertEqual(process.wait(90), 143)
        self.assertNothingLeft(state)

    def test_after_a_failing_test(self):
        process, state = self.start("self.fail('on purpose')")
        self.assertEqual(process.wait(90), 1)
        self.assertNothingLeft(state)

    def test_after_kill_of_the_test_and_of_everything(self):
        process, state = self.start("time.sleep(1000)")
        process.kill()
        process.wait()
        for pid in leaks.daemon_pids(state):
            os.kill(pid, signal.SIGKILL)
        self.assertNotEqual(leaks.clean(state), [])  # what the runner does with what it finds
        self.assertEqual(leaks.found(state, set((self.tmp / leaks.NAMES_FILE).read_text().split())), [])


if __name__ == "__main__":
    unittest.main()
