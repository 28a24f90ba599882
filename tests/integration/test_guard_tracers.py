"""Root inside as a tracer: nobody in a sandbox holds back the end of a command."""
import time
import unittest

from debian import DebianTest
from harness import wait_until

# Seizes each sleep it finds and never looks again.
TRACER = r"""
import ctypes, os, sys, time
libc, seen = ctypes.CDLL(None), set()
end = time.time() + 60
print("ready", flush=True)
while time.time() < end:
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            traced = open(f"/proc/{pid}/cmdline").read().startswith(sys.argv[2])
        except OSError:
            continue
        if traced and pid not in seen and libc.ptrace(0x4206, int(pid), 0, int(sys.argv[1])) == 0:
            seen.add(pid)
            print(pid, flush=True)
    time.sleep(0.01)
"""
TRACEEXIT = 0x40


class HeldBack(DebianTest):
    """A tracer gets to know of a death before the parent does, and may keep it to itself."""

    def setUp(self):
        self.sb = self.sandbox(memory_mb=256)

    def said(self, tracer):
        return self.client.read_output(self.sb, tracer, follow=False)[0].split()

    def trace(self, options, word, name="tracer"):
        made = self.client.start(self.sb, ["bash", "-c", 'exec -a "$0" python3 -c "$@"', name, TRACER, str(options), word])
        wait_until("the tracer looks around", 20, lambda: self.said(made["id"]))
        return made["id"]

    def assert_seized(self, tracer):
        self.assertGreaterEqual(len(self.said(tracer)), 2, "the tracer found nobody")

    def test_a_timeout_ends_a_traced_command(self):
        for options in (0, TRACEEXIT):
            with self.subTest(options):
                tracer = self.trace(options, "sleep")
                r = self.client.run(self.sb, ["sleep", "100"], timeout_seconds=2)
                self.assertEqual((r["killed_by"], r["signal"]), ("timeout", "KILL"))
                self.assert_seized(tracer)

    def test_a_kill_ends_a_traced_command(self):
        self.trace(0, "sleep")
        held = self.client.start(self.sb, ["sleep", "1"])  # ends by itself, which nobody hears of
        time.sleep(2)
        self.assertEqual(self.client.exec(self.sb, held["id"])["state"], "running")
        self.client.call("POST", f"/v1/sandboxes/{self.sb}/execs/{held['id']}/signal",
                         {"signal": "KILL", "whole_tree": True})
        self.assertEqual(self.client.wait(self.sb, held["id"], 20)["exit_code"], 0)

    def test_a_chain_of_tracers_does_not_help(self):
        """Each of them, when killed, stops on its way out until the next one looks."""
        tracers = [self.trace(TRACEEXIT, "sleep", "one"), self.trace(TRACEEXIT, "one", "two"),
                   self.trace(TRACEEXIT, "two", "three")]
        r = self.client.run(self.sb, ["sleep", "100"], timeout_seconds=2)
        self.assertEqual((r["killed_by"], r["signal"]), ("timeout", "KILL"))
        for tracer in tracers:
            self.assert_seized(tracer)


if __name__ == "__main__":
    unittest.main()
