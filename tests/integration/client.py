"""A minimal HTTP client of the DSec API for tests: http.client and json, nothing of the SDK.

One Client is one server and key; every call opens its own connection, so it may be used from several
threads. Replies come back whole; exec_stream() yields frames as they arrive.
"""
import base64
import http.client
import json
import struct
import time
import urllib.parse

STDOUT, STDERR, EVENT, KEEPALIVE = 1, 2, 3, 4


class ApiError(Exception):
    """A reply that is not 2xx. `code` is the stable code of src/base/errcodes.h."""

    def __init__(self, status, body, headers):
        self.status, self.body, self.headers = status, body, headers
        error = body.get("error", {}) if isinstance(body, dict) else {}
        self.code = error.get("code")
        self.fault = error.get("fault")
        self.retry = error.get("retry")
        self.message = error.get("message", "")
        super().__init__(f"{status} {self.code}: {self.message or body!r}")


class Client:
    def __init__(self, host, port, key, timeout=60.0):
        self.host, self.port, self.key, self.timeout = host, port, key, timeout

    # -- plain HTTP ---------------------------------------------------------------------------------

    def open(self, method, path, body=None, headers=None, timeout=None):
        """Sends one request; returns (connection, response), both still open."""
        conn = http.client.HTTPConnection(self.host, self.port, timeout=timeout or self.timeout)
        sent = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        sent.update(headers or {})
        if isinstance(body, (dict, list)):
            body = json.dumps(body).encode()
            sent.setdefault("Content-Type", "application/json")
        try:
            conn.request(method, path, body=body, headers=sent)
            return conn, conn.getresponse()
        except BaseException:
            conn.close()
            raise

    def raw(self, method, path, body=None, headers=None, timeout=None):
        """(status, headers, bytes), whatever the status is."""
        conn, response = self.open(method, path, body, headers, timeout)
        try:
            return response.status, response.headers, response.read()
        finally:
            conn.close()

    def call(self, method, path, body=None, headers=None, timeout=None):
        """The decoded JSON reply, None for an empty one; ApiError when it is not 2xx."""
        status, reply_headers, data = self.raw(method, path, body, headers, timeout)
        try:
            decoded = json.loads(data) if data else None
        except ValueError:
            decoded = data
        if not 200 <= status < 300:
            raise ApiError(status, decoded, reply_headers)
        return decoded

    # -- sandboxes and execs ------------------------------------------------------------------------

    def create(self, environment="busybox@1", **fields):
        return self.call("POST", "/v1/sandboxes", {"environment": environment, **fields})

    def get(self, sandbox):
        return self.call("GET", f"/v1/sandboxes/{sandbox}")

    def list(self, query=""):
        return self.call("GET", f"/v1/sandboxes{query}")["sandboxes"]

    def delete(self, sandbox, wait=True):
        return self.call("DELETE", f"/v1/sandboxes/{sandbox}?wait={'true' if wait else 'false'}")

    def start(self, sandbox, argv=None, **fields):
        """Starts an exec and returns at once. argv: a list, or a string for the shell."""
        return self.call("POST", f"/v1/sandboxes/{sandbox}/execs", exec_body(argv, fields))

    def run(self, sandbox, argv=None, **fields):
        """Runs an exec to its end; the reply gains `stdout` and `stderr` as bytes."""
        done = self.call("POST", f"/v1/sandboxes/{sandbox}/execs?wait=true", exec_body(argv, fields),
                         timeout=max(self.timeout, 10 + fields.get("timeout_seconds", 0)))
        done["stdout"] = base64.b64decode(done.get("stdout_b64") or "")
        done["stderr"] = base64.b64decode(done.get("stderr_b64") or "")
        return done

    def exec(self, sandbox, exec_id, wait_seconds=0):
        return self.call("GET", f"/v1/sandboxes/{sandbox}/execs/{exec_id}?wait_seconds={wait_seconds}")

    def wait(self, sandbox, exec_id, timeout_s=60.0):
        """The exec once it is finished or failed."""
        end = time.monotonic() + timeout_s
        while True:
            got = self.exec(sandbox, exec_id, wait_seconds=5)
            if got["state"] in ("finished", "failed"):
                return got
            if time.monotonic() > end:
                raise TimeoutError(f"exec {exec_id} is {got['state']} after {timeout_s:g} s")

    def exec_stream(self, sandbox, argv=None, **fields):
        """Starts an exec; yields (type, payload): bytes for STDOUT/STDERR, a dict for EVENT."""
        conn, response = self.open("POST", f"/v1/sandboxes/{sandbox}/execs?stream=true",
                                   exec_body(argv, fields))
        yield from frames(conn, response)

    def output(self, sandbox, exec_id, stdout_offset=0, stderr_offset=0, follow=True):
        conn, response = self.open("GET", f"/v1/sandboxes/{sandbox}/execs/{exec_id}/output"
                                   f"?stdout_offset={stdout_offset}&stderr_offset={stderr_offset}"
                                   f"&follow={'true' if follow else 'false'}")
        yield from frames(conn, response)

    def read_output(self, sandbox, exec_id, **offsets):
        """Follows the frame stream to its end: (stdout, stderr, last event)."""
        out, err, last = bytearray(), bytearray(), None
        for kind, payload in self.output(sandbox, exec_id, **offsets):
            if kind == STDOUT:
                out += payload
            elif kind == STDERR:
                err += payload
            elif kind == EVENT:
                last = payload
        return bytes(out), bytes(err), last

    # -- files --------------------------------------------------------------------------------------

    def file_path(self, sandbox, what="", **query):
        return f"/v1/sandboxes/{sandbox}/files{what}?{urllib.parse.urlencode(query)}"

    def read_file(self, sandbox, path, **query):
        status, headers, data = self.raw("GET", self.file_path(sandbox, path=path, **query))
        if status != 200:
            raise ApiError(status, json.loads(data), headers)
        return data

    def write_file(self, sandbox, path, data, **query):
        return self.call("PUT", self.file_path(sandbox, path=path, **query), data)

    def stat(self, sandbox, path, **query):
        return self.call("GET", self.file_path(sandbox, "/stat", path=path, **query))

    # -- layers -------------------------------------------------------------------------------------

    def put_layer(self, name, tar_bytes, source="test"):
        return self.call("PUT", f"/v1/layers/{name}?source={source}", tar_bytes,
                         {"Content-Type": "application/x-tar"}, timeout=120)


def exec_body(argv, fields):
    body = dict(fields)
    if isinstance(argv, str):
        body["shell"] = argv
    elif argv is not None:
        body["argv"] = argv
    return body


def frames(conn, response):
    """Frames of application/vnd.dsec.frames until the stream ends; closes the connection."""
    try:
        if not 200 <= response.status < 300:
            data = response.read()
            raise ApiError(response.status, json.loads(data) if data else {}, response.headers)
        while True:
            head = response.read(5)
            if len(head) < 5:
                return
            kind, length = struct.unpack(">BI", head)
            payload = response.read(length)
            if len(payload) < length:
                raise ConnectionError("the frame stream ended inside a frame")
            yield kind, json.loads(payload) if kind == EVENT else payload
    finally:
        conn.close()
