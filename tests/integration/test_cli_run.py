"""The command `dsec`: run, create, exec, ps, inspect, logs, rm: output, exit statuses, errors, signals, terminals."""
import base64
import json
import os
import pty
import pty
import select
import signal
import subprocess
import time
import unittest

from harness import PlatformTest, find_program, wait_until


class CliTest(PlatformTest):
    def environ(self):
        env = {k: v for k, v in os.environ.items() if not k.startswith("DSEC_")}
        return {**env, "DSEC_STATE_DIR": str(self.platform.state)}

    def dsec(self, *words, stdin=b"", timeout=60, **extra):
        return subprocess.run([find_program("dsec"), *words], input=stdin, capture_output=True, timeout=timeout,
                              env={**self.environ(), **extra})

    def good(self, *words, **more):
        done = self.dsec(*words, **more)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        return done.stdout.decode()

    def live(self):
        return [s["id"] for s in self.client.list()]


class Run(CliTest):
    def test_output_and_exit_status_pass_through(self):
        done = self.dsec("run", "--env", "busybox", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (7, b"out\n", b"err\n"))
        self.assertEqual(self.live(), [])

    def test_signal_is_128_plus_n_and_said(self):
        done = self.dsec("run", "--env", "busybox", "--", "sh", "-c", "kill -9 $$")
        self.assertEqual(done.returncode, 137)
        self.assertIn(b"signal KILL", done.stderr)

    def test_timeout_is_said(self):
        done = self.dsec("run", "--env", "busybox", "--timeout", "1", "--", "sleep", "60")
        self.assertEqual(done.returncode, 137)
        self.assertIn(b"time limit", done.stderr)

    def test_what_cannot_run_is_125_with_its_code(self):
        for words, code in [(["--env", "nosuch", "--", "true"], b"environment_not_found"),
                            (["--env", "busybox", "--", "/no/such"], b"command_not_found"),
                            (["--env", "busybox", "-u", "nobody-here", "--", "true"], b"bad_user"),
                            (["--env", "busybox", "-w", "/no/such", "--", "true"], b"bad_cwd")]:
            done = self.dsec("run", *words)
            self.assertEqual(done.returncode, 125, words)
            self.assertTrue(done.stderr.startswith(b"dsec: " + code + b": "), done.stderr)
        self.assertEqual(self.live(), [])

    def test_wrong_usage_is_2(self):
        for words in (["run", "--", "true"], ["run", "--env", "busybox"], ["run", "--env", "busybox", "--cpu", "x", "--", "true"],
                      ["nosuch"], [], ["exec"], ["exec", "sb-x"], ["rm"], ["cp", "a"], ["cp", "a", "b"], ["ps", "extra"],
                      ["create"], ["run", "--nosuch"], ["layer"], ["layer", "nosuch"], ["run", "--env", "b", "-e", "=x", "--", "t"]):
            self.assertEqual(self.dsec(*words).returncode, 2, words)

    def test_every_verb_has_help(self):
        for verb in ("up", "down", "doctor", "run", "create", "exec", "ps", "inspect", "logs", "cp", "rm", "version",
                     "layer ls", "layer build", "layer import", "layer inspect", "layer rm"):
            text = self.good(*verb.split(), "--help")
            self.assertTrue(text.startswith("usage: dsec " + verb), text)

    def test_json_result(self):
        done = self.dsec("run", "--json", "--env", "busybox", "-e", "X=y z", "--", "sh", "-c", "printf \"$X\\0\"; exit 3")
        self.assertEqual(done.returncode, 3)
        result = json.loads(done.stdout)
        self.assertEqual(base64.b64decode(result["stdout_b64"]), b"y z\0")
        self.assertEqual(result["exec"]["exit_code"], 3)

    def test_a_failed_build_names_the_cause(self):
        bin = self.platform.state / "fake-bin"  # mmdebstrap's words for a package that there is not
        bin.mkdir()
        tool = bin / "mmdebstrap"
        tool.write_text("#!/bin/sh\nexec >&2; echo 'I: running'\necho 'E: Unable to locate package nosuch'\n"
                        "echo \"E: setup failed: E: apt-get $(seq -s , 300) failed\"\nseq -f 'I: removing %g' 60\n"
                        "echo 'E: mmdebstrap failed to run'; exit 25\n")
        tool.chmod(0o755)
        done = self.dsec("layer", "build", "--debian", "bookworm", "x", PATH=f"{bin}:{os.environ['PATH']}")
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"\nE: Unable to locate package nosuch\nE: setup failed", done.stderr)
        self.assertNotIn(b"removing", done.stderr)
        tool.write_text("#!/bin/sh\necho 'I: unpacking' >&2; sleep 2; echo 'it broke' >&2; exit 1\n")
        ours, theirs = pty.openpty()  # a terminal looks: it sees that something goes on while no byte comes
        with subprocess.Popen([find_program("dsec"), "layer", "build", "--debian", "bookworm", "x"], stderr=theirs,
                              env={**self.environ(), "PATH": f"{bin}:{os.environ['PATH']}"}) as build:
            build.wait(30)
        os.close(theirs)
        seen = os.read(ours, 65536)
        os.close(ours)
        self.assertRegex(seen, rb"x@1: 0 B, 1 s, unpacking")
        self.assertIn(b"it broke", seen)

    def test_limits_and_labels_arrive(self):
        sb = self.good("create", "--env", "busybox@1", "--cpu", "0.5", "--memory", "128m", "--disk", "1g", "--pids", "50",
                       "--ttl", "10m", "--label", "a=b", "-u", "user", "--hostname", "box").strip()
        self.addCleanup(self.client.delete, sb)
        got = self.client.get(sb)
        self.assertEqual((got["cpu"], got["memory_mb"], got["disk_mb"], got["pids"], got["labels"], got["hostname"]),
                         (0.5, 128, 1024, 50, {"a": "b"}, "box"))
        self.assertAlmostEqual(got["end_at"] - got["created_at"], 600, delta=5)
        self.assertEqual(self.good("exec", sb, "--", "id", "-un"), "user\n")
        self.assertEqual(self.good("ps", "-q", "--label", "a=b"), sb + "\n")
        self.assertEqual(self.good("ps", "-q", "--label", "a=c"), "")
        more = [self.good("create", "--env", "busybox").strip() for _ in range(4)]
        self.assertEqual(self.good("ps", "-q").split(), [sb, *more])  # by age
        self.good("rm", *more)
        shown = self.good("inspect", sb)
        self.assertEqual(json.loads(shown)["id"], sb)
        self.assertRegex(shown, r'"created_at": \d+(\.\d{1,3})?,')  # as the server said it, not its last binary digit
        self.assertEqual(json.loads(self.good("ps", "--json"))["sandboxes"][0]["id"], sb)
        self.assertEqual(self.good("rm", "--label", "a=b"), sb + "\n")
        self.assertEqual(self.live(), [])

    def test_interrupt_stops_and_removes(self):
        run = subprocess.Popen([find_program("dsec"), "run", "--env", "busybox", "--", "sh", "-c", "echo up; sleep 60"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.environ())
        self.assertEqual(run.stdout.readline(), b"up\n")
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=20)
        self.assertEqual(run.returncode, 130)
        self.assertEqual(self.live(), [])

    def test_keep(self):
        done = self.dsec("run", "--keep", "--env", "busybox", "--", "true")
        sb = done.stderr.decode().split()[-1]
        self.assertEqual(self.live(), [sb])
        self.assertEqual(self.good("rm", "--all"), sb + "\n")

    def test_wrong_key_and_no_server(self):
        url = f"http://127.0.0.1:{self.platform.port}"
        done = self.dsec("ps", DSEC_URL=url, DSEC_API_KEY="dsk-wrong")
        self.assertEqual(done.returncode, 1)
        self.assertTrue(done.stderr.startswith(b"dsec: unauthenticated: "), done.stderr)
        self.assertIn(b"set DSEC_API_KEY", done.stderr)
        done = self.dsec("ps", DSEC_API_KEY="dsk-wrong")  # the address is still this machine's
        self.assertTrue(done.stderr.startswith(b"dsec: unauthenticated: "), done.stderr)
        done = self.dsec("run", "--env", "nosuch", "--", "true")
        self.assertIn(b"`dsec layer ls`", done.stderr)
        done = self.dsec("ps", "--json", DSEC_URL="http://127.0.0.1:9", DSEC_API_KEY="x")
        self.assertEqual(json.loads(done.stderr)["error"]["code"], "connection_failed")
        done = self.dsec("ps", DSEC_STATE_DIR="/nonexistent")
        self.assertTrue(done.stderr.startswith(b"dsec: not_configured: "), done.stderr)


class Exec(CliTest):
    def test_stdin_is_streamed_whole(self):
        sb = self.sandbox()
        data = os.urandom(3 << 20)
        done = self.dsec("exec", sb, "-i", "--", "cat", stdin=data)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(done.stdout == data)

    def test_stdin_is_closed_without_i(self):
        sb = self.sandbox()
        self.assertEqual(self.dsec("exec", sb, "--", "cat", stdin=b"x").stdout, b"")

    def test_program_that_reads_nothing_ends_the_session(self):
        sb = self.sandbox()
        done = self.dsec("exec", sb, "-i", "--", "true", stdin=os.urandom(4 << 20), timeout=20)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_interrupt_is_passed_on(self):
        sb = self.sandbox()
        run = subprocess.Popen([find_program("dsec"), "exec", sb, "--", "sh", "-c",
                                "trap 'echo got; exit 5' INT; echo up; while :; do sleep 0.1; done"],
                               stdout=subprocess.PIPE, env=self.environ())
        self.assertEqual(run.stdout.readline(), b"up\n")
        run.send_signal(signal.SIGINT)
        out, _ = run.communicate(timeout=20)
        self.assertEqual((run.returncode, out), (5, b"got\n"))

    def test_reader_that_goes_away(self):
        sb = self.sandbox()
        done = subprocess.run(["sh", "-c", '"$0" exec "$1" -- yes | head -n 1', find_program("dsec"), sb],
                              capture_output=True, timeout=30, env=self.environ())
        self.assertEqual(done.stdout, b"y\n")
        wait_until("yes to end", 10, lambda: self.client.get(sb)["execs_running"] == 0)

    def test_terminal(self):
        sb = self.sandbox()
        pid, fd = pty.fork()
        if pid == 0:
            os.environ.update(self.environ())
            os.execv(find_program("dsec"), ["dsec", "exec", "-it", sb, "--", "sh"])
        out = b""

        def until(want):
            nonlocal out
            deadline = time.monotonic() + 15
            while want not in out:
                self.assertLess(time.monotonic(), deadline, out)
                if select.select([fd], [], [], 0.2)[0]:
                    out += os.read(fd, 4096)

        import fcntl
        import struct
        import termios
        until(b"#")
        os.write(fd, b"tty; echo a$((1+1))b\n")
        until(b"a2b")
        fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 77, 0, 0))
        time.sleep(0.5)
        os.write(fd, b"stty size\n")
        until(b"33 77")
        os.write(fd, b"exit 9\n")
        _, status = os.waitpid(pid, 0)
        os.close(fd)
        self.assertEqual(os.waitstatus_to_exitcode(status), 9)

    def test_logs(self):
        sb = self.sandbox()
        self.client.run(sb, "echo one; echo two >&2")
        done = self.dsec("logs", sb)
        self.assertEqual((done.stdout, done.stderr), (b"one\n", b"two\n"))
        started = self.client.start(sb, "echo a; sleep 1; echo b")
        self.assertEqual(self.good("logs", "-f", sb, started["id"]), "a\nb\n")
        lines = [json.loads(x) for x in self.good("logs", "--json", sb, started["id"]).splitlines()]
        self.assertEqual(lines[-1]["event"], "exit")
        self.assertEqual(b"".join(base64.b64decode(x["b64"]) for x in lines if x.get("stream") == "stdout"), b"a\nb\n")


if __name__ == "__main__":
    unittest.main()
