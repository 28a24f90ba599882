"""The checks must be able to fail: each is shown a tree or a test that is wrong."""
import importlib.util
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "integration"))

import leaks  # noqa: E402


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem.replace("-", "_"), path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Temporary(unittest.TestCase):
    def setUp(self):
        keep = tempfile.TemporaryDirectory(prefix="dsec-tools-")
        self.addCleanup(keep.cleanup)
        self.dir = pathlib.Path(keep.name)

    def write(self, name, text):
        path = self.dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path


class IncludeGraph(Temporary):
    def check(self, name, text):
        self.write("src/base/README.md", "line\n" * 10)
        self.write("src/base/buf.h", "")
        self.write(f"src/{name.split('/')[0]}/README.md", "line\n" * 10)
        self.write(f"src/{name}", text)
        done = subprocess.run([sys.executable, ROOT / "tools/check-includes.py", "--root", self.dir],
                              capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    def test_allowed(self):
        self.assertEqual(self.check("loop/a.c", '#include <uv.h>\n#include "aether/aether.h"\n#include "base/buf.h"\n')[0], 0)

    def test_violations(self):
        for name, include in (("control/a.c", '"backend/backend.h"'), ("backend/x/a.c", '"edge/edge.h"'),
                              ("chronus/a.c", '"loop/conn.h"'), ("base/a.c", '"aether/aether.h"'),
                              ("aether/a.c", "<uv.h>"), ("edge/a.c", "<sqlite3.h>"), ("chronus/a.c", '"edge.pb-c.h"'),
                              ("nobody/a.c", "<stdio.h>"), ("edge/a.c", '"../base/buf.h"')):
            status, out = self.check(name, f"#include {include}\n")
            self.assertEqual(status, 1, f"{name} includes {include}: {out}")
            (self.dir / "src" / name).unlink()

    def test_long_file_and_missing_readme(self):
        status, out = self.check("loop/a.c", "\n" * 801)
        self.assertEqual((status, "801 lines" in out), (1, True))
        self.write("src/edge/b.c", "")
        self.assertIn("src/edge: no README.md", self.check("loop/a.c", "")[1])


class Format(Temporary):
    def test_problems(self):
        tool = load(ROOT / "tools" / "check-format.py")
        for name, text, problems in (("a.c", "int a;\n", 0), ("a.c", "int a; \n", 1), ("a.c", "int a;", 1),
                                     ("a.c", "        int a;\n", 1), ("a.c", "x" * 133 + "\n", 1), ("a.c", "int a;\n\n", 1),
                                     ("a.py", "\ta\n", 1), ("a.md", "a\r\n", 2), ("a.md", "x" * 300 + "\n", 0)):
            self.assertEqual(len(list(tool.problems(self.write(name, text)))), problems, repr(text[:20]))


class UnittestRunner(Temporary):
    def run_file(self, text):
        path = self.write("test_sample.py", "import unittest\n" + text)
        done = subprocess.run([sys.executable, ROOT / "tests/run_unittest.py", path], check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        reports = [json.loads(line) for line in done.stdout.splitlines()]
        return done.returncode, [(r["name"].rsplit(".", 1)[-1], r["status"]) for r in reports]

    def test_every_kind_of_result_counts_once(self):
        status, results = self.run_file("""
class T(unittest.TestCase):
    def test_a_pass(self): pass
    def test_b_fail(self): self.fail("x")
    def test_c_error(self): raise OSError("x")
    def test_d_skip(self): self.skipTest("no moon")
    def test_e_fail_and_cleanup(self):
        self.addCleanup(lambda: 1 / 0)
        self.fail("x")
    def test_f_subtests(self):
        for i in range(3):
            with self.subTest(i=i): self.assertEqual(i, 0)
    @unittest.expectedFailure
    def test_g_unexpected(self): pass
""")
        self.assertEqual(status, 1)
        self.assertEqual(results, [("test_a_pass", "passed"), ("test_b_fail", "failed"), ("test_c_error", "failed"),
                                   ("test_d_skip", "skipped"), ("test_e_fail_and_cleanup", "failed"),
                                   ("test_f_subtests", "failed"), ("test_g_unexpected", "failed")])

    def test_broken_setup_is_a_failure(self):
        status, results = self.run_file("""
class T(unittest.TestCase):
    @classmethod
    def setUpClass(cls): raise OSError("no platform")
    def test_a(self): pass
""")
        self.assertEqual((status, [r[1] for r in results]), (1, ["failed"]))

    def test_no_tests_is_a_failure(self):
        self.assertEqual(self.run_file(""), (1, []))


class Tap(unittest.TestCase):
    def test_lines(self):
        check = load(ROOT / "tools" / "check.py")
        text = "1..4\nok 1 - a\nnot ok 2 - b\n# ok - group\nok 3 - c # SKIP no kvm\nnoise ok 9\nok 4\n"
        self.assertEqual([(n, s) for n, s, _ in check.tap_results(text)],
                         [("a", "passed"), ("b", "failed"), ("c", "skipped"), ("", "passed")])
        self.assertEqual(check.verdict(-signal.SIGSEGV, 1), "killed by SIGSEGV")
        self.assertIn("did not end", check.verdict(None, 5))
        self.assertIsNone(check.verdict(0, 1))


@unittest.skipUnless(os.geteuid() == 0, "root is needed to make what a leak leaves")
class Leaks(Temporary):
    def test_a_process_is_found_and_removed(self):
        process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)", str(self.dir / "run")],
                                   executable=sys.executable)
        self.addCleanup(process.kill)
        self.assertEqual(leaks.daemon_pids(self.dir), [])  # named by the directory, but not one of our programs
        ours = subprocess.Popen(["dsec-spawner", "-c", "import time; time.sleep(1000)", "--run-dir", str(self.dir / "run")],
                                executable=sys.executable)
        self.addCleanup(ours.kill)
        while not leaks.cmdline(ours.pid):  # exec has let the parent go on, but has not laid its words out yet
            time.sleep(0.001)
        self.assertEqual(leaks.daemon_pids(self.dir), [ours.pid])
        self.assertEqual(leaks.daemon_pids(self.dir, "spawner"), [ours.pid])
        self.assertEqual(leaks.daemon_pids(self.dir, "mounter"), [])
        self.assertEqual(leaks.daemon_pids(str(self.dir)[:-1]), [])  # a prefix of the name is another directory
        self.assertEqual(len(leaks.clean(self.dir)), 1)
        self.assertEqual(ours.wait(5), -signal.SIGKILL)
        self.assertIsNone(process.poll())

    def test_a_mount_and_a_loop_device_are_found_and_removed(self):
        image, target = self.dir / "volume.img", self.dir / "mnt"
        target.mkdir()
        with open(image, "wb") as f:
            f.truncate(8 << 20)
        subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
        before = leaks.snapshot()
        subprocess.run(["mount", "-o", "loop", str(image), str(target)], check=True)
        found = leaks.found(self.dir)
        self.assertEqual(len([line for line in found if line.startswith("mount ")]), 1, found)
        self.assertEqual(len([line for line in found if line.startswith("loop device ")]), 1, found)
        self.assertTrue(any(line.startswith("loops") for line in leaks.outside(before, self.dir)))
        leaks.clean(self.dir)
        self.assertEqual(leaks.found(self.dir), [])

    def test_a_cgroup_is_found_and_removed(self):
        top = pathlib.Path(leaks.cgroup_mounts()[0]) / "dsec-0badcafe"
        before = leaks.snapshot()
        (top / "sb-1").mkdir(parents=True)
        self.addCleanup(lambda: top.exists() and top.rmdir())
        self.assertEqual(leaks.found(self.dir), [])
        self.assertTrue(any("dsec-0badcafe" in line for line in leaks.outside(before, self.dir)))
        self.write("edge/cgroup", f"{top}\n")  # as the edge writes it down
        self.assertEqual(leaks.found(self.dir), [f"cgroup {top}"])
        leaks.clean(self.dir)
        self.assertFalse(top.exists())


if __name__ == "__main__":
    unittest.main()
