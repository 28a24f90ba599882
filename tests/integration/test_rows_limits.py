"""Rows of "Resource limits and OOM" of the public reports, and 105. ROWS.md says where the others are shown."""
import os
import re
import statistics
import time
import unittest

import leaks
from debian import DebianTest
from harness import PlatformTest, wait_until
from rows_help import MIB, memory_bound

# awk lives on when it cannot fork; the shells of the bomb end then, and are started anew.
BOMB = ["awk", 'BEGIN { while (1) system("b() { b | b & b | b & wait; }; b 2>/dev/null") }']
HOG = ["awk", 'BEGIN { s = "x"; while (1) s = s s }']


class Rows(PlatformTest):
    def kill(self, sb, ex):
        self.client.call("POST", f"/v1/sandboxes/{sb}/execs/{ex['id']}/signal", {"signal": "KILL", "whole_tree": True})

    def chronuses(self):
        """pid 1 of each sandbox of this platform: (pid, start time)."""
        return {(pid, leaks.read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[19])
                for pid in leaks.cgroup_pids(leaks.cgroups(self.platform.state))
                if leaks.read(f"/proc/{pid}/comm") == b"chronus\n"}

    def test_row_90_storms_do_not_cost_the_runtime(self):
        """Memory and forks at once: commands still start, the eaten one is told apart, PID 1 is the same process."""
        sb = self.sandbox(memory_mb=96, pids=64)
        witness = self.client.start(sb, "trap '' TERM; while :; do sleep 0.2; done")
        before = self.chronuses()
        self.assertTrue(before)
        self.assertNotEqual(self.client.run(sb, "echo -900 > /proc/self/oom_score_adj")["exit_code"], 0)  # no command is before it
        bomb = self.client.start(sb, BOMB)
        wait_until("the limit to be met", 10, lambda: self.client.get(sb)["usage"]["pids"] >= 60)
        self.assertEqual(self.client.get(sb)["state"], "running")  # the API answers about it meanwhile
        self.kill(sb, bomb)
        self.assertEqual(self.client.wait(sb, bomb["id"])["killed_by"], "user")
        for _ in range(2):
            done = self.client.run(sb, HOG)
            self.assertEqual((done["oom_killed"], done["killed_by"], done["exit_code"]), (True, "oom", None))
        self.assertGreaterEqual(self.client.get(sb)["usage"]["oom_kills"], 2)
        self.assertEqual(self.client.run(sb, ["echo", "usable"])["stdout"], b"usable\n")
        self.assertEqual(self.client.exec(sb, witness["id"])["state"], "running")
        self.assertEqual(self.chronuses(), before)

    def test_row_92_nothing_is_restarted_behind_the_callers_back(self):
        """A command that ran out of memory does not run again; a sandbox whose PID 1 died stays dead under its id."""
        others = self.chronuses()
        sb = self.sandbox(memory_mb=64)
        first = self.client.get(sb)
        done = self.client.run(sb, "echo run >> /log; " + "awk 'BEGIN { s = \"x\"; while (1) s = s s }'", output_limit_bytes=4096)
        self.assertIn(True, (done["oom_killed"], done["exit_code"] == 137))
        time.sleep(1)
        self.assertEqual(self.client.run(sb, "cat /log")["stdout"], b"run\n")
        again = self.client.get(sb)
        self.assertEqual((again["id"], again["running_at"]), (first["id"], first["running_at"]))
        (pid, _), = self.chronuses() - others
        os.kill(pid, 9)
        gone = wait_until("it to be told", 5, lambda: (g := self.client.get(sb))["state"] == "stopped" and g)
        self.assertEqual(gone["reason"], "exited")
        time.sleep(1.5)
        self.assertEqual(self.client.get(sb)["state"], "stopped")
        self.assertApiError("sandbox_stopped", self.client.run, sb, ["true"])
        self.assertEqual(self.client.list(), [s for s in self.client.list() if s["id"] != sb])

    def test_row_94_each_limit_is_met_and_named(self):
        """Processes, descriptors (sockets are some) and disk. What exec itself may start beyond pids: ROWS.md."""
        sb = self.sandbox(pids=40, disk_mb=32)
        full = self.client.run(sb, "while :; do sleep 7940 & done")
        self.assertRegex(full["stderr"], b"(?i)can't fork|temporarily unavailable")
        self.assertNotEqual(full["exit_code"], 0)
        self.assertEqual(self.client.get(sb)["usage"]["pids"], 39)  # all but the shell, which gave up
        self.assertEqual(self.client.run(sb, ["killall", "-9", "sleep"])["exit_code"], 0)  # there is a way out
        wait_until("room", 5, lambda: self.client.get(sb)["usage"]["pids"] == 0)
        self.assertEqual(self.client.run(sb, "for i in 1 2 3; do true & done; wait; echo ok")["stdout"], b"ok\n")
        nofile = int(self.client.run(sb, "ulimit -Hn")["stdout"])
        self.assertLessEqual(nofile, 1 << 16)
        done = self.client.run(sb, "i=3; while eval \"exec $i</dev/null\" 2>/dev/null; do i=$((i+1)); done; echo never",
                               timeout_seconds=20)
        self.assertNotEqual(done["exit_code"], 0)  # the shell itself ends at its limit
        self.assertEqual((done["timed_out"], done["stdout"]), (False, b""))
        self.client.run(sb, "dd if=/dev/urandom of=/f bs=1M count=64")
        self.assertApiError("disk_full", self.client.write_file, sb, "/g", bytes(4 * MIB))

    def test_row_94_neighbours_of_a_fork_bomb(self):
        """The median of its calls, alone and beside a bomb of half a processor, which the bomb would otherwise stretch."""
        def median():
            times = []
            for _ in range(25):
                began = time.monotonic()
                self.assertEqual(self.client.run(other, ["true"])["exit_code"], 0)
                times.append(time.monotonic() - began)
            return statistics.median(times)
        other, sb = self.sandbox(), self.sandbox(cpu=0.5, pids=200)
        alone = median()
        bomb = self.client.start(sb, BOMB)
        wait_until("the bomb", 10, lambda: self.client.get(sb)["usage"]["pids"] >= 150)
        with memory_bound(self, 8 * MIB):
            beside = median()
        self.assertGreaterEqual(self.client.get(sb)["usage"]["pids"], 100)  # it was there all the time
        self.kill(sb, bomb)
        self.client.wait(sb, bomb["id"])
        self.assertLess(beside, alone * 5 + 0.05, f"{alone * 1e3:.1f} ms alone, {beside * 1e3:.1f} ms beside")

    def test_row_96_killing_by_name_port_or_all_misses_the_runtime(self):
        sb = self.sandbox()
        self.client.run(sb, "echo kept > /tmp/f")
        victim = self.client.start(sb, "sleep 7960")
        for command in ("pkill -9 chronus", "killall -9 chronus init sh", "pkill -9 -f .", "fuser -k 80/tcp 8000/tcp 8080/tcp",
                        "kill -9 -1", "killall5 -9", "pkill -9 -u root", "kill -9 1", "kill -TERM 1; kill -STOP 1; kill -QUIT 1",
                        "for p in /proc/[0-9]*; do kill -9 ${p#/proc/}; done"):
            self.client.run(sb, command, timeout_seconds=20)
            done = self.client.run(sb, ["cat", "/tmp/f"], timeout_seconds=10)
            self.assertEqual((done["exit_code"], done["stdout"]), (0, b"kept\n"), command)
        self.assertEqual(self.client.exec(sb, victim["id"])["signal"], "KILL")  # the same commands do kill others


class Views(DebianTest):
    def test_row_93_every_view_agrees_with_the_limits(self):
        sb = self.sandbox(cpu=1, memory_mb=200, pids=50)
        script = r"""
import os, re
mem = dict(l.split(":") for l in open("/proc/meminfo"))
print(os.cpu_count(), len(os.sched_getaffinity(0)), os.sysconf("SC_NPROCESSORS_ONLN"), os.sysconf("SC_NPROCESSORS_CONF"),
      len(re.findall("^processor", open("/proc/cpuinfo").read(), re.M)))
print(int(mem["MemTotal"].split()[0]) << 10)
"""
        done = self.client.run(sb, ["python3", "-c", script])
        self.assertEqual(done["exit_code"], 0, done["stderr"])
        cpus, memory = (line.split() for line in done["stdout"].decode().splitlines())
        self.assertEqual(set(cpus), {"1"}, cpus)
        self.assertEqual(set(memory), {str(200 * MIB)}, memory)
        wide = self.sandbox(cpu=2, memory_mb=300)  # another limit, another view
        self.assertEqual(self.client.run(wide, "nproc; free -m | awk '/^Mem/{print $2}'")["stdout"].split(), [b"2", b"300"])
        files = self.client.run(sb, "cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null")
        for value in re.findall(rb"\d+", files["stdout"]):  # where the host's kind of cgroups shows them at all
            self.assertEqual(int(value), 200 * MIB)


if __name__ == "__main__":
    unittest.main()
