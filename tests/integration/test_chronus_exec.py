"""chronus by itself: commands, streams, signals, timeouts, reconnection, hostile
processes. A real sandbox by tests/tools/chronus_host.c; the test is the edge."""
import os
import signal
import time
import unittest

from chronus_client import Host, get
from harness import wait_until


class ChronusTest(unittest.TestCase):
    host_args = {}

    @classmethod
    def setUpClass(cls):
        cls.host = Host(**cls.host_args)

    @classmethod
    def tearDownClass(cls):
        alive = cls.host.alive()
        cls.host.close()
        if not alive:
            raise AssertionError("chronus ended during the tests")

    def setUp(self):
        self.edge = self.host.connect()
        self.edge.hello()
        self.addCleanup(lambda: self.edge.close())

    def ok(self, argv, **kw):
        x = self.edge.run(argv, **kw)
        self.assertIsNotNone(x.result, x.failure)
        self.assertEqual((x.result["signaled"], x.result["exit_code"]), (0, 0), (x.out, x.err))
        return x

    def fails(self, code, argv, **kw):
        x = self.edge.run(argv, **kw)
        self.assertIsNone(x.result, (x.out, x.err))
        self.assertEqual(x.failure[0], code, x.failure)
        return x.failure[1]


class Results(ChronusTest):
    def test_streams_and_code(self):
        x = self.edge.run("echo out; echo err >&2; exit 7")
        self.assertEqual((x.out, x.err, x.result["exit_code"]), (b"out\n", b"err\n", 7))
        self.assertEqual((x.result["out_total"], x.result["err_total"]), (4, 4))

    def test_exit_code_is_the_kernels(self):
        for code in (0, 1, 126, 127, 128, 137, 255):
            self.assertEqual(self.edge.run(f"exit {code}").result["exit_code"], code)

    def test_signal(self):
        x = self.edge.run("kill -SEGV $$")
        self.assertEqual((x.result["signaled"], x.result["signal"]), (1, 11))

    def test_argv_is_bytes(self):
        x = self.ok(["printf", "%s", b"\xff\x01 \n'\"$x", ""])
        self.assertEqual(x.out, b"\xff\x01 \n'\"$x")

    def test_errors_before_exec(self):
        self.fails("command_not_found", ["no-such-program"])
        self.fails("command_not_found", ["/no/such"])
        self.fails("command_not_found", [""])
        self.fails("permission_denied", ["/etc/passwd"])
        self.fails("permission_denied", ["/tmp"])
        self.fails("bad_user", ["true"], user="nobody-here")
        self.fails("bad_user", ["true"], user="65536")
        self.fails("bad_user", ["true"], user="root:nogrp")
        self.fails("bad_cwd", ["true"], cwd="/no/dir")
        self.fails("bad_cwd", ["true"], cwd="/root", user="agent")
        self.fails("bad_argv", [])
        self.fails("bad_argv", ["a\0b"])
        self.ok("printf hello > /tmp/f; chmod +x /tmp/f; printf '#!/no/interp\\n' > /tmp/g; chmod +x /tmp/g")
        self.fails("exec_format", ["/tmp/f"])
        self.assertIn("interpreter", self.fails("command_not_found", ["/tmp/g"]))
        self.fails("bad_field", ["true"], eid="no spaces")

    def test_user(self):
        self.assertEqual(self.ok(["id"], user="agent").out,
                         b"uid=1000(agent) gid=1000(agent) groups=1000(agent),44(video)\n")
        self.assertEqual(self.ok(["id", "-u"], user="4242").out, b"4242\n")
        self.assertEqual(self.ok(["id", "-g"], user="4242").out, b"4242\n")
        self.assertEqual(self.ok("id -u; id -g", user="1000:0").out, b"1000\n0\n")
        self.assertEqual(self.ok("id -u; id -g", user="agent:video").out, b"1000\n44\n")

    def test_environment(self):
        x = self.ok(["env"], env={"A": "1=2", "HOME": "/x", "E": ""}, user="agent")
        got = dict(line.split("=", 1) for line in x.out.decode().splitlines())
        self.assertEqual(got, {"A": "1=2", "E": "", "HOME": "/x", "USER": "agent", "LOGNAME": "agent", "SHELL": "/bin/bash",
                               "LANG": "C.UTF-8", "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"})
        self.fails("command_not_found", ["env"], env={"PATH": "/nowhere"})

    def test_cwd(self):
        self.assertEqual(self.ok(["pwd"], user="agent").out, b"/home/agent\n")
        self.assertEqual(self.ok(["pwd"], user="nobody").out, b"/\n")
        self.assertEqual(self.ok(["pwd"], cwd="/tmp").out, b"/tmp\n")
        self.ok("mkdir -p /root/sub")
        self.assertEqual(self.ok(["pwd"], cwd="sub").out, b"/root/sub\n")

    def test_capabilities_and_filter(self):
        text = self.ok(["cat", "/proc/self/status"]).out.decode()
        status = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
        self.assertEqual(status["CapEff"], "00000000a80425fb")
        self.assertEqual(status["CapBnd"], "00000000a80425fb")
        self.assertEqual(status["CapAmb"], "0000000000000000")
        self.assertEqual((status["Seccomp"], status["NoNewPrivs"]), ("2", "0"))
        text = self.ok(["cat", "/proc/self/status"], user="agent", nnp=True).out.decode()
        self.assertIn("CapEff:\t0000000000000000", text)
        self.assertIn("NoNewPrivs:\t1", text)

    def test_open_descriptors(self):
        self.assertEqual(self.ok(["ls", "/proc/self/fd"]).out, b"0\n1\n2\n3\n")
        self.assertEqual(self.ok(["cat"]).out, b"")

    def test_reopened_streams(self):
        for user in ("root", "agent"):
            x = self.ok("echo a > /dev/stdout; echo b > /dev/stderr", user=user)
            self.assertEqual((x.out, x.err), (b"a\n", b"b\n"))

    def test_counters(self):
        x = self.ok("i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done; sleep 0.2")
        self.assertGreater(x.result["cpu_usec"], 5000)
        self.assertGreaterEqual(x.result["wall_ms"], 200)
        self.assertGreater(x.result["max_rss"], 500000)

    def test_large_start(self):
        big = ["x" * 1000] * 400
        x = self.ok(["/bin/sh", "-c", "echo $#", "sh"] + big)
        self.assertEqual(x.out, b"400\n")
        self.fails("bad_argv", ["/bin/true", "y" * 200000])

    def test_meminfo(self):
        x = self.ok("grep MemTotal /proc/meminfo; free -b | sed -n 's/^Mem: *\\([0-9]*\\).*/\\1/p'; wc -c < /proc/meminfo")
        self.assertEqual(x.out.split()[1:3], [b"262144", b"kB"])
        self.assertEqual(int(x.out.split()[3]), 256 << 20)


class Streams(ChronusTest):
    def test_stdin(self):
        x = self.edge.start("cat1", ["cat"], stdin=True)
        self.assertFalse(get(x.started(), 3))
        x.s.write(b"hello ")
        self.edge.wait(lambda: x.out == b"hello ")
        x.s.write(b"world")
        x.eof()
        x.wait()
        self.assertEqual(x.out, b"hello world")
        self.assertEqual(get(x.report(4), 1), 11)
        self.assertTrue(get(x.report(4), 2))
        x.forget()

    def test_stdin_closed_is_empty(self):
        x = self.edge.start("cat2", ["cat"])
        self.assertTrue(get(x.started(), 3))
        self.assertEqual(x.wait()["exit_code"], 0)
        x.forget()

    def test_stdin_megabytes(self):
        data = os.urandom(1 << 20) * 6
        x = self.edge.start("sum", ["sha256sum"], stdin=True)
        x.started()
        x.s.write(data)
        x.eof()
        x.wait()
        import hashlib
        self.assertEqual(x.out.split()[0].decode(), hashlib.sha256(data).hexdigest())
        x.forget()

    def test_stdin_back_pressure_and_early_close(self):
        x = self.edge.start("slow", "sleep 0.5; exit 0", stdin=True)
        x.started()
        t = time.monotonic()
        x.s.write(b"z" * 400000)  # more than pipe and ring hold: waits for the end
        self.assertGreater(time.monotonic() - t, 0.3)
        self.assertEqual(x.wait()["exit_code"], 0)
        x.forget()
        x = self.edge.start("closer", "exec 0<&-; sleep 0.3", stdin=True)
        self.edge.wait(lambda: x.report(4) and get(x.report(4), 2))
        x.wait()
        x.forget()

    def test_output_blocks_until_acknowledged(self):
        x = self.edge.start("yes", "head -c 2000000 /dev/zero; echo end >&2")
        x.started()
        self.edge.wait(lambda: len(x.out) >= 256 << 10)
        for _ in range(20):
            self.edge.pump(0.02)
        self.assertEqual(len(x.out), 256 << 10)
        self.assertIsNone(x.report(3))
        while x.report(3) is None:
            x.ack()
            self.edge.pump(0.2)
        self.assertEqual((len(x.out), x.err), (2000000, b"end\n"))
        x.forget()

    def test_unacknowledged_output_at_exit_is_not_lost(self):
        """Ring and pipe are full when the program ends: the drain limit waits."""
        x = self.edge.start("tail", "head -c 300000 /dev/zero")
        self.edge.wait(lambda: len(x.out) >= 256 << 10)
        time.sleep(0.5)
        while x.report(3) is None:
            x.ack()
            self.edge.pump(0.2)
        self.assertEqual((len(x.out), x.report(3)[10][0]), (300000, 300000))
        x.forget()

    def test_slow_reader_holds_the_program(self):
        x = self.edge.start("slowr", "head -c 3000000 /dev/zero")
        x.s.hold_credit = True
        end = time.monotonic() + 1
        while time.monotonic() < end:
            self.edge.pump(0.05)
        self.assertLessEqual(len(x.out), 256 << 10)
        self.assertLess(self.host.rss_kib(), 1500)
        x.s.release_credit()
        while x.report(3) is None:
            x.ack()
            self.edge.pump(0.2)
        self.assertEqual(len(x.out), 3000000)
        x.forget()

    def test_many_at_once(self):
        xs = [self.edge.start(f"m{i}", f"echo {i}; echo e{i} >&2; exit {i}") for i in range(40)]
        for i, x in enumerate(xs):
            self.assertEqual(x.wait()["exit_code"], i)
            self.assertEqual((x.out, x.err), (b"%d\n" % i, b"e%d\n" % i))
            x.forget()

    def test_background_keeps_the_pipe(self):
        t = time.monotonic()
        x = self.edge.start("bg", "sleep 30 & echo started; (sleep 0.4; echo late; touch /tmp/late; sleep 30)&")
        r = x.wait()
        self.assertLess(time.monotonic() - t, 3)
        self.assertEqual((x.out, r["background_alive"], r["drain_cut"], r["exit_code"]), (b"started\n", 1, 1, 0))
        # It is not killed by a closed pipe, and whole-tree signals still reach it.
        time.sleep(0.7)
        self.ok(["test", "-e", "/tmp/late"])
        x.signal(9)
        wait_until("the tree to end", 2, lambda: not self.host.leaves())
        x.forget()

    def test_background_without_the_pipe(self):
        x = self.edge.run("sleep 0.5 >/dev/null 2>&1 & exit 4")
        self.assertEqual((x.result["background_alive"], x.result["drain_cut"], x.result["exit_code"]), (1, 0, 4))
        wait_until("the leaf to go", 3, lambda: not self.host.leaves())

    def test_background_flood_does_not_cost_pid_1(self):
        x = self.edge.start("flood", "yes & sleep 0.2", drain_ms=100)
        while x.report(3) is None:
            x.ack()
            self.edge.pump(0.1)
        before = self.host.cpu_ticks()
        time.sleep(1)
        after = self.host.cpu_ticks()
        self.assertLess(after - before, 20)  # ticks of 10 ms
        x.signal(9)
        x.forget()
        wait_until("the leaf to go", 3, lambda: not self.host.leaves())


class Terminals(ChronusTest):
    def test_pty(self):
        x = self.edge.start("pty", "tty; stty size; id -un; test -t 0 && test -t 1 && test -t 2 && echo all; ps -o tty= -p $$",
                            pty=True, rows=33, cols=101, user="agent")
        r = x.wait()
        self.assertEqual(x.out, b"/dev/pts/0\r\n33 101\r\nagent\r\nall\r\npts/0\r\n")
        self.assertEqual((r["exit_code"], r["err_total"]), (0, 0))
        x.forget()

    def test_resize_and_interrupt(self):
        x = self.edge.start("rs", "trap 'stty size' WINCH; trap 'echo int; exit 5' INT; echo ready; while :; do sleep 0.05; done",
                            pty=True, rows=10, cols=20)
        self.edge.wait(lambda: b"ready" in x.out)
        x.resize(44, 55)
        self.edge.wait(lambda: b"44 55" in x.out)
        x.s.write(b"\x03")
        self.assertEqual(x.wait()["exit_code"], 5)
        x.forget()

    def test_eof_at_line_start_and_within(self):
        for text in (b"line\n", b"line\npart"):
            x = self.edge.start("eof%d" % len(text), "stty -echo; cat; echo done", pty=True)
            x.started()
            time.sleep(0.2)
            x.s.write(text)
            x.eof()
            self.assertEqual(x.wait()["exit_code"], 0)
            self.assertTrue(x.out.endswith(b"done\r\n"))
            self.assertIn(text.replace(b"\n", b"\r\n"), x.out)
            x.forget()

    def test_terminal_belongs_to_the_user(self):
        x = self.ok("stat -c %U $(tty); echo x > $(tty)", pty=True, user="agent")
        self.assertIn(b"agent", x.out)

    def test_hangup_when_killed(self):
        x = self.edge.start("hup", "sleep 60", pty=True)
        x.started()
        x.signal(9)
        self.assertEqual(x.wait()["signal"], 9)
        x.forget()


class Signals(ChronusTest):
    def test_term_whole_tree(self):
        x = self.edge.start("tree", "sleep 60 & setsid sleep 61 & sleep 62")
        x.started()
        time.sleep(0.2)
        x.signal(15, tree=True, user=True)
        r = x.wait()
        self.assertEqual((r["signal"], r["user_killed"], r["background_alive"]), (15, 1, 0))
        x.forget()
        wait_until("the leaf to go", 2, lambda: not self.host.leaves())

    def test_main_only(self):
        x = self.edge.start("mainonly", "trap 'echo usr; exit 9' USR1; while :; do sleep 0.05; done")
        x.started()
        time.sleep(0.2)
        x.signal(10, tree=False)
        r = x.wait()
        self.assertEqual((r["exit_code"], r["user_killed"], x.out), (9, 0, b"usr\n"))
        x.forget()

    def test_timeout_kills_everything(self):
        t = time.monotonic()
        x = self.edge.run("trap '' TERM; (setsid sleep 60 &) ; sleep 60 & wait; sleep 60", timeout_ms=300)
        self.assertLess(time.monotonic() - t, 2)
        self.assertEqual((x.result["timed_out"], x.result["signal"], x.result["background_alive"]), (1, 9, 0))
        wait_until("the leaf to go", 1, lambda: not self.host.leaves())

    def test_timeout_grace(self):
        x = self.edge.run("trap 'echo bye; exit 3' TERM; while :; do sleep 0.05; done", timeout_ms=300, grace_ms=2000)
        self.assertEqual((x.result["timed_out"], x.result["exit_code"], x.out), (1, 3, b"bye\n"))
        t = time.monotonic()
        x = self.edge.run("trap '' TERM; while :; do sleep 0.05; done", timeout_ms=200, grace_ms=300)
        self.assertLess(time.monotonic() - t, 2)
        self.assertEqual((x.result["timed_out"], x.result["signal"]), (1, 9))
        # A child that ignores TERM goes with the main process, not after the grace.
        t = time.monotonic()
        x = self.edge.run("(trap '' TERM; sleep 50) & trap 'exit 0' TERM; while :; do sleep 0.05; done",
                          timeout_ms=200, grace_ms=20000)
        self.assertLess(time.monotonic() - t, 3)
        self.assertEqual(x.result["background_alive"], 0)

    def test_timeout_reaches_stopped_processes(self):
        x = self.edge.run("kill -STOP $$", timeout_ms=300)
        self.assertEqual((x.result["timed_out"], x.result["signal"]), (1, 9))

    def test_fork_bomb_is_killed(self):
        x = self.edge.run("f() { f & f & sleep 0.01; }; ulimit -u 200; f; sleep 20", user="agent", timeout_ms=700)
        self.assertEqual(x.result["timed_out"], 1)
        wait_until("the leaf to go", 3, lambda: not self.host.leaves())

    def test_orphans_are_reaped(self):
        self.ok("for i in 1 2 3 4 5 6; do (sleep 0.1 &) ; done; sleep 0.4")
        self.assertNotIn(b"Z", self.ok("ps -eo stat=").out)


class Reconnect(ChronusTest):
    def again(self):
        self.edge.close()
        self.edge = self.host.connect()
        return self.edge.hello()

    def test_attach_resends_from_the_offset(self):
        x = self.edge.start("re1", "echo one; sleep 0.6; echo two; exit 6")
        self.edge.wait(lambda: x.out == b"one\n")
        x.ack(out=2)
        hello = self.again()
        self.assertEqual(hello.execs, {"re1": True})
        x = self.edge.attach("re1", out=2)
        r = x.wait()
        self.assertEqual((x.out, r["exit_code"], r["out_total"]), (b"e\ntwo\n", 6, 8))
        self.assertEqual(get(x.report(1), 5), 2)
        # The result stays until it is forgotten, for any number of readers.
        hello = self.again()
        self.assertEqual(hello.execs, {"re1": False})
        x = self.edge.attach("re1", out=0)  # acknowledged bytes are gone: starts at 2
        r = x.wait()
        self.assertEqual((x.out, get(x.report(1), 5), r["exit_code"]), (b"e\ntwo\n", 2, 6))
        x.forget()
        self.assertEqual(self.again().execs, {})
        x = self.edge.attach("re1")
        x.wait()
        self.assertEqual(x.failure[0], "exec_not_found")

    def test_starting_a_known_id_attaches(self):
        x = self.edge.start("re2", "echo $$; sleep 0.5")
        pid = get(x.started(), 1)
        self.edge.wait(lambda: x.out)
        y = self.edge.start("re2", "echo other")
        self.edge.wait(lambda: x.s.reset)
        self.assertEqual(get(y.started(), 1), pid)
        y.wait()
        self.assertEqual(y.out, x.out)
        y.forget()

    def test_output_while_nobody_listens(self):
        self.edge.start("re3", "head -c 1000000 /dev/zero | tr '\\0' x; echo E >&2").started()
        self.again()
        time.sleep(0.5)
        x = self.edge.attach("re3")
        while x.report(3) is None:
            x.ack()
            self.edge.pump(0.2)
        self.assertEqual((x.out, x.err), (b"x" * 1000000, b"E\n"))
        x.forget()

    def test_stdin_resumes_where_the_program_is(self):
        x = self.edge.start("re4", "head -c 5; sleep 1.2; cat", stdin=True)
        x.started()
        x.s.write(b"hello")
        self.edge.wait(lambda: x.out == b"hello")
        x.s.write(b"q" * 100000)
        self.again()
        x = self.edge.attach("re4", out=5)
        offset = get(x.started(), 2)
        self.assertGreaterEqual(offset, 5)
        self.assertLess(offset, 100005)
        x.s.write(b"q" * (100005 - offset))
        x.eof()
        while x.report(3) is None:
            x.ack(out=5 + len(x.out))
            self.edge.pump(0.2)
        self.assertEqual(x.out, b"q" * 100000)
        x.forget()

    def test_a_new_connection_replaces_the_old(self):
        old = self.edge
        self.addCleanup(old.close)
        self.edge = self.host.connect()
        self.edge.hello()
        with self.assertRaises(ConnectionError):
            for _ in range(100):
                old.pump(0.1)
        self.ok(["true"])

    def test_garbage_from_a_client(self):
        import socket
        s = socket.socket(socket.AF_UNIX)
        s.connect(self.host.path)
        s.sendall(b"GET / HTTP/1.0\r\n\r\n")
        s.settimeout(5)
        while s.recv(4096):
            pass
        s.close()
        self.edge = self.host.connect()
        bad = self.edge.open(b"\xff\xff\xff\xff")
        self.edge.wait(lambda: bad.reset)
        self.ok(["true"])


class Hostile(ChronusTest):
    """Root inside against PID 1 and against the next command."""

    def test_pid_1_is_out_of_reach(self):
        for attack in ("kill -9 1", "kill -STOP 1", "cat /proc/1/environ", "ls -l /proc/1/fd/", "cat /proc/1/maps",
                       "dd if=/proc/1/mem of=/dev/null bs=1 count=1", "readlink /proc/1/root", "renice 19 -p 1",
                       "echo 1 > /proc/1/oom_score_adj", "python3 -c 'import os; os.pidfd_open(1); import signal; "
                       "signal.pidfd_send_signal(os.pidfd_open(1), 9)'"):
            with self.subTest(attack):
                self.assertNotEqual(self.edge.run(attack).result["exit_code"], 0)
        self.edge.run("kill -9 -1")
        self.ok(["true"])

    def test_stop_storm_ends_in_a_typed_error(self):
        """Stopped before exec: exec_blocked. Stopped after: it runs, until its timeout.
        Which of them happens is the scheduler's choice, so many are tried."""
        storm = self.edge.start("storm", ["python3", "-c", "import os\nprint('go',flush=True)\n"
                                          "while True:\n  try: os.kill(-1, 19)\n  except OSError: pass\n"])
        self.addCleanup(storm.signal, 9)
        self.edge.wait(lambda: storm.out)
        victims, end = [], time.monotonic() + 20
        while not any(v.failure for v in victims) and time.monotonic() < end:
            some = [self.edge.start(f"v{len(victims) + i}", ["/bin/sh", "-c", "true"], timeout_ms=6000, user="agent") for i in range(30)]
            victims += some
            for v in some:
                v.wait(30)
        self.assertEqual({v.failure[0] for v in victims if v.failure}, {"exec_blocked"})
        for v in victims:
            v.forget()
        storm.signal(9)
        storm.wait()
        storm.forget()
        self.ok(["true"])
        wait_until("the leaves to go", 3, lambda: not self.host.leaves())

    def test_passwd_is_a_fifo_or_a_device_or_huge(self):
        self.ok("cp /etc/passwd /tmp/pw")
        for how in ("mkfifo /etc/passwd", "ln -s /dev/zero /etc/passwd", "ln -s /proc/self/mem /etc/passwd", "mkdir /etc/passwd",
                    "head -c 30000000 /dev/zero > /etc/passwd", "ln -s passwd /etc/passwd"):
            with self.subTest(how):
                self.ok(f"rm -rf /etc/passwd; {how}")
                self.assertEqual(self.ok(["id", "-u"]).out, b"0\n")
                self.fails("bad_user", ["true"], user="agent")
        self.ok("rm -rf /etc/passwd; cp /tmp/pw /etc/passwd")
        self.ok(["true"], user="agent")

    def test_dev_null_replaced(self):
        # /dev is a tmpfs of its own here and writable for nobody inside
        self.assertNotEqual(self.edge.run("rm /dev/null").result["exit_code"], 0)

    def test_unlinked_cwd_and_odd_environment(self):
        self.ok("mkdir -p /tmp/gone")
        x = self.edge.start("gone", "cd /tmp/gone; rmdir /tmp/gone; sleep 0.3; echo fine")
        self.assertEqual(x.wait()["exit_code"], 0)
        x.forget()
        self.ok(["env"], env={f"V{i}": "x" * 100 for i in range(900)})

    def test_namespaces_and_mounts_are_refused(self):
        for attack in ("unshare -U true", "unshare -m true", "unshare -n true", "mount -t tmpfs x /tmp", "umount /proc",
                       "unshare -T true", "nsenter -t $$ -m true", "chroot / mount -t proc p /proc"):
            with self.subTest(attack):
                self.assertNotEqual(self.edge.run(attack).result["exit_code"], 0)

    def test_syscalls(self):
        calls = {"keyctl": (250, 1), "add_key": (248, 1), "bpf": (321, 1), "perf_event_open": (298, 1), "userfaultfd": (323, 1),
                 "io_uring_setup": (425, 1), "open_by_handle_at": (304, 1), "kexec_load": (246, 1), "init_module": (175, 1),
                 "finit_module": (313, 1), "swapon": (167, 1), "reboot": (169, 1), "settimeofday": (164, 1), "clock_settime": (227, 1),
                 "clone3": (435, 38), "new": (480, 38), "x32 getpid": (0x40000000 + 39, 38), "setns": (308, 1), "fsopen": (430, 1)}
        code = ("import ctypes,sys\nl=ctypes.CDLL(None,use_errno=True)\n"
                "for nr in map(int,sys.argv[1:]):\n  ctypes.set_errno(0); l.syscall(nr,-1,-1,-1,-1,-1); print(ctypes.get_errno())\n"
                "import fcntl,pty,os\nm,s=pty.openpty()\n"
                "for c in (0x5412,0x541c,0xc0c0586d):\n"
                "  try: fcntl.ioctl(s,c,b'x'*200)\n  except OSError as e: print(e.errno)\n"
                "import socket\n"
                "for f in (38,40):\n"
                "  try: socket.socket(f,socket.SOCK_SEQPACKET)\n  except OSError as e: print(e.errno)\n")
        x = self.ok(["python3", "-c", code] + [str(nr) for nr, _ in calls.values()])
        got = [int(v) for v in x.out.split()]
        self.assertEqual(dict(zip(calls, got)), {k: e for k, (_, e) in calls.items()})
        self.assertEqual(got[len(calls):], [1, 1, 1, 97, 97])

    def test_children_of_pid_1_cannot_be_traced_before_exec(self):
        code = ("import os,ctypes\nl=ctypes.CDLL(None,use_errno=True)\n"
                "print(l.ptrace(16, 1, 0, 0), ctypes.get_errno())\n")
        self.assertIn(b"-1 1", self.ok(["python3", "-c", code]).out)

    def test_too_many_execs(self):
        xs = [self.edge.start(f"t{i}".ljust(64, "x"), ["true"]) for i in range(774)]
        for x in xs:
            x.wait(60)
        refused = [x for x in xs if x.failure]
        self.assertEqual(len(refused), 6)
        self.assertEqual(refused[0].failure[0], "capacity_exhausted")
        self.assertEqual(len(self.edge.hello().execs), 768)  # with the longest ids they fit one reply
        for x in xs:
            x.forget()
        self.assertEqual(self.ok(["echo", "x"]).out, b"x\n")


class DiskView(ChronusTest):
    host_args = {"disk": 100 << 20}

    def setUp(self):
        super().setUp()
        self.edge.disk_limit, self.edge.disk_used = 100 << 20, 60 << 20

    def df(self, *args, **kw):
        x = self.ok(["df", "-B1", "--output=size,used,avail", *args], **kw)
        return [tuple(map(int, line.split())) for line in x.out.decode().splitlines()[1:]]

    def test_df(self):
        self.assertEqual(self.df("/"), [(100 << 20, 60 << 20, 40 << 20)])
        self.assertEqual(self.df("/", "/root", "/usr/.."), [(100 << 20, 60 << 20, 40 << 20)] * 3)
        self.assertEqual(self.df(".", user="agent"), [(100 << 20, 60 << 20, 40 << 20)])
        self.assertNotEqual(self.df("/usr")[0][0], 100 << 20)  # another filesystem
        self.assertNotEqual(self.df("/dev/shm")[0][0], 100 << 20)
        self.assertEqual(self.edge.run("df /nothing").result["exit_code"], 1)

    def test_descriptors_threads_and_children(self):
        code = ("import os,threading,subprocess\n"
                "f=open('/tmp/x','w')\n"
                "def t(): print(os.fstatvfs(f.fileno()).f_blocks, os.statvfs('/tmp').f_blocks, flush=True)\n"
                "for i in range(8):\n  h=threading.Thread(target=t); h.start(); h.join()\n"
                "os.chdir('/tmp'); print(os.statvfs('.').f_blocks, flush=True)\n"
                "subprocess.run(['stat','-f','-c','%b','.'])\n"
                "print(os.fstatvfs(0).f_blocks)\n"
                "for bad in (99,):\n  try: os.fstatvfs(bad)\n  except OSError as e: print(e.errno)\n")
        x = self.ok(["python3", "-c", code], user="agent")
        self.assertEqual(x.out.split()[:18], [b"25600"] * 18)
        self.assertEqual(x.out.split()[19], b"9")

    def test_permissions_are_the_callers(self):
        self.ok("mkdir -p /root/p; chmod 700 /root")
        x = self.edge.run(["python3", "-c", "import os\nos.statvfs('/root/p')"], user="agent")
        self.assertIn(b"PermissionError", x.err)

    def test_bad_pointers(self):
        code = ("import ctypes\nl=ctypes.CDLL(None,use_errno=True)\n"
                "print(l.syscall(137, 0, 0), ctypes.get_errno(), l.syscall(137, b'/', 0), ctypes.get_errno(), "
                "l.syscall(137, b'/', ctypes.c_void_p(0x7fff00000000)), ctypes.get_errno())")
        self.assertEqual(self.ok(["python3", "-c", code]).out, b"-1 14 -1 14 -1 14\n")

    def test_many_callers_at_once(self):
        code = ("import os,threading\nn=[]\n"
                "def t():\n  for i in range(50):\n    n.append(os.statvfs('/').f_blocks == 25600)\n"
                "ts=[threading.Thread(target=t) for _ in range(20)]\n[h.start() for h in ts]\n[h.join() for h in ts]\nprint(sum(n))")
        xs = [self.edge.start(f"many{i}", ["python3", "-c", code]) for i in range(3)]
        for x in xs:
            x.wait(60)
            self.assertEqual(x.out, b"1000\n")
            x.forget()
        self.assertLess(self.edge.usage_asked, 30)  # kept for a second

    def test_an_edge_that_does_not_answer(self):
        self.df("/")
        self.edge.disk_used = None
        time.sleep(1.1)
        t = time.monotonic()
        self.assertEqual(self.df("/"), [(100 << 20, 60 << 20, 40 << 20)])
        self.assertLess(time.monotonic() - t, 1.5)
        # and one that is away
        x = self.edge.start("away", "sleep 1.3; df -B1 --output=used / | tail -1", timeout_ms=10000)
        x.started()
        self.edge.close()
        time.sleep(1.8)
        self.edge = self.host.connect()
        self.edge.hello()
        x = self.edge.attach("away")
        x.wait()
        self.assertEqual(x.out.split(), [b"%d" % (60 << 20)])
        x.forget()

    def test_stopped_or_killed_helper_only_costs_a_moment(self):
        stop = "for p in $(ps -eo pid,comm | sed -n 's/ chronus$//p'); do kill -%s $p 2>/dev/null; done; "
        for sig in ("STOP", "KILL"):
            with self.subTest(sig):
                self.df("/")
                t = time.monotonic()
                x = self.ok(stop % sig + "stat -f -c %b /; sleep 0.1; stat -f -c %b /")
                self.assertLess(time.monotonic() - t, 4)
                self.assertEqual(x.out.split()[-1], b"25600")
        self.ok(["true"])

    def test_killed_caller(self):
        for i in range(5):
            x = self.edge.start(f"kc{i}", ["python3", "-c", "import os\nwhile True: os.statvfs('/')"], timeout_ms=200)
            self.assertEqual(x.wait()["timed_out"], 1)
            x.forget()
        self.assertEqual(len(self.df("/")), 1)
        wait_until("the leaves to go", 3, lambda: not self.host.leaves())


class Affinity(ChronusTest):
    host_args = {"cpus": 1}

    def test_nproc(self):
        self.assertEqual(self.ok(["nproc"]).out, b"1\n")


if __name__ == "__main__":
    unittest.main()
