"""An edge in miniature for chronus's own tests: aether framing, the messages of
proto/chronus.proto, and a sandbox by tests/tools/chronus_host.c. Single-threaded:
calls pump the socket until what they wait for is there."""
import os
import pathlib
import select
import shutil
import socket
import struct
import subprocess
import tempfile
import time

import harness

OPEN, MSG, DATA, CLOSE, RESET, CREDIT, PING, PONG, GOAWAY = range(1, 10)
WINDOW = 256 * 1024


def varint(v):
    out = b""
    while True:
        out += bytes([v & 0x7F | (0x80 if v > 0x7F else 0)])
        v >>= 7
        if not v:
            return out


def field(number, value):
    """Encodes an int, bytes, str, bool or list of those (repeated)."""
    if isinstance(value, list):
        return b"".join(field(number, v) if v else varint(number << 3 | 2) + b"\0" for v in value)
    if isinstance(value, (bool, int)):
        return varint(number << 3) + varint(int(value)) if value else b""
    raw = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(raw)) + raw


def message(number, body):
    return varint(number << 3 | 2) + varint(len(body)) + body


def decode(raw):
    """{field number: [values]}; embedded messages stay bytes."""
    out, i = {}, 0

    def number():
        nonlocal i
        v = shift = 0
        while True:
            b = raw[i]
            i += 1
            v |= (b & 0x7F) << shift
            shift += 7
            if not b & 0x80:
                return v
    while i < len(raw):
        key = number()
        if key & 7 == 0:
            out.setdefault(key >> 3, []).append(number())
        else:
            n = number()
            out.setdefault(key >> 3, []).append(raw[i:i + n])
            i += n
    return out


def get(m, number, default=0):
    return m.get(number, [default])[-1]


class Stream:
    def __init__(self, edge, sid):
        self.edge, self.sid = edge, sid
        self.messages, self.data = [], {}
        self.window, self.closed, self.reset = None, False, None
        self.hold_credit = False  # True: a reader that does not read
        self.held = 0

    def msg(self, raw):
        self.edge.wait(lambda: self.reset is not None or self.closed or self.edge.windows.get(self.sid, 0) >= len(raw))
        self.edge.windows[self.sid] -= len(raw)
        self.edge.send(MSG, self.sid, raw)

    def write(self, data, channel=0):
        """Sends with back-pressure; blocks (pumping) while there is no window."""
        at, stuck = 0, time.monotonic() + 20
        while at < len(data) and self.reset is None and not self.closed:
            n = min(32768, len(data) - at, self.edge.windows.get(self.sid, 0))
            if n <= 0:
                self.edge.pump(1)
                if time.monotonic() > stuck:
                    raise TimeoutError(f"no window for {len(data) - at} more bytes")
                continue
            stuck = time.monotonic() + 20
            self.edge.windows[self.sid] -= n
            self.edge.send(DATA, self.sid, data[at:at + n], channel)
            at += n
        return at

    def close(self):
        self.edge.send(CLOSE, self.sid, b"")

    def release_credit(self):
        self.hold_credit = False
        if self.held:
            self.edge.send(CREDIT, self.sid, struct.pack(">I", self.held))
            self.held = 0


class Edge:
    """One connection."""

    def __init__(self, path):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(path)
        self.buf, self.streams, self.next, self.windows = b"", {}, 1, {}
        self.sock.sendall(struct.pack(">IHHHHII", 0x44536145, 20, 1, 1, 0, WINDOW, 65536))
        self.peer_window = self.hello_stream = None
        self.disk_used, self.disk_limit, self.usage_asked = None, 0, 0
        self.wait(lambda: self.peer_window is not None)

    def close(self):
        self.sock.close()

    def send(self, kind, sid, payload, channel=0):
        self.sock.sendall(struct.pack(">BBHII", kind, channel, 0, sid, len(payload)) + payload)

    def open(self, payload):
        s = Stream(self, self.next)
        self.next += 2
        self.streams[s.sid] = s
        self.windows[s.sid] = self.peer_window
        self.send(OPEN, s.sid, payload)
        return s

    def pump(self, timeout):
        if not select.select([self.sock], [], [], timeout)[0]:
            return False
        got = self.sock.recv(1 << 18)
        if not got:
            raise ConnectionError("chronus closed the connection")
        self.buf += got
        if self.peer_window is None:
            if len(self.buf) < 20:
                return True
            self.peer_window = struct.unpack(">I", self.buf[12:16])[0]
            self.buf = self.buf[struct.unpack(">H", self.buf[4:6])[0]:]
        while len(self.buf) >= 12:
            kind, channel, _, sid, n = struct.unpack(">BBHII", self.buf[:12])
            if len(self.buf) < 12 + n:
                break
            payload, self.buf = self.buf[12:12 + n], self.buf[12 + n:]
            self.frame(kind, channel, sid, payload)
        return True

    def frame(self, kind, channel, sid, payload):
        s = self.streams.get(sid)
        if kind == CREDIT:
            self.windows[sid] = self.windows.get(sid, 0) + struct.unpack(">I", payload)[0]
        elif kind == PING:
            self.send(PONG, 0, payload)
        elif s is None:
            return
        elif kind == MSG:
            m = decode(payload)
            if s is self.hello_stream and 2 in m:  # DiskUsageRequest
                self.usage_asked += 1
                if self.disk_used is not None:
                    body = field(1, get(decode(m[2][0]), 1)) + field(2, self.disk_limit) + field(3, self.disk_used)
                    s.msg(message(3, body))
            else:
                s.messages.append(m)
        elif kind == DATA:
            s.data[channel] = s.data.get(channel, b"") + payload
        elif kind == CLOSE:
            s.closed = True
        elif kind == RESET:
            s.reset = struct.unpack(">I", payload)[0]
        if kind in (MSG, DATA) and payload:
            if s.hold_credit:
                s.held += len(payload)
            else:
                self.send(CREDIT, sid, struct.pack(">I", len(payload)))

    def wait(self, condition, timeout=15.0):
        end = time.monotonic() + timeout
        while True:
            value = condition()
            if value:
                return value
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError("chronus did not answer in time")
            self.pump(min(left, 0.5))

    # ---- messages ----
    def hello(self):
        s = self.hello_stream = self.open(message(1, field(1, 1) + field(2, "sb")))
        reply = self.wait(lambda: s.messages and s.messages[0])
        r = decode(get(reply, 1, b""))
        s.execs = {get(decode(e), 1, b"").decode(): bool(get(decode(e), 2)) for e in r.get(3, [])}
        return s

    def start(self, eid, argv, env=None, cwd="", user="", stdin=False, pty=False, rows=0, cols=0, timeout_ms=0,
              grace_ms=0, drain_ms=0, nnp=False):
        if isinstance(argv, str):
            argv = ["/bin/sh", "-c", argv]
        body = field(1, eid) + field(2, argv)
        for k, v in (env or {}).items():
            body += message(3, field(1, k) + field(2, v))
        body += (field(4, cwd) + field(5, user) + field(6, stdin) + field(7, pty) + field(8, rows) + field(9, cols) +
                 field(10, timeout_ms) + field(11, grace_ms) + field(12, drain_ms) + field(13, nnp))
        return Exec(self, self.open_large(message(2, body)))

    def open_large(self, payload):
        if len(payload) <= 60000:
            return self.open(payload)
        head = varint(15 << 3)
        # The length of the rest does not change the head's own bytes' meaning.
        s = self.open(head + varint(len(payload)))
        for i in range(0, len(payload), 30000):
            piece = payload[i:i + 30000]
            s.msg(piece)
        return s

    def attach(self, eid, out=0, err=0):
        return Exec(self, self.open(message(3, field(1, eid) + field(2, out) + field(3, err))))

    def run(self, argv, **kw):
        """Starts, waits, forgets; an Exec with out, err and result."""
        self.counter = getattr(self, "counter", 0) + 1
        x = self.start(kw.pop("eid", f"run{self.counter}-{os.getpid()}-{time.monotonic_ns()}"), argv, **kw)
        x.wait()
        x.forget()
        return x

    def file(self, op, path="", data=None, commit=True, **kw):
        ops = ["stat", "list", "read", "write", "mkdir", "move", "remove", "tar_out", "tar_in"]
        body = field(1, ops.index(op)) + field(2, path) + field(3, kw.get("to", "")) + field(4, kw.get("user", ""))
        body += field(5, kw.get("offset", 0)) + field(6, kw.get("length", 0)) + field(7, kw.get("mode", 0))
        for number, name in ((8, "parents"), (9, "recursive"), (10, "follow"), (11, "overwrite")):
            body += field(number, kw.get(name, False))
        f = File(self, self.open(message(4, body)))
        if data is not None:
            f.s.write(data)
            if op == "write" and commit:
                f.s.msg(message(1, field(1, len(data))))
            f.s.close()
        return f


class Exec:
    def __init__(self, edge, stream):
        self.edge, self.s = edge, stream

    def report(self, number):
        for m in reversed(self.s.messages):
            if number in m:
                return decode(m[number][-1])
        return None

    @property
    def out(self):
        return self.s.data.get(1, b"")

    @property
    def err(self):
        return self.s.data.get(2, b"")

    def started(self, timeout=15.0):
        self.edge.wait(lambda: self.report(1) is not None or self.report(2) is not None, timeout)
        return self.report(1)

    def wait(self, timeout=15.0):
        self.edge.wait(lambda: self.report(3) is not None or self.report(2) is not None or self.s.reset, timeout)
        r = self.report(3)
        if r is not None:
            names = {1: "signaled", 2: "exit_code", 3: "signal", 4: "timed_out", 5: "user_killed", 6: "background_alive",
                     7: "cpu_usec", 8: "max_rss", 9: "wall_ms", 10: "out_total", 11: "err_total", 12: "drain_cut"}
            self.result = {name: get(r, n) for n, name in names.items()}
            return self.result
        self.result = None
        return None

    @property
    def failure(self):
        f = self.report(2)
        return f and (get(f, 1, b"").decode(), get(f, 2, b"").decode())

    def ack(self, out=None, err=None):
        self.s.msg(message(1, field(1, len(self.out) if out is None else out) +
                           field(2, len(self.err) if err is None else err)))

    def signal(self, sig, tree=True, user=False):
        self.s.msg(message(2, field(1, sig) + field(2, tree) + field(3, user)))

    def resize(self, rows, cols):
        self.s.msg(message(3, field(1, rows) + field(2, cols)))

    def eof(self):
        self.s.msg(message(4, b""))

    def forget(self):
        if self.report(2) is None and self.s.reset is None:
            self.s.msg(message(5, b""))
            self.edge.wait(lambda: self.s.closed)
            self.s.close()


class File:
    def __init__(self, edge, stream):
        self.edge, self.s = edge, stream

    def wait(self, timeout=30.0):
        """The fields of FileDone; raises FileError on FileFailed."""
        def last():
            return self.s.reset is not None or next((m for m in self.s.messages if 3 in m or 4 in m), None)
        m = self.edge.wait(last, timeout)
        if m is True:
            raise FileError("reset", str(self.s.reset), 0)
        if 4 in m:
            f = decode(m[4][-1])
            raise FileError(get(f, 1, b"").decode(), get(f, 2, b"").decode(), get(f, 3))
        return decode(m[3][-1])

    @property
    def stat(self):
        m = next(m for m in self.s.messages if 1 in m)
        return self.entry(m[1][-1])

    @staticmethod
    def entry(raw):
        e = decode(raw)
        names = {2: "mode", 3: "size", 4: "mtime_ns", 5: "uid", 6: "gid", 7: "inode", 8: "nlink"}
        out = {name: get(e, n) for n, name in names.items()}
        out["name"], out["link"] = get(e, 1, b""), get(e, 9, b"")
        return out

    @property
    def entries(self):
        return [self.entry(e) for m in self.s.messages if 2 in m for e in decode(m[2][-1]).get(1, [])]

    @property
    def bytes(self):
        return self.s.data.get(1, b"")


class FileError(Exception):
    def __init__(self, code, text, err):
        super().__init__(f"{code}: {text} ({err})")
        self.code, self.err = code, err


class Host:
    """chronus in a sandbox of its own."""

    def __init__(self, memory=256 << 20, disk=0, cpus=0):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="chronus-host-"))
        (self.dir / "root").mkdir()
        self.path = str(self.dir / "s")
        self.proc = subprocess.Popen(
            [harness.find_program("chronus_host"), harness.find_program("chronus"), self.path, str(self.dir / "root"),
             str(memory), str(disk), str(cpus)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        line = self.proc.stdout.readline().split()
        if len(line) < 3 or line[0] != b"ready":
            self.proc.wait()
            shutil.rmtree(self.dir)
            raise RuntimeError("chronus_host did not start")
        self.pid, self.cgroup = int(line[1]), line[2].decode()

    def connect(self):
        return Edge(self.path)

    def leaves(self):
        return sorted(d for d in os.listdir(self.cgroup + "/work") if os.path.isdir(f"{self.cgroup}/work/{d}"))

    def rss_kib(self):
        for line in pathlib.Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1])
        return 0

    def cpu_ticks(self):
        return sum(int(v) for v in pathlib.Path(f"/proc/{self.pid}/stat").read_text().split()[13:15])

    def alive(self):
        return self.proc.poll() is None and os.path.exists(f"/proc/{self.pid}")

    def close(self):
        self.proc.stdin.close()
        self.proc.stdout.close()
        self.proc.wait(timeout=20)
        shutil.rmtree(self.dir)
