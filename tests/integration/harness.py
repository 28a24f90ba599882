"""A platform of its own for each integration test file.

    import unittest
    from harness import PlatformTest

    class Create(PlatformTest):          # setUpClass starts `dsecd up`, imports the layer busybox@1
        def test_true(self):
            sb = self.sandbox()          # removed after the test
            self.assertEqual(self.client.run(sb, ["true"])["exit_code"], 0)

The platform has a private state directory and a free port. Its processes are found by that directory in
their command line, never by a name alone, so runs beside each other do not meet. stop() and, whatever
happened before, destroy() leave nothing; the runner's leak test counts. Run as root; DSEC_BUILD names the
build directory (default: build/ of the tree). Run one file by hand: python3 tests/integration/test_x.py
"""
import atexit
import io
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import leaks  # noqa: E402
from client import STDERR, STDOUT, EVENT, ApiError, Client  # noqa: E402,F401

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("DSEC_BUILD") or ROOT / "build").resolve()
TMP = os.environ.get("DSEC_TEST_TMP") or "/tmp"  # tools/check.py: one directory a run, for its leak check
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
BUSYBOX = next((p for p in ("/usr/bin/busybox", "/bin/busybox") if os.path.exists(p)), None)


def find_program(name):
    """A program in the build directory, e.g. find_program("dsecd")."""
    hits = sorted(p for p in (BUILD / "src").rglob(name) if p.is_file() and os.access(p, os.X_OK))
    if not hits:
        raise unittest.SkipTest(f"{name} is not built in {BUILD}")
    return str(hits[0])


def wait_until(what, timeout_s, condition, step_s=0.02):
    """Polls `condition` until it is true; its last value. TimeoutError names `what`."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {timeout_s:g} s")
        time.sleep(step_s)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Platform:
    """`dsecd up` on a private state directory."""

    def __init__(self, state_dir=None, up_args=()):
        self.state = pathlib.Path(state_dir or tempfile.mkdtemp(prefix="dsec-it-", dir=TMP))
        self.port = free_port()
        self.up_args = list(up_args)  # more words for `dsecd up`
        self.log_path = self.state / "dsecd.log"
        self.up = None
        self.client = None
        atexit.register(self.destroy)

    def start(self):
        """Starts (or restarts, on the same state directory) and waits until it is ready."""
        old = set(self.pids("apiserver"))  # of a supervisor that was killed: the new one replaces it
        with open(self.log_path, "ab") as log:
            self.up = subprocess.Popen(
                [find_program("dsecd"), "up", "--state-dir", str(self.state),
                 "--listen", f"127.0.0.1:{self.port}", *self.up_args],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        self.client = Client("127.0.0.1", self.port, None)
        wait_until("platform ready", START_TIMEOUT_S,
                   lambda: not old & set(self.pids("apiserver")) and self._is_ready())
        self.client.key = (self.state / "api-key").read_text().strip()
        leaks.remember(self.state, os.environ.get("DSEC_TEST_TMP"))
        return self

    def _is_ready(self):
        if self.up.poll() is not None:
            raise RuntimeError(f"dsecd up ended with {self.up.returncode}:\n{self.log_tail()}")
        return self.is_ready()

    def is_ready(self):
        try:
            return self.client.raw("GET", "/readyz", timeout=5)[0] == 200
        except OSError:
            return False

    def wait_ready(self):
        """After something was killed: until the whole path answers again."""
        wait_until("platform ready again", START_TIMEOUT_S, self.is_ready)

    def stop(self):
        """As `dsec down` does: SIGTERM to the supervisor, which ends everything it started."""
        if self.up and self.up.poll() is None:
            self.up.send_signal(signal.SIGTERM)
            try:
                self.up.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                raise AssertionError(f"dsecd up did not end on SIGTERM:\n{self.log_tail()}") from None
        status = self.up.returncode if self.up else None
        self.up = None
        return status

    def destroy(self):
        """Leaves nothing, whatever state things are in. Idempotent."""
        atexit.unregister(self.destroy)
        if not self.state.exists():
            return
        try:
            self.stop()
        except AssertionError as e:
            print(e, file=sys.stderr)
        for line in leaks.clean(self.state):
            print(f"harness: had to remove {line}", file=sys.stderr)
        keep = os.environ.get("DSEC_KEEP_LOGS")
        if keep and self.log_path.exists():
            shutil.copy(self.log_path, pathlib.Path(keep) / f"{self.state.name}.log")
        shutil.rmtree(self.state, ignore_errors=True)

    def pids(self, role):
        """Pids of "edge", "apiserver", "up", "mounter", "spawner" of this platform."""
        return leaks.daemon_pids(self.state, role)

    def kill9(self, role):
        """kill -9 of every process of a role; the pids that were killed."""
        pids = self.pids(role)
        if not pids:
            raise AssertionError(f"no {role} process of {self.state} found")
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        return pids

    def log_tail(self, lines=40):
        try:
            return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])
        except OSError:
            return "(no log)"


_busybox_tar = None


def busybox_tar():
    """A tar of a small root file system: static busybox and the files that programs expect."""
    global _busybox_tar
    if _busybox_tar:
        return _busybox_tar
    if not BUSYBOX:
        raise unittest.SkipTest("busybox-static is not installed")
    applets = subprocess.run([BUSYBOX, "--list"], check=True, capture_output=True, text=True).stdout.split()
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        def add(name, kind, mode=0o755, data=b"", link=""):
            info = tarfile.TarInfo(name)
            info.type, info.mode, info.linkname, info.size, info.mtime = kind, mode, link, len(data), 1
            if name.startswith("home/user"):
                info.uid = info.gid = 1000
            tar.addfile(info, io.BytesIO(data))

        for name in ("bin", "dev", "etc", "home", "home/user", "proc", "root", "run", "sys", "usr", "usr/bin", "var"):
            add(name, tarfile.DIRTYPE)
        for name in ("tmp", "var/tmp"):
            add(name, tarfile.DIRTYPE, 0o1777)
        add("bin/busybox", tarfile.REGTYPE, 0o755, pathlib.Path(BUSYBOX).read_bytes())
        for applet in applets:
            if applet != "busybox":
                add(f"bin/{applet}", tarfile.SYMTYPE, 0o777, link="busybox")
        add("usr/bin/env", tarfile.SYMTYPE, 0o777, link="../../bin/busybox")
        add("etc/passwd", tarfile.REGTYPE, 0o644,
            b"root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/home/user:/bin/sh\n"
            b"nobody:x:65534:65534:nobody:/nonexistent:/bin/false\n")
        add("etc/group", tarfile.REGTYPE, 0o644, b"root:x:0:\nuser:x:1000:\nnogroup:x:65534:\n")
        add("etc/hostname", tarfile.REGTYPE, 0o644, b"localhost\n")
        add("etc/hosts", tarfile.REGTYPE, 0o644, b"127.0.0.1 localhost\n::1 localhost\n")
    _busybox_tar = out.getvalue()
    return _busybox_tar


def start_platform():
    """A ready platform with the layer busybox@1."""
    if os.geteuid() != 0:
        raise unittest.SkipTest("root is needed to make sandboxes")
    platform = Platform()
    try:
        platform.start()
        platform.client.put_layer("busybox@1", busybox_tar())
    except BaseException:
        print(platform.log_tail(), file=sys.stderr)
        platform.destroy()
        raise
    return platform


class PlatformTest(unittest.TestCase):
    """Base of test classes: one platform a class, shown sandboxes removed after each test."""

    platform = None

    @classmethod
    def setUpClass(cls):
        cls.platform = start_platform()
        cls.addClassCleanup(cls.platform.destroy)

    @property
    def client(self):
        return self.platform.client

    def sandbox(self, environment="busybox@1", **fields):
        """Creates a sandbox and returns its id; it is deleted when the test ends."""
        made = self.client.create(environment, **fields)
        self.addCleanup(self._remove, made["id"])
        return made["id"]

    def _remove(self, sandbox):
        try:
            self.client.delete(sandbox)
        except ApiError as e:
            if e.code != "sandbox_not_found":
                raise

    def assertApiError(self, code, call, *args, **kwargs):
        """`call` fails with this stable code; the error, for more assertions."""
        with self.assertRaises(ApiError) as caught:
            call(*args, **kwargs)
        self.assertEqual(caught.exception.code, code, str(caught.exception))
        return caught.exception


def _on_sigterm(signum, frame):
    sys.exit(143)  # runs cleanups and atexit: the runner's timeout sends this first


signal.signal(signal.SIGTERM, _on_sigterm)
