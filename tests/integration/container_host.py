"""container_host.py: the container backend alone: mounter, spawners, container_drive, probe_init as PID 1.

    class T(ContainerTest):              # setUp: a private state directory, helpers, a busybox layer
        def test_x(self):
            box = self.start()           # dict: name, pid, slot, ticks
            self.assertEqual(self.sh(box, "id -u"), "0")

tearDown destroys what lives, ends the helpers and then asserts that nothing is left: no process, cgroup, mount,
loop device or channel socket of this state directory. That is the leak test of every case here.
"""
import os
import pathlib
import select
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
import json

import harness
import leaks
from harness import find_program, wait_until

CPUS = os.cpu_count()


def busybox_tree(root):
    """A minimal root from the host's static busybox, and a /proc that is a plain directory."""
    for d in ("bin", "dev", "etc", "proc", "root", "run", "sys", "tmp"):
        (root / d).mkdir(parents=True)
    shutil.copy(harness.BUSYBOX, root / "bin" / "busybox")
    for applet in subprocess.check_output([harness.BUSYBOX, "--list"], text=True).split():
        if not (root / "bin" / applet).exists():
            (root / "bin" / applet).symlink_to("busybox")
    (root / "etc" / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")


class Driver:
    """container_drive: a line in, a line out, matched by verb and name."""

    def __init__(self, base, max_sandboxes=32, pool=2):
        self.proc = subprocess.Popen(
            [find_program("container_drive"), base / "edge", base / "run", base / "L", str(max_sandboxes), str(pool)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self.lines, self.part = [], b""
        self.expect("open", "-")

    def send(self, line):
        self.proc.stdin.write(f"{line}\n".encode())
        self.proc.stdin.flush()

    def expect(self, verb, name=None, timeout=20):
        """The words of the next `ok`/`error`/`exit` line of that verb and name, whatever comes before it."""
        deadline = time.monotonic() + timeout
        while True:
            for i, words in enumerate(self.lines):
                if words[0] == verb == "exit" and words[1] == name:
                    return self.lines.pop(i)
                if words[1] == verb and name in (None, words[2]):
                    return self.lines.pop(i)
            self.read_lines(verb, deadline)

    def read_lines(self, verb, deadline):
        if not select.select([self.proc.stdout], [], [], max(0, deadline - time.monotonic()))[0]:
            raise TimeoutError(f"{verb}: no answer; seen {self.lines}")
        chunk = os.read(self.proc.stdout.fileno(), 1 << 20)
        if not chunk:
            raise RuntimeError(f"container_drive ended with {self.proc.wait()}; seen {self.lines}")
        self.part += chunk
        *whole, self.part = self.part.split(b"\n")
        self.lines += [line.decode().split(" ") for line in whole]

    def call(self, line):
        self.send(line)
        verb, _, rest = line.partition(" ")
        return self.expect(verb, rest.split(" ")[0] if verb not in ("reconcile", "pool") else None)

    def close(self):
        self.send("close")
        status = self.proc.wait(30)
        self.proc.stdout.close()
        self.proc.stdin.close()
        return status

    def kill(self):
        self.proc.kill()
        self.proc.wait()
        self.proc.stdout.close()
        self.proc.stdin.close()


class ContainerTest(unittest.TestCase):
    SPAWNERS = 1
    PID1 = "probe_init"

    def setUp(self):
        if os.geteuid() != 0:
            self.skipTest("needs root")
        self.base = pathlib.Path(tempfile.mkdtemp(prefix="container-it-", dir=harness.TMP))
        self.addCleanup(shutil.rmtree, self.base, ignore_errors=True)
        for d in ("run", "state", "edge", "L"):
            (self.base / d).mkdir(mode=0o700)
        self.helpers, self.live, self.number = {}, [], 0
        self.addCleanup(self.undo)
        busybox_tree(self.base / "tree")
        self.layer = self.add_layer(self.base / "tree")
        self.start_mounter()
        for i in range(self.SPAWNERS):
            self.start_spawner(i)
        self.drive = Driver(self.base)

    def add_layer(self, tree):
        tar = subprocess.Popen(["tar", "-C", tree, "-c", "."], stdout=subprocess.PIPE)
        out = subprocess.check_output([find_program("dsec-layer-import"), "--layer-dir", self.base / "L"], stdin=tar.stdout)
        tar.stdout.close()
        tar.wait()
        return json.loads(out)["digest"]

    def helper(self, name, argv, sock):
        path = self.base / "run" / sock
        path.unlink(missing_ok=True)
        log = open(self.base / f"{name}.log", "ab")
        self.helpers[name] = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        log.close()

        def ready():
            if self.helpers[name].poll() is not None:
                raise RuntimeError(f"{name} ended:\n" + (self.base / f"{name}.log").read_text())
            return path.exists()
        wait_until(f"{name} ready", 30, ready)

    def start_mounter(self):
        self.helper("mounter", [find_program("dsec-mounter"), "--run-dir", self.base / "run", "--state-dir",
                                self.base / "state", "--layer-dir", self.base / "L"], "mounter.sock")

    def start_spawner(self, i=0):
        self.helper(f"spawner-{i}", [find_program("dsec-spawner"), "--run-dir", self.base / "run", "--index", str(i),
                                     "--chronus", find_program(self.PID1)], f"spawner-{i}.sock")

    def kill_helper(self, name):
        self.helpers[name].kill()
        self.helpers.pop(name).wait()

    def new_name(self):
        self.number += 1
        return "sb-t0-" + f"{self.number:x}".replace("0", "g").replace("1", "h").rjust(26, "a").translate(
            str.maketrans("89", "yz"))

    def start_line(self, name, cpu=1000, memory=256, disk=64, pids=64, layer=None):
        return f"start {name} {layer or self.layer} {cpu} {memory} {disk} {pids}"

    def start(self, **limits):
        name = self.new_name()
        words = self.drive.call(self.start_line(name, **limits))
        self.assertEqual(words[0], "ok", words)
        box = {"name": name, "pid": int(words[3]), "slot": int(words[4]), "ticks": int(words[5])}
        self.live.append(box)
        return box

    def destroy(self, box):
        self.live.remove(box)
        words = self.drive.call(f"destroy {box['name']}")
        self.assertEqual(words[0], "ok", words)

    def ask(self, box, verb, command):
        """(output, exit status) of a shell line in the sandbox."""
        words = self.drive.call(f"ask {box['name']} {verb} {command}")
        self.assertEqual(words[0], "ok", words)
        text = bytes.fromhex(words[3]).decode(errors="replace")
        out, _, status = text.rpartition("\nexit ")
        return out.strip("\n"), int(status)

    def sh(self, box, command):
        return self.ask(box, "sh", command)[0]

    def stats(self, box):
        words = self.drive.call(f"stats {box['name']}")
        self.assertEqual(words[0], "ok", words)
        return {k: int(v) for k, v in (w.split("=") for w in words[3:])}

    def undo(self):
        """In any order of things gone wrong: end all, then count what is left."""
        drive, self.drive = getattr(self, "drive", None), None
        if drive and drive.proc.poll() is None:
            for box in self.live:
                drive.call(f"destroy {box['name']}")
            self.assertEqual(drive.close(), 0)
        for p in self.helpers.values():
            p.send_signal(signal.SIGTERM)
        for p in self.helpers.values():
            p.wait(30)
        self.assert_nothing_left()

    def cgroups(self):
        """Our directories in every hierarchy, from the record and from the hash alike."""
        tag = 2166136261
        for byte in str(self.base / "edge").encode():
            tag = (tag ^ byte) * 16777619 & 0xFFFFFFFF
        found = []
        for top in leaks.cgroup_mounts():
            for path, dirs, _ in os.walk(str(top)):
                found += [os.path.join(path, d) for d in dirs if d == f"dsec-{tag:08x}"]
                if path.count("/") > 8:
                    dirs.clear()
        return found

    def assert_nothing_left(self):
        self.assertEqual(self.cgroups(), [])  # and so no process of a sandbox either
        self.assertEqual(leaks.daemon_pids(self.base), [])
        self.assertEqual([p.name for p in (self.base / "edge").glob("ch/*")], [])
        mounts = leaks.read("/proc/self/mountinfo").decode()
        self.assertNotIn(str(self.base), mounts)
        loops = subprocess.run(["losetup", "-a"], capture_output=True, text=True, check=False).stdout
        self.assertNotIn(str(self.base), loops)
