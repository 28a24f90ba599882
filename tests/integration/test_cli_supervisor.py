"""`dsecd up` and `dsec down`: one supervisor, take-over, back-off, and that nothing is left, whoever was killed."""
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import unittest

import leaks
from harness import PlatformTest, find_program, free_port, wait_until


def down(state):
    return subprocess.run([find_program("dsec"), "down", "--state-dir", str(state)], capture_output=True, timeout=100)


class Supervisor(PlatformTest):
    def setUp(self):
        if self.platform.up is None or self.platform.up.poll() is not None or not self.platform.is_ready():
            self.platform.start()

    def assert_nothing_left(self, names):
        wait_until("nothing to be left", 10, lambda: not leaks.found(self.platform.state, names))
        left = [p.name for p in (self.platform.state / "run").iterdir()]
        self.assertEqual(sorted(left), ["boot-id", "lock"])

    def test_second_up_is_refused(self):
        done = subprocess.run([find_program("dsec"), "up", "--state-dir", self.platform.state, "--listen",
                               f"127.0.0.1:{free_port()}"], capture_output=True, timeout=30)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"pid {self.platform.up.pid}".encode(), done.stderr)
        self.assertTrue(self.platform.is_ready())

    def test_what_dies_is_started_again(self):
        for role in ("apiserver", "edge", "spawner", "mounter"):
            before = set(self.platform.pids(role))
            self.platform.kill9(role)
            wait_until(f"{role} to be back", 20, lambda: len(set(self.platform.pids(role)) - before) == len(before))
        self.platform.wait_ready()
        self.assertEqual(self.client.run(self.sandbox(), ["true"])["exit_code"], 0)

    def test_killed_supervisor_is_replaced_and_sandboxes_live_on(self):
        sb = self.sandbox()
        started = self.client.start(sb, "i=0; while [ $i -lt 30 ]; do echo $i; i=$((i+1)); sleep 0.1; done")
        os.kill(self.platform.up.pid, signal.SIGKILL)
        self.platform.up.wait()
        self.assertEqual(self.client.run(sb, ["echo", "still"])["stdout"], b"still\n")
        old = set(self.platform.pids("edge"))
        self.platform.start()
        self.assertFalse(old & set(self.platform.pids("edge")))
        out, _, last = self.platform.client.read_output(sb, started["id"])
        self.assertEqual(out, b"".join(b"%d\n" % i for i in range(30)))
        self.assertEqual(last["exec"]["exit_code"], 0)

    def test_down_ends_everything(self):
        sb = self.client.create()["id"]
        self.client.start(sb, ["sleep", "1000"])
        names = leaks.cgroup_names(self.platform.state)
        done = down(self.platform.state)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assert_nothing_left(names)
        self.assertEqual(down(self.platform.state).returncode, 0)  # again: nothing to do

    def test_down_without_supervisor(self):
        sb = self.client.create()["id"]
        self.client.start(sb, ["sleep", "1000"])
        names = leaks.cgroup_names(self.platform.state)
        os.kill(self.platform.up.pid, signal.SIGKILL)
        self.platform.up.wait()
        done = down(self.platform.state)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assert_nothing_left(names)

    def test_everything_killed(self):
        sb = self.client.create()["id"]
        self.client.start(sb, ["sleep", "1000"])
        names = leaks.cgroup_names(self.platform.state)
        for role in ("up", "apiserver", "edge", "mounter", "spawner"):
            self.platform.kill9(role)
        self.platform.up.wait()
        self.platform.start()  # the sandbox is taken back
        self.assertEqual(self.client.run(sb, ["echo", "alive"])["stdout"], b"alive\n")
        for role in ("up", "apiserver", "edge", "mounter", "spawner"):
            self.platform.kill9(role)
        self.platform.up.wait()
        done = down(self.platform.state)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assert_nothing_left(names)


class Refusals(unittest.TestCase):
    def setUp(self):
        self.state = pathlib.Path(tempfile.mkdtemp(prefix="dsec-it-", dir="/tmp"))
        self.addCleanup(shutil.rmtree, self.state)

    def up(self, *words):
        return subprocess.run([find_program("dsec"), "up", *words], capture_output=True, timeout=60)

    def test_address_in_use(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            s.listen()
            done = self.up("--detach", "--state-dir", self.state, "--listen", f"127.0.0.1:{s.getsockname()[1]}")
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"Address already in use; --listen", done.stderr)
        self.assertEqual(leaks.daemon_pids(self.state), [])

    def test_directory_of_others(self):
        self.state.chmod(0o755)
        (self.state / "theirs").touch()
        done = self.up("--state-dir", self.state)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"open to other users", done.stderr)
        self.assertEqual([p.name for p in self.state.iterdir()], ["theirs"])

    def test_wrong_usage(self):
        for words in (["--listen", "nonsense"], ["--max-sandboxes", "0"], ["--pool", "x"], ["extra"], ["--nosuch"]):
            self.assertEqual(self.up("--state-dir", self.state, *words).returncode, 2, words)

    def test_down_where_nothing_was(self):
        done = down(self.state / "nosuch")
        self.assertEqual(done.returncode, 0)
        self.assertIn(b"nothing was ever started", done.stderr)

    def test_json_of_up_and_down(self):
        def ended(*words):
            done = subprocess.run([find_program("dsec"), "down", "--json", "--state-dir", *words], capture_output=True, timeout=100)
            self.assertEqual(done.returncode, 0, done.stderr)
            return json.loads(done.stdout)

        port = free_port()
        where = {"url": f"http://127.0.0.1:{port}", "state_dir": str(self.state), "api_key_file": f"{self.state}/api-key"}
        words = ["--json", "--state-dir", self.state, "--listen", f"127.0.0.1:{port}"]
        self.addCleanup(down, self.state)
        done = self.up("--detach", *words)
        self.assertEqual(json.loads(done.stdout), where, done.stderr)
        self.assertEqual(ended(self.state), {"state_dir": str(self.state), "was_running": True})
        self.assertEqual(ended(self.state), {"state_dir": str(self.state), "was_running": False})
        self.assertEqual(ended(self.state / "nosuch")["was_running"], False)
        with subprocess.Popen([find_program("dsec"), "up", *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as up:
            self.assertEqual(json.loads(up.stdout.readline()), where)
            self.assertIn(b"has ended", down(self.state).stderr)
        self.assertEqual(up.returncode, 0)
        self.assertIn(b"nothing was running", down(self.state).stderr)

    def test_detach_and_doctor(self):
        port = free_port()
        done = self.up("--detach", "--state-dir", self.state, "--listen", f"127.0.0.1:{port}")
        self.addCleanup(down, self.state)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.decode(), f"dsec is ready at http://127.0.0.1:{port}\n")
        self.assertEqual((self.state / "run/url").read_text(), f"http://127.0.0.1:{port}\n")
        self.assertEqual((self.state / "api-key").stat().st_mode & 0o777, 0o600)
        doctor = subprocess.run([find_program("dsec"), "doctor", "--json"], capture_output=True, timeout=60)
        found = json.loads(doctor.stdout)
        self.assertEqual(doctor.returncode, 0 if found["works"] else 1)
        self.assertEqual({f["level"] for f in found["findings"]} - {"ok", "warn", "fail"}, set())
        self.assertEqual([p for p in os.listdir("/var/tmp") if p.startswith("dsec-doctor")], [])


if __name__ == "__main__":
    unittest.main()
