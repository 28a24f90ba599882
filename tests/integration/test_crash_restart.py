"""kill -9 of each of our processes while commands run: the commands go on, their output is whole, results
are exact, and new creates work afterwards. Also: everything killed at once, then up again and down."""
import os
import signal
import subprocess
import unittest

import leaks
from harness import Platform, PlatformTest, busybox_tar, find_program, start_platform, wait_until

LINES = 300
COUNT = f"i=0; while [ $i -lt {LINES} ]; do echo line $i; i=$((i+1)); usleep 10000; done; exit 7"
EXPECTED = "".join(f"line {i}\n" for i in range(LINES)).encode()


class KillOne(PlatformTest):
    def kill(self, role):
        """kill -9 of every process of a role; returns when the supervisor has started as many anew."""
        old = set(self.platform.kill9(role))
        wait_until(f"{role} started anew", 30,
                   lambda: len(set(self.platform.pids(role)) - old) >= len(old))
        self.platform.wait_ready()

    def kill_while_running(self, role):
        sb = self.sandbox()
        ex = self.client.start(sb, COUNT)
        self.kill(role)
        done = self.client.wait(sb, ex["id"])
        self.assertEqual((done["state"], done["exit_code"], done["signal"]), ("finished", 7, None))
        out, err, last = self.client.read_output(sb, ex["id"])
        self.assertEqual(out, EXPECTED)
        self.assertEqual(err, b"")
        self.assertEqual(last["event"], "exit")
        self.assertEqual(done["stdout_bytes"], len(EXPECTED))
        self.assertEqual(self.client.run(sb, ["echo", "still here"])["stdout"], b"still here\n")
        other = self.sandbox()
        self.assertEqual(self.client.run(other, ["echo", "new"])["stdout"], b"new\n")

    def test_edge(self):
        self.kill_while_running("edge")

    def test_apiserver(self):
        self.kill_while_running("apiserver")

    def test_mounter(self):
        self.kill_while_running("mounter")

    def test_spawner(self):
        self.kill_while_running("spawner")

    def test_edge_killed_while_a_command_writes_fast(self):
        """More than chronus holds unacknowledged: the program waits for the new edge."""
        sb = self.sandbox()
        ex = self.client.start(sb, "seq 1 400000")
        self.kill("edge")
        done = self.client.wait(sb, ex["id"])
        expected = "".join(f"{i}\n" for i in range(1, 400001)).encode()
        self.assertEqual((done["exit_code"], done["stdout_bytes"]), (0, len(expected)))
        out, _, _ = self.client.read_output(sb, ex["id"])
        self.assertTrue(out == expected, "output differs")

    def test_results_survive_the_edge(self):
        sb = self.sandbox()
        done = self.client.run(sb, "echo kept; echo more >&2; exit 3")
        self.kill("edge")
        again = self.client.exec(sb, done["id"])
        self.assertEqual((again["state"], again["exit_code"]), ("finished", 3))
        out, err, _ = self.client.read_output(sb, done["id"])
        self.assertEqual((out, err), (b"kept\n", b"more\n"))

    def test_stdin_goes_on_after_the_edge(self):
        """Bytes given before and after the kill arrive once each, in order."""
        sb = self.sandbox()
        ex = self.client.start(sb, ["cat"], stdin="open")
        path = f"/v1/sandboxes/{sb}/execs/{ex['id']}/stdin"
        first = self.client.call("POST", path + "?offset=0", b"before ")
        self.assertEqual(first["offset"], 7)
        self.kill("edge")
        # The client repeats what it is not sure of: bytes below the known offset are skipped.
        second = self.client.call("POST", path + "?offset=0&eof=true", b"before after")
        self.assertEqual((second["offset"], second["closed"]), (12, True))
        self.client.wait(sb, ex["id"])
        self.assertEqual(self.client.read_output(sb, ex["id"])[0], b"before after")

    def test_a_sandbox_that_died_while_the_edge_was_away_is_reported(self):
        sb = self.sandbox()
        ex = self.client.start(sb, ["sleep", "300"])
        pid1 = self.newest_chronus()
        supervisor, = self.platform.pids("up")
        os.kill(supervisor, signal.SIGSTOP)  # no new edge before PID 1 is gone
        try:
            old = set(self.platform.kill9("edge"))
            os.kill(pid1, signal.SIGKILL)
        finally:
            os.kill(supervisor, signal.SIGCONT)
        wait_until("edge started anew", 30, lambda: set(self.platform.pids("edge")) - old)
        self.platform.wait_ready()
        info = self.client.get(sb)
        self.assertEqual(info["state"], "stopped")
        self.assertIn(info["reason"], ("exited", "failed"))
        done = self.client.exec(sb, ex["id"])
        self.assertEqual((done["state"], done["exit_code"], done["killed_by"]), ("finished", None, "sandbox"))

    def newest_chronus(self):
        def start_ticks(pid):
            return int(leaks.read(f"/proc/{pid}/stat").decode().rsplit(") ", 1)[1].split()[19])

        ours = [pid for pid in leaks.all_pids() if leaks.read(f"/proc/{pid}/comm") == b"chronus\n"]
        self.assertTrue(ours, "no chronus runs")
        return max(ours, key=start_ticks)


class KillAll(unittest.TestCase):
    def setUp(self):
        self.platform = start_platform()
        self.addCleanup(self.platform.destroy)
        self.ids = [self.platform.client.create()["id"] for _ in range(3)]
        for sb in self.ids:
            self.platform.client.start(sb, ["sleep", "1000"])

    def test_everything_killed_then_up_and_down_leaves_nothing(self):
        p = self.platform
        p.up.kill()
        p.up.wait()
        for role in ("apiserver", "edge", "mounter", "spawner"):
            p.kill9(role)
        p.start()
        self.assertEqual([p.client.get(sb)["state"] for sb in self.ids], ["running"] * 3)
        self.assertEqual(p.client.run(self.ids[0], ["echo", "x"])["stdout"], b"x\n")
        self.assertEqual(p.stop(), 0)
        self.assertEqual(leaks.found(p.state), [])

    def test_supervisor_killed_then_down_leaves_nothing(self):
        p = self.platform
        p.up.kill()
        p.up.wait()
        self.assertEqual(p.client.run(self.ids[0], ["echo", "x"])["stdout"], b"x\n")  # all serve on
        subprocess.run([find_program("dsec"), "down", "--state-dir", str(p.state)], check=True,
                       stdin=subprocess.DEVNULL, timeout=60)
        self.assertEqual(leaks.found(p.state), [])

    def test_supervisor_killed_then_up_takes_over(self):
        p = self.platform
        p.up.kill()
        p.up.wait()
        p.start()
        self.assertEqual([p.client.get(sb)["state"] for sb in self.ids], ["running"] * 3)
        self.assertEqual(p.stop(), 0)
        self.assertEqual(leaks.found(p.state), [])


if __name__ == "__main__":
    unittest.main()
