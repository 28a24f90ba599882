"""Row 47 of the public reports: peers that vanish without a word give their slots back within a minute.

Clients in a network namespace of their own ask for a stream (the server's keepalive frames wait for acknowledgement) and
for a result (nothing is under way); then their end of the cable is removed. A third, beside them, only does not read: it
lives and must be served on. Takes 50 s."""
import os
import subprocess
import sys
import time
import unittest

from api_help import Api
from harness import wait_until

FREED_WITHIN_S = 60
CLIENT = """
import socket, sys, time
s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 10)
s.sendall(sys.stdin.buffer.read())
if sys.argv[3] == "stream": s.recv(1)
print("asked", flush=True)
time.sleep(300)
"""


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)


class HalfOpen(unittest.TestCase):
    def setUp(self):
        if os.geteuid() != 0:
            raise unittest.SkipTest("root is needed to make a network namespace")
        self.ns, net = f"dsec-row47-{os.getpid()}", f"10.{os.getpid() >> 8 & 127}.{os.getpid() & 255}"
        self.server_ip = f"{net}.1"
        links = [f"r47{side}{os.getpid()}" for side in "ab"]
        try:
            ip("netns", "add", self.ns)
            self.addCleanup(ip, "netns", "del", self.ns)
            ip("link", "add", links[0], "type", "veth", "peer", "name", links[1])
        except (OSError, subprocess.CalledProcessError) as e:
            raise unittest.SkipTest(f"no network namespaces or veth: {e}") from None
        self.addCleanup(subprocess.run, ["ip", "link", "del", links[0]], capture_output=True)
        ip("link", "set", links[1], "netns", self.ns)
        ip("addr", "add", f"{net}.1/30", "dev", links[0])
        ip("link", "set", links[0], "up")
        ip("-n", self.ns, "addr", "add", f"{net}.2/30", "dev", links[1])
        ip("-n", self.ns, "link", "set", links[1], "up")
        self.far_link = links[1]
        self.api = Api()
        self.addCleanup(self.api.close)
        self.api.stop()
        self.api.log.close()
        self.api.start("0.0.0.0:0")  # once more, for clients here and there
        self.api.layer()
        self.base = f"/v1/sandboxes/{self.api.sandbox()['id']}/execs"

    def ask(self, query, far=True):
        body = b'{"argv": ["hang"]}' if far else b'{"argv": ["emit", "900000000"]}'
        words = ["ip", "netns", "exec", self.ns] if far else []
        p = subprocess.Popen([*words, sys.executable, "-c", CLIENT, self.server_ip, str(self.api.port), query],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(p.stdout.close)
        self.addCleanup(p.wait)
        self.addCleanup(p.kill)
        p.stdin.write(self.api.head("POST", f"{self.base}?{query}=true", f"Content-Length: {len(body)}") + body)
        p.stdin.close()
        self.assertEqual(p.stdout.readline(), b"asked\n")

    def test_row_47_vanished_peers_give_their_slots_back(self):
        self.ask("stream", far=False)
        alone = wait_until("the one that does not read", 5, lambda: self.api.active() == 2 and 2)
        for query in ("stream", "wait"):
            for _ in range(3):
                self.ask(query)
        wait_until("all under way", 5, lambda: self.api.active() == alone + 6)
        time.sleep(1)
        ip("-n", self.ns, "link", "set", self.far_link, "down")
        began = time.monotonic()
        time.sleep(12)
        self.assertEqual(self.api.active(), alone + 6)  # a short gap in the network costs nobody
        wait_until("all slots free", FREED_WITHIN_S - 12, lambda: self.api.active() <= alone, 0.25)
        print(f"# freed after {time.monotonic() - began:.0f} s")
        self.assertEqual(self.api.active(), alone)  # the one that lives and does not read


if __name__ == "__main__":
    unittest.main()
