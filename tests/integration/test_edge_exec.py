"""Commands and files through the edge's own protocol: bounds, readers, input, kills, restarts, large data."""
import hashlib
import os
import resource
import signal
import time
import unittest

import leaks
from chronus_client import decode, field, get
from edge_client import (EXEC, EXEC_GET, OP_LIST, OP_READ, OP_STAT, OP_TAR_IN, OP_TAR_OUT, OP_WRITE, R_ENTRIES, R_EXEC,
                         R_FILE_DONE, R_STAT, EdgeClient, gaps, named)
from harness import wait_until
from test_edge_life import EdgeTest

# A line of 100 bytes a number: what was lost or doubled is seen at once.
NUMBERED = "i=0; while [ $i -lt %d ]; do printf '%%0100d' $i; i=$((i+1)); done"


def numbered(n, start=0):
    return b"".join(b"%0100d" % i for i in range(start, n))


class Running(EdgeTest):
    def setUp(self):
        super().setUp()
        self.sb = self.box(env={"A": "sandbox", "B": "sandbox"})

    def test_result_and_defaults(self):
        done, out, err = self.edge.run(self.sb, "echo $A $B; echo e >&2; exit 5", env={"B": "exec"})
        self.assertEqual((out, err), (b"sandbox exec\n", b"e\n"))
        self.assertEqual((done["has_exit_code"], done["exit_code"], done["signal"], done["killed_by"]), (1, 5, 0, ""))
        self.assertEqual((done["stdout_total"], done["stderr_total"]), (len(out), 2))

    def test_idempotent_by_id(self):
        first = self.edge.exec(self.sb, "echo once >> /tmp/log; echo out", eid="mine")
        self.edge.wait_exec(self.sb, "mine")
        done, out, _ = self.edge.run(self.sb, "echo once >> /tmp/log; echo out", eid="mine")
        self.assertEqual((first["id"], done["id"], out), ("mine", "mine", b"out\n"))
        self.refused("conflict", self.edge.exec, self.sb, "echo other", eid="mine")
        self.assertEqual(self.edge.run(self.sb, "cat /tmp/log")[1], b"once\n")

    def test_failures_to_start_are_errors_and_stay_so(self):
        for code, argv in (("command_not_found", ["/nope"]), ("permission_denied", ["/etc/passwd"])):
            self.refused(code, self.edge.exec, self.sb, argv, eid=code)
            self.refused(code, self.edge.run, self.sb, argv, eid=code)
            self.assertEqual(self.edge.get_exec(self.sb, code)["state"], "failed")
        self.refused("bad_argv", self.edge.exec, self.sb, [])
        self.refused("bad_argv", self.edge.exec, self.sb, ["a\0b"])
        self.refused("bad_field", self.edge.exec, self.sb, "true", eid="../x")
        self.refused("bad_field", self.edge.exec, self.sb, "true", limit=(1 << 30) + 1)
        self.refused("exec_not_found", self.edge.get_exec, self.sb, "unknown")

    def test_large_argv_and_stdin(self):
        text = os.urandom(50000).hex()
        done, out, _ = self.edge.run(self.sb, ["/bin/sh", "-c", "printf %s \"$0\"", text])
        self.assertEqual(out.decode(), text)
        data = os.urandom(1 << 20)
        done, out, _ = self.edge.run(self.sb, ["sha256sum"], stdin=data)
        self.assertEqual(out.split()[0].decode(), hashlib.sha256(data).hexdigest())
        self.refused("body_too_large", self.edge.run, self.sb, ["cat"], stdin=data + b"x")
        self.refused("bad_argv", self.edge.run, self.sb, ["/bin/true"] + ["x" * 60000] * 5)

    def test_shown_argv_is_cut(self):
        eid = self.edge.exec(self.sb, ["/bin/sh", "-c", "true # " + "x" * 100000, "y"])["id"]
        self.edge.wait_exec(self.sb, eid)
        raw = self.edge.reply(self.edge.call(EXEC_GET, field(1, self.sb) + field(2, eid)), R_EXEC)
        argv = decode(raw)[4]
        self.assertEqual(argv[:2], [b"/bin/sh", b"-c"])
        self.assertTrue(argv[2].startswith(b"true # xxx"))
        self.assertTrue(15000 < sum(map(len, argv)) <= 16384)
        self.assertEqual(self.edge.exec(self.sb, ["/bin/sh", "-c", "true # " + "x" * 100000, "y"], eid=eid)["id"], eid)

    def test_many_readers_from_any_offset(self):
        eid = self.edge.exec(self.sb, NUMBERED % 5000)["id"]
        readers = [(at, self.edge.output(self.sb, eid, out=at)) for at in (0, 0, 1, 4321, 499999, 500000)]
        whole = numbered(5000)
        for at, s in readers:
            self.edge.last(s, R_EXEC)
            self.assertTrue(s.data.get(1, b"") == whole[at:], at)
        late = self.edge.output(self.sb, eid, out=250000)
        self.edge.last(late, R_EXEC)
        self.assertTrue(late.data[1] == whole[250000:])

    def test_the_bound_keeps_head_and_tail(self):
        done, out, _ = self.edge.run(self.sb, "sleep 0.3; " + NUMBERED % 3000, limit=10000)
        self.assertEqual((done["stdout_total"], done["stdout_truncated"]), (300000, 1))
        late = self.edge.output(self.sb, done["id"])
        self.edge.last(late, R_EXEC)
        whole = numbered(3000)
        self.assertEqual(gaps(late), [(1, 5000, 295000)])
        self.assertTrue(late.data[1] == whole[:5000] + whole[295000:])

    def test_a_slow_reader_stops_neither_the_program_nor_others(self):
        s = self.edge.exec_stream(self.sb, "head -c 3000000 /dev/zero; echo end >&2")
        s.hold_credit = True
        eid = named(self.edge.reply(s, R_EXEC), EXEC)["id"]
        done = self.edge.wait_exec(self.sb, eid)
        self.assertEqual((done["state"], done["stdout_total"]), ("finished", 3000000))
        other = self.edge.output(self.sb, eid)
        self.edge.last(other, R_EXEC)
        self.assertEqual(len(other.data[1]), 3000000)
        self.assertLess(len(s.data.get(1, b"")), 300000)
        s.release_credit()
        self.edge.last(s, R_EXEC)
        self.assertEqual((len(s.data[1]), s.data[2], gaps(s)), (3000000, b"end\n", []))

    def test_a_reader_that_goes_away(self):
        for _ in range(10):
            other = EdgeClient(self.platform)
            other.reply(other.exec_stream(self.sb, "head -c 1000000 /dev/zero; sleep 0.2"), R_EXEC)
            other.close()
        self.assertEqual(self.edge.run(self.sb, "echo on")[1], b"on\n")

    def test_waiting(self):
        eid = self.edge.exec(self.sb, "sleep 1; exit 4")["id"]
        began = time.monotonic()
        self.assertEqual(self.edge.wait_exec(self.sb, eid, 100)["state"], "running")
        self.assertLess(time.monotonic() - began, 0.8)
        self.assertEqual(self.edge.wait_exec(self.sb, eid)["exit_code"], 4)

    def test_stdin(self):
        eid = self.edge.exec(self.sb, ["cat"], stdin_open=True)["id"]
        self.assertEqual(self.edge.stdin(self.sb, eid, b"hello "), (6, False))
        self.assertEqual(self.edge.stdin(self.sb, eid, b"lo world", offset=3), (11, False))  # resumed
        self.refused("bad_field", self.edge.stdin, self.sb, eid, b"x", offset=12)
        self.assertEqual(self.edge.stdin(self.sb, eid, b"!", offset=11, eof=True), (12, True))
        self.assertEqual(self.edge.wait_exec(self.sb, eid)["exit_code"], 0)
        s = self.edge.output(self.sb, eid)
        self.edge.last(s, R_EXEC)
        self.assertEqual(s.data[1], b"hello world!")
        self.refused("conflict", self.edge.stdin, self.sb, eid, b"late", offset=12)
        closed = self.edge.exec(self.sb, "sleep 5")["id"]
        self.refused("conflict", self.edge.stdin, self.sb, closed, b"x")

    def test_stdin_has_back_pressure(self):
        eid = self.edge.exec(self.sb, "sleep 1.5; sha256sum", stdin_open=True)["id"]
        data = os.urandom(4 << 20)
        began = time.monotonic()
        self.assertEqual(self.edge.stdin(self.sb, eid, data, eof=True), (len(data), True))
        self.assertGreater(time.monotonic() - began, 1.0)
        s = self.edge.output(self.sb, eid)
        self.edge.last(s, R_EXEC)
        self.assertEqual(s.data[1].split()[0].decode(), hashlib.sha256(data).hexdigest())

    def test_signals_and_timeout(self):
        eid = self.edge.exec(self.sb, "trap 'echo got; exit 9' USR1; while :; do sleep 0.05; done")["id"]
        time.sleep(0.3)
        self.edge.signal(self.sb, eid, signal.SIGUSR1, False)
        self.assertEqual(self.edge.wait_exec(self.sb, eid)["exit_code"], 9)
        eid = self.edge.exec(self.sb, "sleep 100")["id"]
        self.edge.signal(self.sb, eid, signal.SIGKILL)
        done = self.edge.wait_exec(self.sb, eid)
        self.assertEqual((done["has_exit_code"], done["signal"], done["killed_by"]), (0, 9, "user"))
        self.refused("conflict", self.edge.signal, self.sb, eid, 9)
        done, _, _ = self.edge.run(self.sb, "sleep 100", timeout_ms=300)
        self.assertEqual((done["timed_out"], done["killed_by"]), (1, "timeout"))

    def test_out_of_memory_is_told_apart(self):
        small = self.box(memory=64 << 20)
        done, _, _ = self.edge.run(small, ["/bin/busybox", "awk", "BEGIN { s = \"x\"; while (1) s = s s }"])
        self.assertEqual((done["oom_killed"], done["killed_by"], done["signal"]), (1, "oom", 9))
        done, _, _ = self.edge.run(small, "kill -9 $$")
        self.assertEqual((done["oom_killed"], done["killed_by"], done["signal"]), (0, "", 9))
        self.assertGreaterEqual(self.edge.get(small)["oom_kills"], 1)


class Restarted(EdgeTest):
    def test_whole_output_of_many_commands(self):
        sb = self.box()
        ids = [self.edge.exec(sb, f"sleep 0.{i}; " + NUMBERED % 2000 + "; sleep 1; " + "exit %d" % i)["id"] for i in range(8)]
        time.sleep(0.4)
        self.restart_edge()
        self.restart_edge()
        whole = numbered(2000)
        for i, eid in enumerate(ids):
            self.assertEqual(self.edge.wait_exec(sb, eid)["exit_code"], i)
            s = self.edge.output(sb, eid)
            self.edge.last(s, R_EXEC)
            self.assertTrue(s.data[1] == whole, f"exec {i}: {len(s.data[1])} of {len(whole)} bytes")

    def test_bounded_output_across_a_restart(self):
        sb = self.box()
        eid = self.edge.exec(sb, "sleep 0.2; " + NUMBERED % 20000, limit=200000)["id"]
        time.sleep(0.5)
        self.restart_edge()
        self.assertEqual(self.edge.wait_exec(sb, eid)["stdout_total"], 2000000)
        s = self.edge.output(sb, eid)
        self.edge.last(s, R_EXEC)
        whole = numbered(20000)
        self.assertTrue(s.data[1] == whole[:100000] + whole[-100000:])

    def test_inline_stdin_goes_on(self):
        sb = self.box()
        data = os.urandom(1 << 20)
        eid = self.edge.exec(sb, "sleep 1; sha256sum", stdin=data)["id"]
        self.restart_edge()
        self.assertEqual(self.edge.wait_exec(sb, eid)["exit_code"], 0)
        s = self.edge.output(sb, eid)
        self.edge.last(s, R_EXEC)
        self.assertEqual(s.data[1].split()[0].decode(), hashlib.sha256(data).hexdigest())


class Full(EdgeTest):
    """Files of the edge cannot grow: RLIMIT_FSIZE stands for a full disk."""

    def setUp(self):
        super().setUp()
        self.sb = self.box()
        self.addCleanup(self.limit, resource.RLIM_INFINITY)

    def limit(self, size):
        pid, = self.platform.pids("edge")
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def test_output_is_counted_and_the_sandbox_lives(self):
        self.limit(1 << 20)
        done, _, err = self.edge.run(self.sb, "head -c 5000000 /dev/zero; echo end >&2; exit 3")
        self.assertEqual((done["exit_code"], done["stdout_total"], done["stdout_truncated"]), (3, 5000000, 1))
        self.assertEqual((err, done["stderr_truncated"]), (b"end\n", 0))
        s = self.edge.output(self.sb, done["id"])
        self.edge.last(s, R_EXEC)
        kept = len(s.data.get(1, b""))
        self.assertLess(kept, 1 << 20)
        self.assertEqual(gaps(s), [(1, kept, 5000000)])
        self.restart_edge()  # the journal had room: the totals are known again
        again = self.edge.get_exec(self.sb, done["id"])
        self.assertEqual((again["stdout_total"], again["stdout_truncated"]), (5000000, 1))

    def test_what_cannot_be_written_down_is_refused(self):
        ex = self.edge.exec(self.sb, "sleep 1; echo late; exit 6")
        self.limit(0)
        self.refused("capacity_exhausted", self.edge.create)
        self.refused("capacity_exhausted", self.edge.run, self.sb, ["true"])
        self.refused("capacity_exhausted", self.edge.set_ttl, self.sb, ttl_ms=5000)
        self.assertEqual(self.edge.wait_exec(self.sb, ex["id"])["exit_code"], 6)  # known, if not written down
        self.limit(resource.RLIM_INFINITY)
        self.assertEqual(self.edge.run(self.sb, "echo on")[1], b"on\n")
        self.restart_edge()  # chronus kept what the journal did not take
        self.assertEqual(self.edge.wait_exec(self.sb, ex["id"])["exit_code"], 6)


class Files(EdgeTest):
    def setUp(self):
        super().setUp()
        self.sb = self.box()

    def test_write_and_read_with_hashes(self):
        data = os.urandom(5 << 20)
        sha = hashlib.sha256(data).digest()
        done = self.edge.write_file(self.sb, "/tmp/f", data, sha256=sha)
        self.assertEqual((get(done, 1), get(done, 3, b"")), (len(data), sha))
        back, back_sha = self.edge.read_file(self.sb, "/tmp/f")
        self.assertTrue(back == data and back_sha == sha)

    def test_a_wrong_hash_leaves_the_old_file(self):
        self.edge.write_file(self.sb, "/tmp/f", b"old")
        self.refused("hash_mismatch", self.edge.write_file, self.sb, "/tmp/f", b"new", sha256=b"\1" * 32)
        self.assertEqual(self.edge.read_file(self.sb, "/tmp/f")[0], b"old")
        self.assertEqual(self.edge.run(self.sb, "ls -a /tmp")[1].split(), [b".", b"..", b"f"])

    def test_an_upload_that_breaks_off_leaves_the_old_file(self):
        self.edge.write_file(self.sb, "/tmp/f", b"old")
        other = EdgeClient(self.platform)
        other.file_call(self.sb, OP_WRITE, "/tmp/f").write(b"x" * 100000)
        time.sleep(0.2)
        other.close()
        wait_until("temporary file gone", 5,
                   lambda: self.edge.run(self.sb, "ls -a /tmp")[1].split() == [b".", b"..", b"f"])
        self.assertEqual(self.edge.read_file(self.sb, "/tmp/f")[0], b"old")

    def test_empty_file(self):
        done = self.edge.write_file(self.sb, "/tmp/empty", b"")
        self.assertEqual(get(done, 3, b""), hashlib.sha256(b"").digest())
        self.assertEqual(self.edge.read_file(self.sb, "/tmp/empty")[0], b"")

    def test_stat_and_list(self):
        self.edge.run(self.sb, "mkdir /tmp/d; cd /tmp/d; for i in $(seq 3000); do : > file-$i; done")
        s = self.edge.file_call(self.sb, OP_STAT, "/tmp/d")
        self.assertEqual(get(decode(self.edge.reply(s, R_STAT)), 2) & 0o170000, 0o040000)
        s = self.edge.file_call(self.sb, OP_LIST, "/tmp/d")
        s.hold_credit = True
        time.sleep(0.5)
        s.release_credit()
        self.edge.last(s, R_FILE_DONE)
        names = {get(decode(e), 1) for m in s.messages for part in m.get(R_ENTRIES, []) for e in decode(part).get(1, [])}
        self.assertEqual(len(names), 3000)
        self.refused("file_not_found", self.edge.read_file, self.sb, "/nope")
        self.refused("bad_field", self.edge.read_file, self.sb, "")

    def test_tar_out_and_in(self):
        self.edge.run(self.sb, "mkdir -p /tmp/a/b; head -c 300000 /dev/urandom > /tmp/a/b/f; ln -s f /tmp/a/b/l")
        out = self.edge.file_call(self.sb, OP_TAR_OUT, "/tmp/a")
        self.edge.last(out, R_FILE_DONE)
        into = self.edge.file_call(self.sb, OP_TAR_IN, "/tmp/c")
        into.write(out.data[1])
        into.close()
        self.edge.reply(into, R_FILE_DONE)
        done, text, _ = self.edge.run(self.sb, "cmp /tmp/a/b/f /tmp/c/b/f && readlink /tmp/c/b/l")
        self.assertEqual((done["exit_code"], text), (0, b"f\n"))

    def test_a_slow_reader_costs_no_memory(self):
        self.edge.run(self.sb, "head -c 20000000 /dev/zero > /tmp/big")
        pid, = self.platform.pids("edge")
        if b"libasan" in leaks.read(f"/proc/{pid}/maps"):
            self.skipTest("AddressSanitizer holds back what is freed")
        s = self.edge.file_call(self.sb, OP_READ, "/tmp/big")
        s.hold_credit = True
        before = rss_kib(pid)
        time.sleep(1)
        self.assertLess(rss_kib(pid) - before, 4096)
        s.release_credit()
        done = decode(self.edge.last(s, R_FILE_DONE, 60))
        self.assertEqual((len(s.data[1]), get(done, 1)), (20000000, 20000000))
        self.assertLess(rss_kib(pid) - before, 12 * 1024)

    def test_a_sandbox_that_ends_ends_its_file_calls(self):
        s = self.edge.file_call(self.sb, OP_WRITE, "/tmp/f")
        s.write(b"part")
        self.edge.delete(self.sb)
        self.refused("sandbox_stopped", self.edge.reply, s, R_FILE_DONE)


def rss_kib(pid):
    for line in leaks.read(f"/proc/{pid}/status").decode().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError("no VmRSS")


if __name__ == "__main__":
    unittest.main()
