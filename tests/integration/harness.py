"""harness.py: a platform of its own for a test file, undone even on failure.

    class Execs(harness.PlatformCase):      # one `dsecd up` a class
        def test_it(self):
            sb = self.create()
            r = self.run_exec(sb, ["echo", "hi"])

Needs root and DSEC_BUILD (the build directory; default build/). The state
directory is a fresh one under /tmp; every process is found through its pid
files, never by name. Environments: "busy@1" (busybox, made here) is imported at
the start of each platform; "base@1" (Debian with Python) is built once a
machine by debian_tar() when a test asks for it.
"""
import base64
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import tarfile
import tempfile
import time
import unittest
import urllib.parse

import leaks

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(os.environ.get("DSEC_BUILD", os.path.join(ROOT, "build")))
CACHE = os.environ.get("DSEC_TEST_CACHE", os.path.join(BUILD, "test-cache"))
READY_TIMEOUT_S = 30
DOWN_TIMEOUT_S = 60

PASSWD = """root:x:0:0:root:/root:/bin/sh
daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin
agent:x:1000:1000:agent:/home/agent:/bin/sh
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
"""
GROUP = "root:x:0:\ndaemon:x:1:\ntty:x:5:\nagent:x:1000:\nextra:x:2000:agent\nnogroup:x:65534:\n"


def program(name):
    """Path of a program in the build directory."""
    for top, _, files in os.walk(BUILD):
        if name in files and os.access(os.path.join(top, name), os.X_OK):
            path = os.path.join(top, name)
            if os.path.isfile(path) and not path.endswith(".p"):
                return path
    raise FileNotFoundError(f"{name} is not built in {BUILD}")


def busybox_tar():
    """A small root file system: static busybox with links, a user, /tmp."""
    os.makedirs(CACHE, exist_ok=True)
    path = os.path.join(CACHE, "busy.tar")
    if os.path.exists(path):
        return path
    with tempfile.TemporaryDirectory(dir=CACHE) as tmp:
        root = os.path.join(tmp, "root")
        for d in ("bin", "etc", "root", "home/agent", "tmp", "usr/bin", "var/tmp", "dev", "proc", "sys"):
            os.makedirs(os.path.join(root, d))
        os.chmod(os.path.join(root, "tmp"), 0o1777)
        os.chmod(os.path.join(root, "var/tmp"), 0o1777)
        os.chown(os.path.join(root, "home/agent"), 1000, 1000)
        shutil.copy("/bin/busybox", os.path.join(root, "bin/busybox"))
        os.chmod(os.path.join(root, "bin/busybox"), 0o755)
        applets = subprocess.run(["/bin/busybox", "--list"], check=True, capture_output=True, text=True).stdout
        for a in applets.split():
            if a != "busybox":
                os.symlink("busybox", os.path.join(root, "bin", a))
        with open(os.path.join(root, "etc/passwd"), "w") as f:
            f.write(PASSWD)
        with open(os.path.join(root, "etc/group"), "w") as f:
            f.write(GROUP)
        with open(os.path.join(root, "etc/hosts"), "w") as f:
            f.write("127.0.0.1 localhost\n::1 localhost\n")
        part = os.path.join(tmp, "busy.tar")
        with tarfile.open(part, "w") as t:
            t.add(root, arcname=".")
        os.rename(part, path)
    return path


def debian_tar():
    """A Debian base with Python (about 40 s the first time), kept in CACHE."""
    os.makedirs(CACHE, exist_ok=True)
    path = os.path.join(CACHE, "debian.tar")
    if not os.path.exists(path):
        part = path + f".{os.getpid()}"
        subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", "--include=python3-minimal,procps,sudo",
                        "bookworm", part], check=True, stdin=subprocess.DEVNULL)
        os.rename(part, path)
    return path


class ApiError(Exception):
    def __init__(self, status, body, headers):
        error = body.get("error", {}) if isinstance(body, dict) else {}
        super().__init__(f"HTTP {status}: {error.get('code')}: {error.get('message')} {body if not error else ''}")
        self.status, self.body, self.headers = status, body, headers
        self.code, self.fault = error.get("code"), error.get("fault")
        self.message, self.retry = error.get("message"), error.get("retry")


class Platform:
    """One `dsecd up` with a state directory of its own."""

    def __init__(self, *args, state_dir=None):
        if os.geteuid() != 0:
            raise unittest.SkipTest("root")
        self.args = args
        self.before = leaks.snapshot()
        self.state = state_dir or tempfile.mkdtemp(prefix="dsec-test-", dir="/tmp")
        self.process = None

    def start(self):
        log = open(os.path.join(self.state, "up.log"), "ab")
        self.process = subprocess.Popen(
            [program("dsecd"), "up", "--state-dir", self.state, "--listen", "127.0.0.1:0", *self.args],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        log.close()
        self.wait_ready()
        return self

    def url(self):
        with open(os.path.join(self.state, "run", "url")) as f:
            return f.read().strip()

    def key(self):
        with open(os.path.join(self.state, "api-key")) as f:
            return f.read().strip()

    def wait_ready(self, timeout_s=READY_TIMEOUT_S):
        end = time.monotonic() + timeout_s
        why = "not started"
        while time.monotonic() < end:
            if self.process and self.process.poll() is not None:
                raise RuntimeError(f"dsecd up ended with {self.process.returncode}:\n{self.logs()}")
            try:
                if self.raw("GET", "/readyz")[0] == 200:
                    return
                why = "readyz says no"
            except (OSError, http.client.HTTPException) as e:
                why = repr(e)
            time.sleep(0.05)
        raise RuntimeError(f"not ready after {timeout_s} s: {why}\n{self.logs()}")

    def logs(self, lines=40):
        text = []
        for top in (self.state, os.path.join(self.state, "log")):
            for name in sorted(os.listdir(top)) if os.path.isdir(top) else ():
                if name.endswith(".log"):
                    with open(os.path.join(top, name), errors="replace") as f:
                        text.append(f"--- {name}\n" + "".join(f.readlines()[-lines:]))
        return "\n".join(text)

    def pid(self, name):
        """Pid of one of our programs by its pid file: edge, apiserver, mounter, spawner-0, supervisor."""
        with open(os.path.join(self.state, "run", name + ".pid")) as f:
            return int(f.read().split()[0])

    def kill(self, name, sig=signal.SIGKILL):
        """Kills one program; returns its pid. The supervisor starts it anew."""
        pid = self.pid(name)
        os.kill(pid, sig)
        return pid

    def wait_restarted(self, name, old_pid, timeout_s=20):
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            try:
                pid = self.pid(name)
                if pid != old_pid and os.path.exists(f"/proc/{pid}"):
                    return pid
            except (OSError, ValueError, IndexError):
                pass
            time.sleep(0.05)
        raise RuntimeError(f"{name} was not restarted in {timeout_s} s\n{self.logs()}")

    def cli(self, *args, check=True, input=None, timeout=120, env=None):
        e = dict(os.environ, DSEC_URL=self.url(), DSEC_API_KEY=self.key())
        e.update(env or {})
        r = subprocess.run([program("dsec"), *args], input=input, capture_output=True, timeout=timeout, env=e,
                           stdin=None if input is not None else subprocess.DEVNULL)
        if check and r.returncode != 0:
            raise AssertionError(f"dsec {' '.join(args)}: exit {r.returncode}\n{r.stderr.decode(errors='replace')}")
        return r

    def connection(self, timeout=120):
        u = urllib.parse.urlsplit(self.url())
        return http.client.HTTPConnection(u.hostname, u.port, timeout=timeout)

    def raw(self, method, path, body=None, headers=None, key=True, timeout=120):
        """(status, headers, bytes) of one call, whatever it answers."""
        c = self.connection(timeout)
        try:
            h = dict(headers or {})
            if key and "Authorization" not in h:
                h["Authorization"] = "Bearer " + self.key()
            c.request(method, path, body=body, headers=h)
            r = c.getresponse()
            return r.status, r.headers, r.read()
        finally:
            c.close()

    def api(self, method, path, body=None, timeout=120):
        """JSON in, JSON out; ApiError for every status of 400 and above."""
        data, headers = None, {}
        if body is not None:
            data, headers = json.dumps(body).encode(), {"Content-Type": "application/json"}
        status, h, raw = self.raw(method, path, data, headers, timeout=timeout)
        try:
            answer = json.loads(raw) if raw else {}
        except ValueError:
            answer = {"not_json": raw[:200]}
        if status >= 400:
            raise ApiError(status, answer, h)
        return answer

    def import_tar(self, path, name):
        with open(path, "rb") as f:
            c = self.connection(600)
            c.request("PUT", f"/v1/layers/{name}", body=f,
                      headers={"Authorization": "Bearer " + self.key(),
                               "Content-Length": str(os.path.getsize(path))})
            r = c.getresponse()
            raw = r.read()
            c.close()
            if r.status >= 400:
                raise ApiError(r.status, json.loads(raw), r.headers)
            return json.loads(raw)

    def stop(self):
        """Ends the platform as a user would: SIGTERM to `dsecd up`."""
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(DOWN_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process = None

    def cleanup(self):
        """Ends everything, whatever state it is in, and removes the state directory.
        Returns what is left on the machine (a list, empty when all is well)."""
        self.stop()
        subprocess.run([program("dsecd"), "cleanup", "--state-dir", self.state], stdin=subprocess.DEVNULL,
                       capture_output=True, timeout=DOWN_TIMEOUT_S)
        shutil.rmtree(self.state, ignore_errors=True)
        return leaks.since(self.before, settle_s=10)


class PlatformCase(unittest.TestCase):
    """A test class with one platform, the environment busy@1, and helpers."""
    up_args = ()
    environment = "busy@1"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.p = Platform(*cls.up_args)
        cls.addClassCleanup(cls._undo)
        cls.p.start()
        cls.p.import_tar(busybox_tar(), "busy@1")
        if cls.environment == "base@1":
            cls.p.import_tar(debian_tar(), "base@1")

    @classmethod
    def _undo(cls):
        left = cls.p.cleanup()
        if left:
            raise AssertionError("left behind: " + ", ".join(left))

    def create(self, **fields):
        fields.setdefault("environment", self.environment)
        fields.setdefault("memory_mb", 128)
        fields.setdefault("disk_mb", 64)
        sb = self.p.api("POST", "/v1/sandboxes", fields)
        self.addCleanup(self.delete, sb["id"])
        return sb["id"]

    def delete(self, sandbox_id):
        try:
            self.p.api("DELETE", f"/v1/sandboxes/{sandbox_id}?wait=true")
        except ApiError as e:
            if e.status != 404:
                raise

    def start_exec(self, sandbox_id, argv=None, **fields):
        """Starts; the exec object. argv: a list, or a str for the shell."""
        if isinstance(argv, str):
            fields["shell"] = argv
        elif argv is not None:
            fields["argv"] = argv
        return self.p.api("POST", f"/v1/sandboxes/{sandbox_id}/execs", fields)

    def run_exec(self, sandbox_id, argv=None, timeout=120, **fields):
        """Starts and waits; the finished exec with .out and .err as bytes."""
        if isinstance(argv, str):
            fields["shell"] = argv
        elif argv is not None:
            fields["argv"] = argv
        r = self.p.api("POST", f"/v1/sandboxes/{sandbox_id}/execs?wait=true", fields, timeout=timeout)
        return Finished(r)

    def wait_exec(self, sandbox_id, exec_id, timeout_s=60):
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            e = self.p.api("GET", f"/v1/sandboxes/{sandbox_id}/execs/{exec_id}?wait_seconds=10")
            if e["state"] in ("finished", "failed"):
                return e
        raise AssertionError(f"exec {exec_id} not finished in {timeout_s} s: {e}")

    def output(self, sandbox_id, exec_id, **query):
        """(stdout, stderr, events) of the kept output, by the binary frame stream."""
        q = urllib.parse.urlencode(query)
        status, headers, raw = self.p.raw(
            "GET", f"/v1/sandboxes/{sandbox_id}/execs/{exec_id}/output?{q}",
            headers={"Accept": "application/vnd.dsec.frames"})
        if status >= 400:
            raise ApiError(status, json.loads(raw), headers)
        return parse_frames(raw)

    def api_error(self, method, path, body=None):
        """The ApiError of a call that must fail."""
        with self.assertRaises(ApiError) as caught:
            self.p.api(method, path, body)
        return caught.exception


class Finished(dict):
    def __init__(self, exec_object):
        super().__init__(exec_object)
        self.out = base64.b64decode(exec_object.get("stdout_b64") or "")
        self.err = base64.b64decode(exec_object.get("stderr_b64") or "")
        self.code = exec_object.get("exit_code")


def parse_frames(raw):
    out, err, events, at = bytearray(), bytearray(), [], 0
    while at < len(raw):
        kind, n = raw[at], int.from_bytes(raw[at + 1:at + 5], "big")
        payload = raw[at + 5:at + 5 + n]
        if len(payload) != n:
            raise AssertionError("the stream ends inside a frame")
        at += 5 + n
        if kind == 1:
            out += payload
        elif kind == 2:
            err += payload
        elif kind == 3:
            events.append(json.loads(payload))
        elif kind != 4:
            raise AssertionError(f"unknown frame type {kind}")
    return bytes(out), bytes(err), events


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]
