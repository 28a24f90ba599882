"""An apiserver of its own in front of scripted edges (tests/tools/scripted_edge.c), for test_api_*.py.

No root and no sandboxes are needed: what is tested is the apiserver alone. Everything lives in a private
directory and is ended and removed by close().
"""
import io
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tarfile
import tempfile
import unittest

from harness import TMP, Client, find_program, wait_until


def tiny_tar(text=b"hello\n"):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        info = tarfile.TarInfo("file")
        info.size, info.mtime = len(text), 1
        tar.addfile(info, io.BytesIO(text))
    return out.getvalue()


class Api:
    """One apiserver, edges by name; `edges` maps a name to its scripted_edge words."""

    def __init__(self, edges=None, args=()):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="dsec-api-", dir=TMP))
        self.run = self.dir / "run"
        self.run.mkdir(mode=0o700)
        (self.dir / "layers").mkdir(mode=0o700)
        self.args, self.edges, self.server, self.client = list(args), {}, None, None
        self.names = dict(edges if edges is not None else {"e0": []})
        for name, words in self.names.items():
            self.start_edge(name, *words)
        self.start()

    def start_edge(self, name, *words):
        process = subprocess.Popen([find_program("scripted_edge"), "--socket", self.run / f"edge-{name}.sock",
                                    "--name", name, *words], stdout=subprocess.PIPE)
        process.stdout.readline()
        process.stdout.close()
        self.edges[name] = process

    def end_edge(self, name):
        """Gone at once, as by kill -9."""
        self.edges[name].kill()
        self.edges.pop(name).wait(10)

    def start(self, listen="127.0.0.1:0"):
        url = self.run / "url"
        url.unlink(missing_ok=True)
        words = []
        for name in self.names:
            words += ["--edge", f"{name}=unix:{self.run}/edge-{name}.sock"]
        self.log = open(self.dir / "log", "ab")
        self.server = subprocess.Popen(
            [find_program("dsecd"), "apiserver", "--listen", listen, "--run-dir", self.run, "--store",
             self.dir / "store.db", "--layer-dir", self.dir / "layers", "--key-file", self.dir / "api-key",
             *words, *self.args], stdout=self.log, stderr=self.log)
        wait_until("R/url", 10, lambda: url.exists() or self.server.poll() is not None)
        if self.server.poll() is not None:
            raise RuntimeError((self.dir / "log").read_text())
        self.port = int(url.read_text().rsplit(":", 1)[1])
        self.key = (self.dir / "api-key").read_text().strip()
        self.client = Client("127.0.0.1", self.port, self.key)
        self.wait_edges()

    def wait_edges(self):
        def all_known():
            edges = self.client.call("GET", "/v1/edges")["edges"]
            return all(e["connected"] and "cpus" in e for e in edges if e["name"] in self.edges)
        wait_until("edges known", 10, all_known)

    def stop(self):
        self.server.send_signal(signal.SIGTERM)
        return self.server.wait(10)

    def close(self):
        if self.server.poll() is None:
            self.server.kill()
            self.server.wait(10)
        for name in list(self.edges):
            self.end_edge(name)
        self.log.close()
        shutil.rmtree(self.dir)

    # -- what tests need ----------------------------------------------------------------------------

    def layer(self, name="base@1", data=None):
        return self.client.call("PUT", f"/v1/layers/{name}", tiny_tar() if data is None else data)

    def sandbox(self, **fields):
        return self.client.call("POST", "/v1/sandboxes", {"environment": "base", **fields})

    def rss_kib(self):
        for line in pathlib.Path(f"/proc/{self.server.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1])
        raise AssertionError("no VmRSS")

    def active(self):
        """Requests under way, the one that asks among them."""
        text = self.client.raw("GET", "/metrics")[2].decode()
        return int(next(l for l in text.splitlines() if l.startswith("dsec_http_requests_active ")).split()[1])

    def settled(self):
        """Waits until what earlier tests left is over; how many requests are active then: this one."""
        wait_until("earlier requests over", 15, lambda: self.active() == 1)
        return 1

    def files_open(self):
        return len(os.listdir(f"/proc/{self.server.pid}/fd"))

    def connect(self, timeout=20):
        s = socket.create_connection(("127.0.0.1", self.port), timeout=timeout)
        s.settimeout(timeout)
        return s

    def head(self, method, path, *headers, key=True):
        lines = [f"{method} {path} HTTP/1.1", "Host: x", *headers]
        if key:
            lines.append(f"Authorization: Bearer {self.key}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    def talk(self, data, timeout=20):
        """Sends raw bytes, reads to the end of the connection's first answer: (status, body bytes)."""
        with self.connect(timeout) as s:
            s.sendall(data)
            return read_answer(s)


def read_answer(s):
    data = b""
    while b"\r\n\r\n" not in data:
        more = s.recv(65536)
        if not more:
            raise AssertionError(f"connection ended within the headers: {data!r}")
        data += more
    head, body = data.split(b"\r\n\r\n", 1)
    length = 0
    for line in head.split(b"\r\n")[1:]:
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    while len(body) < length:
        more = s.recv(65536)
        if not more:
            break
        body += more
    return int(head.split()[1]), body


def code_of(body):
    return json.loads(body)["error"]["code"]


class ApiTest(unittest.TestCase):
    edges = {"e0": []}
    args = ()

    @classmethod
    def setUpClass(cls):
        cls.api = Api(cls.edges, cls.args)
        cls.addClassCleanup(cls.api.close)
        cls.client = cls.api.client

    def fails(self, status, code, method, path, body=None, **more):
        got, headers, data = self.client.raw(method, path, body, **more)
        error = json.loads(data)["error"]
        self.assertEqual((got, error["code"]), (status, code), error)
        self.assertEqual(set(error), {"code", "message", "fault", "retry", "request_id"})
        self.assertEqual(error["request_id"], headers["X-Request-Id"])
        if status in (429, 503):
            self.assertGreaterEqual(int(headers["Retry-After"]), 1)
        return error
