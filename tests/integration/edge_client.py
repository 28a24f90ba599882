"""The edge's own protocol for tests: proto/edge.proto over the aether of chronus_client, on RUN/edge-e0.sock.

    edge = EdgeClient(platform)
    sb = edge.create(ttl_ms=60000)                # dict of the Sandbox message, or EdgeError
    ex = edge.exec(sb["id"], "echo hi")           # started
    done = edge.wait_exec(sb["id"], ex["id"])
"""
import pathlib
import random

from chronus_client import Edge, decode, field, get, message

PROJECT = "edge-tests"
CREATE, GET, LIST, DELETE, SET_TTL = 10, 11, 12, 13, 14
EXEC_START, EXEC_GET, EXEC_LIST, EXEC_OUTPUT, EXEC_STDIN, EXEC_SIGNAL, EXEC_RESIZE, EXEC_WAIT = range(20, 28)
FILE, INFO = 30, 40
R_ERROR, R_SANDBOX, R_SANDBOXES, R_EXEC, R_EXECS, R_GAP, R_STAT, R_ENTRIES, R_FILE_DONE, R_STDIN, R_INFO, R_OK = range(1, 13)
OP_STAT, OP_LIST, OP_READ, OP_WRITE, OP_MKDIR, OP_MOVE, OP_REMOVE, OP_TAR_OUT, OP_TAR_IN = range(9)

SANDBOX = {1: "id", 2: "state", 3: "reason", 4: "message", 13: "created_at_ms", 14: "running_at_ms", 15: "end_at_ms",
           16: "idle_ttl_ms", 17: "idle_end_at_ms", 18: "stopped_at_ms", 20: "execs_running", 21: "memory_used_bytes",
           22: "memory_peak_bytes", 23: "cpu_usec", 24: "disk_used_bytes", 26: "oom_kills"}
EXEC = {1: "id", 2: "sandbox_id", 3: "state", 7: "has_exit_code", 8: "exit_code", 9: "signal", 10: "timed_out",
        11: "user_killed", 12: "oom_killed", 13: "background_alive", 17: "stdout_total", 18: "stderr_total",
        19: "stdout_truncated", 20: "stderr_truncated", 24: "killed_by", 25: "stdin_offset"}
INFO_NAMES = {1: "name", 3: "live", 4: "max", 5: "creates_total", 6: "creates_failed", 7: "execs_total", 12: "adopted_total"}


def named(raw, names):
    m = decode(raw)
    out = {}
    for number, name in names.items():
        value = get(m, number, 0)
        out[name] = value.decode() if isinstance(value, bytes) else value
    for name in ("reason", "message", "killed_by"):
        if out.get(name) == 0:
            out[name] = ""
    return out


class EdgeError(Exception):
    def __init__(self, raw):
        m = decode(raw)
        self.code = get(m, 1, b"").decode()
        self.message = get(m, 2, b"").decode()
        self.retry_after_ms = get(m, 3)
        super().__init__(f"{self.code}: {self.message}")


class EdgeClient:
    def __init__(self, platform, project=PROJECT):
        self.project = project
        self.digest = platform.client.call("GET", "/v1/layers/busybox@1")["digest"]
        self.link = Edge(str(pathlib.Path(platform.state) / "run" / "edge-e0.sock"))

    def close(self):
        self.link.close()

    def call(self, what, body, big=False):
        """Opens the call; the stream."""
        head = field(1, "rq-test") + field(2, self.project)
        if not big:
            return self.link.open(head + message(what, body))
        raw = message(what, body)
        s = self.link.open(head + field(3, len(raw)))
        for at in range(0, len(raw), 60000):
            s.msg(raw[at:at + 60000])
        return s

    def reply(self, s, kind, timeout=30.0):
        """The first reply of that kind on the stream, as bytes; EdgeError if an error comes."""
        def there():
            for m in s.messages:
                if R_ERROR in m:
                    raise EdgeError(m[R_ERROR][-1])
                if kind in m:
                    return (m[kind][-1],)
            if s.reset is not None:
                raise ConnectionError(f"reset {s.reset}")
            return None
        return self.link.wait(there, timeout)[0]

    def last(self, s, kind, timeout=30.0):
        """Waits for the end of the call; the last reply of that kind."""
        self.link.wait(lambda: s.closed or s.reset is not None, timeout)
        for m in reversed(s.messages):
            if R_ERROR in m:
                raise EdgeError(m[R_ERROR][-1])
            if kind in m:
                return m[kind][-1]
        raise AssertionError(f"no reply {kind} in {s.messages}")

    # -- sandboxes --
    def new_id(self):
        return "sb-e0-" + "".join(random.choice("abcdefghijklmnopqrstuvwxyz234567") for _ in range(26))

    def create_body(self, sid, memory=256 << 20, ttl_ms=600000, idle_ttl_ms=0, env=None, pids=256):
        body = field(1, sid) + field(2, "container") + field(3, "busybox@1") + field(4, [self.digest])
        body += field(5, 1000) + field(6, memory) + field(7, 256 << 20) + field(8, pids) + field(9, ttl_ms)
        body += field(10, idle_ttl_ms) + field(15, "box")
        for k, v in (env or {}).items():
            body += message(12, field(1, k) + field(2, v))
        return body

    def create(self, sid=None, **options):
        s = self.call(CREATE, self.create_body(sid or self.new_id(), **options))
        return named(self.reply(s, R_SANDBOX), SANDBOX)

    def get(self, sid):
        return named(self.reply(self.call(GET, field(1, sid)), R_SANDBOX), SANDBOX)

    def delete(self, sid, wait=True):
        return named(self.reply(self.call(DELETE, field(1, sid) + field(2, wait)), R_SANDBOX), SANDBOX)

    def list(self, stopped=False):
        s = self.call(LIST, field(2, stopped))
        self.link.wait(lambda: s.closed)
        return [named(x, SANDBOX) for m in s.messages for part in m[R_SANDBOXES] for x in decode(part).get(1, [])]

    def set_ttl(self, sid, ttl_ms=None, idle_ms=None):
        body = field(1, sid)
        if ttl_ms is not None:
            body += field(2, ttl_ms) + field(3, True)
        if idle_ms is not None:
            body += field(4, idle_ms) + field(5, True)
        return named(self.reply(self.call(SET_TTL, body), R_SANDBOX), SANDBOX)

    def info(self):
        return named(self.reply(self.call(INFO, b""), R_INFO), INFO_NAMES)

    # -- execs --
    def exec_stream(self, sid, cmd, eid="", follow=True, env=None, stdin_open=False, stdin=b"", limit=0, timeout_ms=0):
        body = field(1, sid) + field(2, eid)
        body += field(4, cmd) if isinstance(cmd, str) else field(3, cmd)
        for k, v in (env or {}).items():
            body += message(5, field(1, k) + field(2, v))
        body += field(8, stdin_open) + field(9, stdin) + field(13, timeout_ms) + field(15, limit) + field(16, follow)
        return self.call(EXEC_START, body, big=len(body) > 60000)

    def exec(self, sid, cmd, **options):
        return named(self.reply(self.exec_stream(sid, cmd, follow=False, **options), R_EXEC), EXEC)

    def run(self, sid, cmd, **options):
        """To its end: (exec, stdout, stderr)."""
        s = self.exec_stream(sid, cmd, **options)
        done = named(self.last(s, R_EXEC, 60), EXEC)
        return done, s.data.get(1, b""), s.data.get(2, b"")

    def get_exec(self, sid, eid):
        return named(self.reply(self.call(EXEC_GET, field(1, sid) + field(2, eid)), R_EXEC), EXEC)

    def wait_exec(self, sid, eid, timeout_ms=30000):
        s = self.call(EXEC_WAIT, field(1, sid) + field(2, eid) + field(3, timeout_ms))
        return named(self.reply(s, R_EXEC, timeout_ms / 1000 + 10), EXEC)

    def output(self, sid, eid, out=0, err=0, follow=True):
        return self.call(EXEC_OUTPUT, field(1, sid) + field(2, eid) + field(3, out) + field(4, err) + field(5, follow))

    def signal(self, sid, eid, sig, whole_tree=True):
        s = self.call(EXEC_SIGNAL, field(1, sid) + field(2, eid) + field(3, sig) + field(4, whole_tree))
        return self.reply(s, R_OK)

    def stdin(self, sid, eid, data, offset=0, eof=False):
        s = self.call(EXEC_STDIN, field(1, sid) + field(2, eid) + field(3, offset) + field(4, eof))
        s.write(data)
        s.close()
        done = decode(self.reply(s, R_STDIN))
        return get(done, 1), bool(get(done, 2))

    # -- files --
    def file_call(self, sid, op, path, **numbers):
        """numbers: field numbers as f7=0o644 and so on."""
        body = field(1, sid) + field(2, op) + field(3, path)
        for name, value in numbers.items():
            body += field(int(name[1:]), value)
        return self.call(FILE, body)

    def write_file(self, sid, path, data, sha256=b"", **numbers):
        s = self.file_call(sid, OP_WRITE, path, f13=sha256, **numbers)
        s.write(data)
        s.close()
        return decode(self.reply(s, R_FILE_DONE))

    def read_file(self, sid, path):
        s = self.file_call(sid, OP_READ, path)
        done = decode(self.last(s, R_FILE_DONE, 60))
        return s.data.get(1, b""), get(done, 3, b"")


def gaps(s):
    return [tuple(get(decode(g), n) for n in (1, 2, 3)) for m in s.messages for g in m.get(R_GAP, [])]
