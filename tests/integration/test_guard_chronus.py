"""Root inside a sandbox against chronus, its PID 1: it can neither kill, stop,
trace, read nor impersonate it, finds no socket of ours, and cannot hang it."""
import time
import unittest

from debian import DebianTest
from harness import ApiError, wait_until

# Each line is tried as root inside; none may succeed against PID 1.
ATTACKS = {
    "kill": "kill -9 1",
    "stop": "kill -STOP 1",
    "all": "kill -9 -1; true",
    "environ": "cat /proc/1/environ",
    "mem": "dd if=/proc/1/mem of=/dev/null bs=1 count=1",
    "maps": "cat /proc/1/maps",
    "fd": "ls /proc/1/fd",
    "exe": "cat /proc/1/exe",
    "root": "ls /proc/1/root/",
    "cwd": "ls /proc/1/cwd/",
    "oom": "echo 1000 > /proc/1/oom_score_adj",
    "renice": "renice 19 -p 1",
    "nsenter": "nsenter -t 1 -m true",
}


class RootInside(DebianTest):
    def setUp(self):
        self.sb = self.sandbox(memory_mb=256, pids=64)

    def assert_alive(self):
        r = self.client.run(self.sb, ["echo", "alive"], timeout_seconds=20)
        self.assertEqual((r["exit_code"], r["stdout"]), (0, b"alive\n"))

    def test_attacks_on_pid_1_fail(self):
        for name, command in ATTACKS.items():
            with self.subTest(name):
                r = self.client.run(self.sb, command, timeout_seconds=20)
                if name != "all":
                    self.assertNotEqual(r["exit_code"], 0, f"{name}: {r}")
                self.assert_alive()

    def test_attacks_work_on_an_own_process(self):
        """The same commands against a process of the sandbox succeed, so that the
        failures above are the guard's and not the tools'."""
        r = self.client.run(self.sb, "sleep 100 & p=$!; ls /proc/$p/fd && cat /proc/$p/maps >/dev/null && "
                                   "echo 500 > /proc/$p/oom_score_adj && kill -9 $p", timeout_seconds=20)
        self.assertEqual(r["exit_code"], 0, r["stderr"])

    def test_trace_and_pidfd(self):
        script = r"""
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
bad = []
if libc.ptrace(16, 1, 0, 0) == 0: bad.append("ptrace attach")
if libc.ptrace(0x4206, 1, 0, 0) == 0: bad.append("ptrace seize")
fd = libc.syscall(434, 1, 0)
if fd >= 0:
    for n in range(64):
        if libc.syscall(438, fd, n, 0) >= 0: bad.append("pidfd_getfd %d" % n)
    if libc.syscall(424, fd, 9, 0, 0) == 0: bad.append("pidfd_send_signal")
class iovec(ctypes.Structure): _fields_ = [("b", ctypes.c_void_p), ("n", ctypes.c_size_t)]
buf = ctypes.create_string_buffer(8)
l = iovec(ctypes.cast(buf, ctypes.c_void_p), 8); r = iovec(0x400000, 8)
if libc.process_vm_readv(1, ctypes.byref(l), 1, ctypes.byref(r), 1, 0) >= 0: bad.append("vm_readv")
print(bad)
sys.exit(len(bad))
"""
        r = self.client.run(self.sb, ["python3", "-c", script], timeout_seconds=20)
        self.assertEqual((r["exit_code"], r["stdout"]), (0, b"[]\n"), r["stderr"])
        self.assert_alive()

    def test_no_socket_of_ours_inside(self):
        r = self.client.run(self.sb, "cat /proc/net/unix | tail -n +2; find / -xdev -type s; "
                                   "tail -n +2 /proc/net/tcp; tail -n +2 /proc/net/tcp6")
        self.assertEqual((r["exit_code"], r["stdout"]), (0, b""), "pathname, abstract or TCP sockets are visible inside")

    def test_no_name_of_the_host_inside(self):
        r = self.client.run(self.sb, "cat /proc/self/mountinfo /proc/self/cgroup; env; ls -la / /dev /run /tmp")
        for word in (str(self.platform.state).encode(), b"mounter", b"spawner"):
            self.assertNotIn(word, r["stdout"])

    def test_stop_storm_cannot_hang_it(self):
        """kill(-1, SIGSTOP) in a loop stops execs before they run (FACTS.md, vfork):
        the pre-exec deadline ends them with a typed error, and chronus lives."""
        storm = self.client.start(self.sb, ["python3", "-c",
                                          "import os,signal,time\n"
                                          "end=time.time()+8\n"
                                          "while time.time()<end:\n"
                                          "  try: os.kill(-1, signal.SIGSTOP)\n"
                                          "  except OSError: pass\n"])
        for _ in range(3):
            try:
                r = self.client.run(self.sb, ["true"], timeout_seconds=2)
                self.assertIn(r["state"], ("finished",))
            except ApiError as e:
                self.assertEqual(e.code, "exec_blocked")
        self.client.call("POST", f"/v1/sandboxes/{self.sb}/execs/{storm['id']}/signal",
                   {"signal": "KILL", "whole_tree": True})
        self.client.wait(self.sb, storm["id"])
        self.assert_alive()

    def test_fork_bomb_leaves_chronus_and_neighbours(self):
        other = self.sandbox()
        bomb = self.client.start(self.sb, ["python3", "-c", "import os\nwhile 1:\n  try: os.fork()\n  except OSError: pass"])
        self.assertEqual(self.client.run(other, ["echo", "ok"], timeout_seconds=60)["stdout"], b"ok\n")
        self.client.call("POST", f"/v1/sandboxes/{self.sb}/execs/{bomb['id']}/signal",
                   {"signal": "KILL", "whole_tree": True})
        done = self.client.wait(self.sb, bomb["id"])
        self.assertEqual(done["killed_by"], "user")
        self.assert_alive()

    def test_hostile_passwd_files_do_not_hang_it(self):
        for command in ("rm /etc/passwd && mkfifo /etc/passwd",
                        "rm -f /etc/passwd && ln -s /dev/zero /etc/passwd",
                        "rm -f /etc/passwd && head -c 30000000 /dev/zero | tr '\\0' a > /etc/passwd"):
            with self.subTest(command):
                self.assertEqual(self.client.run(self.sb, command, timeout_seconds=20)["exit_code"], 0)
                try:
                    r = self.client.run(self.sb, ["echo", "x"], user="daemon", timeout_seconds=10)
                    self.fail(f"a user of a broken passwd file was accepted: {r}")
                except ApiError as e:
                    self.assertEqual(e.code, "bad_user")
                # Numeric users need no file.
                self.assertEqual(self.client.run(self.sb, ["id", "-u"], user="1000")["stdout"], b"1000\n")

    def test_overwritten_shell_and_tools_do_not_reach_chronus(self):
        """PAPER 6.4: an agent overwrote /bin/bash because the runtime used it."""
        r = self.client.run(self.sb, "echo '#!/bin/true' > /bin/cat; rm -rf /usr/lib/x86_64-linux-gnu/libnss*; "
                                   "echo changed > /root/f")
        self.assertEqual(r["exit_code"], 0)
        status, _, body = self.client.raw("GET", f"/v1/sandboxes/{self.sb}/files?path=/root/f")
        self.assertEqual((status, body), (200, b"changed\n"))


    def test_what_root_inside_does_to_file_calls_is_no_fault_of_ours(self):
        r = self.client.run(self.sb, "python3 -c \"import socket; socket.socket(1).bind('/root/socket')\"; ln -s /proc/self/exe /bin/self")
        self.assertEqual(r["exit_code"], 0, r["stderr"])
        self.assertApiError("path_unsafe", self.client.read_file, self.sb, "/root/socket")
        self.client.start(self.sb, ["python3", "-c", "import fcntl,os,signal,time\nsignal.signal(signal.SIGIO, signal.SIG_IGN)\n"
                                    "fd = os.open('/etc/issue', os.O_RDWR); fcntl.fcntl(fd, 1024, 1); open('/root/held', 'w'); time.sleep(60)"])
        wait_until("the lease is held", 20, lambda: self.client.run(self.sb, ["test", "-e", "/root/held"])["exit_code"] == 0)
        self.assertApiError("permission_denied", self.client.read_file, self.sb, "/etc/issue")
        self.client.start(self.sb, ["python3", "-c", "import os\nopen('/root/go', 'w')\nwhile True:\n"
                                    "    try: os.kill(-1, 9)\n    except OSError: pass"])
        time.sleep(2)
        for _ in range(5):
            try:
                self.client.stat(self.sb, "/root")
            except ApiError as e:
                self.assertEqual((e.code, e.fault), ("exec_blocked", "program"))

    def test_the_program_of_pid_1_is_a_sealed_copy(self):
        """A command that is /proc/self/exe is chronus (CVE-2019-5736): its file is not the host's."""
        self.client.run(self.sb, "ln -s /proc/self/exe /bin/self; ln -s /proc/self/maps /root/maps")
        self.assertEqual(self.client.run(self.sb, ["/bin/self"], timeout_seconds=10)["exit_code"], 70)
        self.assertNotIn(b"/chronus\n", self.client.read_file(self.sb, "/root/maps"))
        self.assert_alive()


class Boundary(DebianTest):
    def setUp(self):
        self.sb = self.sandbox(memory_mb=256)

    def must_fail(self, command):
        r = self.client.run(self.sb, command, timeout_seconds=20)
        self.assertNotEqual(r["exit_code"], 0, f"{command}: {r}")

    def test_mounts_are_locked(self):
        for command in ("umount /proc", "umount /proc/sys", "mount -o remount,rw /proc/sys", "mount -t tmpfs t /mnt",
                        "umount -l /dev", "mount --bind / /mnt", "echo 1 > /proc/sys/kernel/sysrq",
                        "echo c > /proc/sysrq-trigger", "touch /sys/x"):
            with self.subTest(command):
                self.must_fail(command)

    def test_masked_files_are_empty(self):
        r = self.client.run(self.sb, "cat /proc/kcore /proc/keys /proc/timer_list /proc/kpagecgroup /proc/kpageflags "
                                   "2>/dev/null | wc -c; ls /sys/firmware | wc -l")
        self.assertEqual(r["stdout"].split(), [b"0", b"0"])

    def test_no_nested_namespaces_by_default(self):
        for flag in ("-U", "-m", "-n", "-p -f", "-i", "-u", "-C"):
            with self.subTest(flag):
                self.must_fail(f"unshare {flag} true")

    def test_network_is_loopback_only(self):
        r = self.client.run(self.sb, "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '")
        self.assertEqual(r["stdout"], b"lo\n")
        r = self.client.run(self.sb, ["python3", "-c",
                                    "import socket;s=socket.create_server(('127.0.0.1',80));"
                                    "c=socket.create_connection(('127.0.0.1',80));print('ok')"])
        self.assertEqual(r["stdout"], b"ok\n", r["stderr"])  # low ports work, loopback is up

    def test_ids_inside_and_outside(self):
        r = self.client.run(self.sb, "id -u; stat -c %u:%g / /etc/passwd; touch /tmp/f; stat -c %u /tmp/f; chown 1234 /tmp/f; "
                                   "stat -c %u /tmp/f")
        self.assertEqual(r["stdout"].split(), [b"0", b"0:0", b"0:0", b"0", b"1234"])

    def test_setuid_works_unless_forbidden(self):
        line = "useradd -m w 2>/dev/null || true; echo 'w ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/w; chmod 440 /etc/sudoers.d/w"
        self.assertEqual(self.client.run(self.sb, line)["exit_code"], 0)
        self.assertEqual(self.client.run(self.sb, ["sudo", "-n", "id", "-u"], user="w")["stdout"], b"0\n")
        strict = self.sandbox(memory_mb=256, no_new_privileges=True)
        self.client.run(strict, line)
        self.assertNotEqual(self.client.run(strict, ["sudo", "-n", "id", "-u"], user="w")["exit_code"], 0)


if __name__ == "__main__":
    unittest.main()
