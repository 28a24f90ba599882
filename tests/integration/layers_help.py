"""What the layer tests share: a mounter of their own, its packets, user namespaces.

Imported by test_layers_*.py. Everything is made below one temporary directory
and undone by Mounter.stop(); needs root. The packet layout follows
src/layer/mounter_ipc.h.
"""
import array
import ctypes
import os
import random
import shutil
import signal
import socket
import string
import struct
import subprocess
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PREPARE, RELEASE, USAGE, RECONCILE, FORGET_LAYER, PROBE = range(1, 7)
REQUEST = struct.Struct("=IIQ47sxI576s4xQII")
REPLY = struct.Struct("=IiQQQI384s256s4x")
CLONE_NEWUSER, CLONE_NEWNS = 0x10000000, 0x20000
libc = ctypes.CDLL(None, use_errno=True)


def build_dir():
    return os.environ.get("DSEC_BUILD") or os.path.join(ROOT, "build")


def program(name):
    """A built program, wherever in the build tree its folder puts it."""
    for folder, _, files in os.walk(build_dir()):
        if name in files and os.access(os.path.join(folder, name), os.X_OK):
            return os.path.join(folder, name)
    raise FileNotFoundError(f"{name} is not built in {build_dir()}")


def check(result, what):
    if result < 0:
        err = ctypes.get_errno()
        raise OSError(err, f"{what}: {os.strerror(err)}")
    return result


def sandbox_id():
    return "sb-e0-" + "".join(random.choice(string.ascii_lowercase + "234567") for _ in range(26))


def hold_until_killed():
    """In a child: also ends with its parent, so that a failed test leaves nothing."""
    libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    while True:
        signal.pause()


class UserNamespace:
    """A user namespace with 65,536 ids from `base`, held by a sleeping child."""

    def __init__(self, base=0x70000000):
        self.base = base
        ready_r, ready_w = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                check(libc.unshare(CLONE_NEWUSER), "unshare")
                os.write(ready_w, b"x")
                hold_until_killed()
            finally:
                os._exit(0)
        os.close(ready_w)
        os.read(ready_r, 1)
        os.close(ready_r)
        for kind in ("uid_map", "gid_map"):
            with open(f"/proc/{self.pid}/{kind}", "w") as f:
                f.write(f"0 {base} 65536")
        self.fd = os.open(f"/proc/{self.pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)

    def close(self):
        os.close(self.fd)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


class Reply:
    def __init__(self, data, fds):
        (self.version, self.err, self.token, self.limit, self.used, self.code,
         message, text) = REPLY.unpack(data)
        self.error = message.split(b"\0")[0].decode()
        self.message = text.split(b"\0")[0].decode()
        self.fds = fds


class Client:
    def __init__(self, path):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.settimeout(20)
        try:
            self.sock.connect(path)
        except OSError:
            self.sock.close()
            raise
        self.token = 0

    def send(self, op, sandbox="", layers=(), disk=64 << 20, base=0, fd=None, version=1):
        self.token += 1
        packed = b"".join(l.encode().ljust(72, b"\0") for l in layers)
        data = REQUEST.pack(version, op, self.token, sandbox.encode(), len(layers), packed,
                            disk, base, base)
        rights = [] if fd is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))]
        self.sock.sendmsg([data], rights)
        return self.token

    def recv(self):
        data, control, _, _ = self.sock.recvmsg(4096, socket.CMSG_SPACE(64), socket.MSG_CMSG_CLOEXEC)
        if not data:
            raise ConnectionError("the mounter closed the connection")
        fds = array.array("i")
        for _, _, raw in control:
            fds.frombytes(raw[:len(raw) - len(raw) % fds.itemsize])
        return Reply(data, list(fds))

    def call(self, *args, **kw):
        self.send(*args, **kw)
        return self.recv()

    def prepare(self, sandbox, layer, userns, disk=64 << 20):
        layers = [layer] if isinstance(layer, str) else layer
        return self.call(PREPARE, sandbox, layers, disk, userns.base, userns.fd)

    def reconcile(self, live):
        fd = os.memfd_create("live")
        os.write(fd, "".join(i + "\n" for i in live).encode())
        try:
            return self.call(RECONCILE, fd=fd)
        finally:
            os.close(fd)

    def close(self):
        self.sock.close()


class Mounter:
    """dsec-mounter on a state directory of its own."""

    def __init__(self, layer_dir, *args, where="/tmp"):
        self.dir = tempfile.mkdtemp(prefix="layers-m-", dir=where)
        self.layer_dir, self.args = layer_dir, args or ("--volume-bytes", str(2 << 30))
        self.proc = None
        self.start()

    @property
    def socket(self):
        return os.path.join(self.dir, "mounter.sock")

    @property
    def image(self):
        return os.path.join(self.dir, "volume.img")

    def start(self):
        with open(os.path.join(self.dir, "log"), "ab") as log:
            self.proc = subprocess.Popen([program("dsec-mounter"), "--run-dir", self.dir, "--state-dir", self.dir,
                                          "--layer-dir", self.layer_dir, *self.args], stderr=log)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and self.proc.poll() is None:
            try:
                return Client(self.socket).close()
            except (FileNotFoundError, ConnectionRefusedError):
                time.sleep(0.02)
        raise RuntimeError("the mounter did not start: " + self.log())

    def log(self):
        with open(os.path.join(self.dir, "log")) as f:
            return f.read()

    def client(self):
        return Client(self.socket)

    def kill(self):
        self.proc.kill()
        self.proc.wait()

    def stop(self):
        if self.proc.poll() is None:
            self.proc.send_signal(signal.SIGTERM)
            self.proc.wait(20)
        shutil.rmtree(self.dir, ignore_errors=True)
        return self.proc.returncode


def loops_of(path_part):
    """Loop devices whose backing file's path contains the last part of path_part: once the namespace
    that attached it is gone, the kernel shows the path without what its mount stood on."""
    path_part = os.path.basename(path_part)
    found = []
    for name in os.listdir("/sys/block"):
        try:
            with open(f"/sys/block/{name}/loop/backing_file") as f:
                if path_part in f.read():
                    found.append(name)
        except OSError:
            pass
    return found


def wait_until(what, seconds=10):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if what():
            return True
        time.sleep(0.02)
    return what()


class Root:
    """A prepared mount in use: attached in a mount namespace that a child holds."""

    def __init__(self, userns, mount_fd_take):
        self.userns = userns
        ready_r, ready_w = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                check(libc.unshare(CLONE_NEWNS), "unshare")
                check(libc.mount(None, b"/", None, 0x4000 | 0x40000, None), "private")
                # move_mount(2) is 429 on every architecture.
                check(libc.syscall(429, mount_fd_take, b"", -100, b"/mnt", 4), "move_mount")
                os.close(mount_fd_take)
                os.write(ready_w, b"x")
                hold_until_killed()
            finally:
                os._exit(0)
        os.close(mount_fd_take)
        os.close(ready_w)
        ok = os.read(ready_r, 1)
        os.close(ready_r)
        if not ok:
            raise OSError("the mount could not be attached")
        self.ns = os.open(f"/proc/{self.pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)

    def run(self, script):
        """A shell script as root of the user namespace: (exit status, output)."""
        out_r, out_w = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.dup2(out_w, 1)
                os.dup2(out_w, 2)
                check(libc.setns(self.ns, CLONE_NEWNS), "setns")
                os.chroot("/mnt")
                os.chdir("/")
                check(libc.setns(self.userns.fd, CLONE_NEWUSER), "setns")
                os.setgroups([])
                os.setresgid(0, 0, 0)
                os.setresuid(0, 0, 0)
                os.execve("/bin/sh", ["sh", "-c", script], {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})
            except BaseException as error:
                os.write(2, repr(error).encode())
            finally:
                os._exit(127)
        os.close(out_w)
        with os.fdopen(out_r, "rb") as f:
            text = f.read().decode(errors="replace")
        _, status = os.waitpid(pid, 0)
        return os.waitstatus_to_exitcode(status), text

    def close(self):
        if self.pid:
            os.close(self.ns)
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0
