"""What all sandboxes of a node share: root inside neither sees the host and its
neighbours through it nor uses it up."""
import unittest

from debian import DebianTest

SOCKETS = r"""
import socket
opened = []
for family in range(1, 64):
    for kind in (1, 2, 3, 5):
        try:
            socket.socket(family, kind, 0).close()
            opened.append(family)
        except OSError:
            pass
netlink = []
for protocol in range(32):
    try:
        socket.socket(16, 3, protocol).close()
        netlink.append(protocol)
    except OSError:
        pass
print(sorted(set(opened)), netlink)
"""

# Datagrams and streams on loopback that nobody reads, from a sandbox of 64 MiB.
UNREAD = r"""
import socket
held, queued, quiet = [], 0, 0
listener = socket.create_server(("127.0.0.1", 0), backlog=4000)
for i in range(150):
    try:
        a = socket.create_connection(listener.getsockname(), timeout=1)
        b, _ = listener.accept()
    except OSError:
        break
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    u.bind(("127.0.0.1", 0))
    u.connect(u.getsockname())
    held += [a, b, u]
    for s in (a, u):
        s.setblocking(False)
        try:
            for _ in range(200):
                queued += s.send(b"x" * (60000 if s is u else 100000))
                if s is u and _ == 3:
                    break
        except OSError:
            pass
print(queued >> 20)
"""

class SharedKernel(DebianTest):
    def setUp(self):
        self.sb = self.sandbox(memory_mb=256)

    def python(self, script, *args, sandbox=None):
        r = self.client.run(sandbox or self.sb, ["python3", "-c", script, *args], timeout_seconds=30)
        self.assertEqual(r["exit_code"], 0, r["stderr"])
        return r["stdout"].decode()

    def test_sysfs_shows_no_path_of_the_host(self):
        """A loop device names its file: the state directory, of neighbours too."""
        r = self.client.run(self.sb, "cat /sys/block/*/loop/backing_file /sys/devices/virtual/block/*/loop/backing_file; "
                                   "ls /sys/fs /sys/fs/*; true")
        for word in (str(self.platform.state).encode(), b"volume.img", b"image.erofs", b"btrfs", b"erofs"):
            self.assertNotIn(word, r["stdout"])

    def test_no_pressure_triggers(self):
        """Each costs the host memory that is not charged, and time every two seconds."""
        self.assertEqual(self.python("import os\ntry: os.open('/proc/pressure/cpu', os.O_RDWR); print('open')\n"
                                     "except OSError as e: print('refused')"), "refused\n")

    def test_only_common_kinds_of_sockets(self):
        """Others load modules, reach code that no namespace confines, or, as uevents do, hear the host's devices."""
        self.assertEqual(self.python(SOCKETS), "[1, 2, 10, 16] [0, 4, 9, 16]\n")

    def test_no_programs_on_sockets(self):
        """Their code comes out of a budget of the node; without it nobody can load a filter, so no command starts."""
        got = self.python("import socket, struct\ns = socket.socketpair()[0]\nfor n in (26, 50, 51, 52):\n"
                          "    try: s.setsockopt(1, n, struct.pack('HxxxxxxQ', 0, 0)); print(n)\n"
                          "    except OSError as e: print(e.errno)\n"
                          "s.setsockopt(1, 9, 1)")
        self.assertEqual(got.split(), ["1"] * 4)

    def test_line_disciplines_are_not_changed(self):
        got = self.python("import fcntl, os, struct\nm, s = os.openpty()\n"
                          "try: fcntl.ioctl(s, 0x5423, struct.pack('i', 27)); print('changed')\n"
                          "except OSError as e: print(e.errno)")
        self.assertEqual(got, "1\n")

    def test_terminals_of_the_node_are_not_used_up(self):
        """kernel.pty.max counts all instances of devpts together."""
        got = self.python("import os\nk = []\ntry:\n    while len(k) < 1000: k.append(os.open('/dev/ptmx', os.O_RDWR | os.O_NOCTTY))\n"
                          "except OSError as e: pass\nprint(len(k))")
        self.assertTrue(16 <= int(got) <= 64, got)
        r = self.client.run(self.sb, ["tty"], pty={}, timeout_seconds=10)
        self.assertEqual(r["exit_code"], 0)

    def test_unread_traffic_counts(self):
        """What waits in sockets is memory; v1 charges it only where it is told to."""
        small = self.sandbox(memory_mb=64)
        r = self.client.run(small, ["python3", "-c", UNREAD], timeout_seconds=60)
        self.assertTrue(r["oom_killed"] or int(r["stdout"] or 0) <= 100, r)
        got = self.python("import socket\nl = socket.create_server(('127.0.0.1', 0))\n"
                          "a = socket.create_connection(l.getsockname()); b, _ = l.accept(); n = 0\n"
                          "import threading\nthreading.Thread(target=lambda: [a.sendall(b'x' * 65536) for _ in range(256)] and a.close()).start()\n"
                          "while d := b.recv(65536): n += len(d)\nprint(n)", sandbox=small)
        self.assertEqual(got, f"{256 * 65536}\n")  # what is read flows on


if __name__ == "__main__":
    unittest.main()
