"""dsec-mounter on real kernel objects: overlays, limits, crashes, nothing left."""
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import shutil
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import layers_help as h  # noqa: E402

BUSYBOX = "/bin/busybox"
APPLETS = "sh ls cat dd id stat touch chown chmod mv mkdir rm rmdir ln sync test head mknod readlink find".split()


def base_tar(extra=()):
    """A root of busybox and a few files; extra: (name, bytes) more."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        def add(name, data=None, **kw):
            info = tarfile.TarInfo(name)
            info.mtime = 1000
            for key, value in kw.items():
                setattr(info, key, value)
            if data is not None:
                info.size = len(data)
            tar.addfile(info, io.BytesIO(data) if data is not None else None)
        for d in ("bin", "etc", "home", "lowerdir"):
            add(d, type=tarfile.DIRTYPE, mode=0o755)
        with open(BUSYBOX, "rb") as f:
            add("bin/busybox", f.read(), mode=0o755)
        for a in APPLETS:
            add("bin/" + a, type=tarfile.SYMTYPE, linkname="busybox")
        add("etc/hello", b"from the layer\n", mode=0o644)
        add("home/alice", b"hers\n", uid=1000, gid=1001, mode=0o600)
        add("lowerdir/x", b"x\n")
        for name, data in extra:
            add(name, data)
    return out.getvalue()


def import_tar(layer_dir, data):
    run = subprocess.run([h.program("dsec-layer-import"), "--layer-dir", layer_dir], input=data,
                         stdout=subprocess.PIPE, timeout=60)
    return json.loads(run.stdout)


@unittest.skipUnless(os.geteuid() == 0, "needs root")
@unittest.skipUnless(os.path.exists(BUSYBOX), "needs busybox-static")
class MounterTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.store = tempfile.mkdtemp(prefix="layers-s-", dir="/tmp")
        cls.layer = import_tar(cls.store, base_tar())["digest"]
        cls.userns = h.UserNamespace()

    @classmethod
    def tearDownClass(cls):
        cls.userns.close()
        shutil.rmtree(cls.store)

    def setUp(self):
        self.mounter = h.Mounter(self.store)
        self.client = self.mounter.client()
        self.roots = []
        self.addCleanup(self.nothing_left)

    def nothing_left(self):
        for root in self.roots:
            root.close()
        self.client.close()
        directory = self.mounter.dir
        self.assertEqual(self.mounter.stop(), 0)
        self.assertFalse(os.path.exists(directory))
        self.assertTrue(h.wait_until(lambda: not h.loops_of(directory)), "a loop device is left")
        with open("/proc/self/mounts") as f:
            self.assertNotIn(os.path.basename(directory), f.read())

    def prepare(self, sandbox=None, layer=None, userns=None, disk=64 << 20):
        sandbox = sandbox or h.sandbox_id()
        reply = self.client.prepare(sandbox, layer or self.layer, userns or self.userns, disk)
        self.assertEqual((reply.err, reply.error), (0, ""))
        self.assertEqual(len(reply.fds), 1)
        self.roots.append(h.Root(userns or self.userns, reply.fds[0]))
        return sandbox, self.roots[-1]

    def inside(self, root, script):
        status, text = root.run(script)
        self.assertEqual(status, 0, text)
        return text

    def restart(self):
        self.mounter.start()
        self.client.close()
        self.client = self.mounter.client()

    def used(self, sandbox):
        reply = self.client.call(h.USAGE, sandbox)
        self.assertEqual((reply.err, reply.error), (0, ""))
        return reply.limit, reply.used

    def test_owners_are_zero_based_inside_and_on_disk(self):
        sandbox, fd = self.prepare()
        text = self.inside(fd, """
            set -e
            stat -c '%u:%g %a %n' / /etc /etc/hello /home/alice /bin/sh /tmp
            cat /etc/hello
            echo changed >/etc/hello; chown 5:6 /lowerdir/x; mkdir /new; echo y >/new/f
            chown 1000:1001 /new/f; mv /lowerdir /moved; rm /home/alice
            stat -c '%u:%g %n' /etc/hello /moved/x /new /new/f
            test ! -e /home/alice; cat /etc/hello
            rmdir /run; mkdir /run; chmod 4755 /new/f""")
        for line in ("0:0 755 /\n", "0:0 644 /etc/hello", "1000:1001 600 /home/alice", "0:0 1777 /tmp",
                     "from the layer", "0:0 /etc/hello", "5:6 /moved/x", "0:0 /new\n", "1000:1001 /new/f", "changed"):
            self.assertIn(line, text)
        # The next sandbox has another id range and sees none of it.
        other = h.UserNamespace(0x70000000 + 65536)
        self.addCleanup(other.close)
        second, fd2 = self.prepare(userns=other)
        text = self.inside(fd2, "stat -c '%u:%g %n' /etc/hello /home/alice; cat /etc/hello; ls /")
        self.assertIn("1000:1001 /home/alice", text)
        self.assertIn("from the layer", text)
        self.assertNotIn("moved", text)
        # On the volume owners are those of the inside.
        root = f"/proc/{self.mounter.proc.pid}/root{self.mounter.dir}/mnt/volume/{sandbox}/upper"
        self.assertEqual(os.lstat(root + "/new/f").st_uid, 1000)
        self.assertEqual(os.lstat(root + "/etc/hello").st_uid, 0)
        for i in (sandbox, second):
            self.assertEqual(self.client.call(h.RELEASE, i).err, 0)

    def test_setuid_works_and_devices_do_not(self):
        _, root = self.prepare()
        flags = os.statvfs(f"/proc/{root.pid}/root/mnt").f_flag
        self.assertFalse(flags & os.ST_NOSUID)
        self.assertTrue(flags & os.ST_NODEV)
        self.assertFalse(flags & os.ST_RDONLY)

    def test_inode_numbers_survive_copying_up(self):
        _, fd = self.prepare()
        text = self.inside(fd, "stat -c %d:%i /etc/hello; echo x >>/etc/hello; stat -c %d:%i /etc/hello; "
                               "stat -c %d /; stat -c %d /bin/busybox")
        before, after, root, lower = text.split()
        self.assertEqual(before, after)
        self.assertEqual(root, before.split(":")[0])
        self.assertEqual(root, lower)

    def test_limit(self):
        sandbox, fd = self.prepare(disk=32 << 20)
        limit, used = self.used(sandbox)
        self.assertEqual(limit, 32 << 20)
        self.assertLess(used, 1 << 20)
        status, text = fd.run("while cat /bin/busybox; do :; done >/big")
        self.assertIn("quota exceeded", text.lower())
        limit, used = self.used(sandbox)
        self.assertGreater(used, 30 << 20)
        self.assertLessEqual(used, limit)
        # Many small files hit it as well, and it is only this one's.
        _, other = self.prepare(disk=32 << 20)
        self.assertIn("done", self.inside(other, "cat /bin/busybox >/b; echo done"))
        # What was removed can be written again at once; the figures follow later.
        self.inside(fd, "rm /big; for i in 1 2 3 4 5 6 7 8 9 10; do cat /bin/busybox; done >/again; rm /again")
        self.assertTrue(h.wait_until(lambda: self.used(sandbox)[1] < 4 << 20, 30), "space is not given back")

    def test_many_inodes_hit_the_limit(self):
        sandbox, fd = self.prepare(disk=8 << 20)
        _, text = fd.run("mkdir /d && cd /d && i=0; "
                               "while [ $i -lt 60000 ] && echo -n >f-$i; do i=$((i+1)); done; echo made $i")
        self.assertIn("quota exceeded", text.lower())
        self.assertLess(int(text.split("made ")[1]), 60000)

    def test_limit_bounds(self):
        self.prepare(disk=4 << 20)
        reply = self.client.prepare(h.sandbox_id(), self.layer, self.userns, (4 << 20) - 1)
        self.assertLess(reply.err, 0)
        self.assertIn("at least 4 MiB", reply.error)

    def test_release_and_reconcile(self):
        kept, fd = self.prepare()
        gone, fd2 = self.prepare()
        fd2.close()
        self.assertEqual(self.client.reconcile([kept]).used, 1)
        self.assertEqual(self.client.reconcile([kept]).used, 0)
        self.assertLess(self.client.call(h.USAGE, gone).err, 0)
        self.used(kept)
        self.inside(fd, "echo x >/f")
        for _ in range(2):  # absent is success
            self.assertEqual(self.client.call(h.RELEASE, kept).err, 0)
        fd.close()
        self.prepare(kept)  # the name is free again
        reply = self.client.prepare(kept, self.layer, self.userns)
        self.assertIn("exists already", reply.error)
        self.assertFalse(reply.fds)

    def test_two_layers(self):
        top = import_tar(self.store, base_tar([("etc/hello", b"from the top\n"), ("etc/top", b"1")]))["digest"]
        _, fd = self.prepare(layer=[self.layer, top])
        self.assertIn("from the top", self.inside(fd, "cat /etc/hello; ls /etc"))

    def test_bad_requests(self):
        good = h.sandbox_id()
        for call, words in (
                (dict(op=h.PREPARE, sandbox="../x", layers=[self.layer], fd=self.userns.fd), "not a sandbox id"),
                (dict(op=h.PREPARE, sandbox=good, layers=[self.layer]), "user namespace"),
                (dict(op=h.PREPARE, sandbox=good, layers=["sha256:" + "0" * 64], fd=self.userns.fd), "not in the store"),
                (dict(op=h.PREPARE, sandbox=good, layers=["sha256:../../../etc"], fd=self.userns.fd), "64 hex"),
                (dict(op=h.PREPARE, sandbox=good, fd=self.userns.fd), "a layer is missing"),
                (dict(op=99), "unknown mounter request"),
                (dict(op=h.PROBE, version=2), "protocol 2"),
                (dict(op=h.RECONCILE), "descriptor"),
                (dict(op=h.USAGE, sandbox=good), "no disk named")):
            reply = self.client.call(**call)
            self.assertLess(reply.err, 0)
            self.assertIn(words, reply.error)
        # A descriptor that is no user namespace leaves no subvolume behind.
        with open("/dev/null") as null:
            reply = self.client.call(h.PREPARE, good, [self.layer], fd=null.fileno())
        self.assertLess(reply.err, 0)
        self.assertLess(self.client.call(h.USAGE, good).err, 0)
        # A short packet ends that client only.
        rude = self.mounter.client()
        rude.sock.send(b"hello")
        self.assertEqual(rude.sock.recv(10), b"")
        rude.close()
        self.assertIn("volume:", self.client.call(h.PROBE).message)

    def test_broken_layer(self):
        name = "sha256-" + "ab" * 32
        os.mkdir(os.path.join(self.store, name))
        with open(os.path.join(self.store, name, "image.erofs"), "wb") as f:
            f.write(b"\0" * 8192)
        sandbox = h.sandbox_id()
        reply = self.client.prepare(sandbox, name.replace("-", ":"), self.userns)
        self.assertIn("does not mount", reply.error)
        self.assertLess(self.client.call(h.USAGE, sandbox).err, 0)

    def test_a_client_that_does_not_read_harms_nobody(self):
        lazy = self.mounter.client()
        lazy.sock.settimeout(0.2)
        sent = 0
        try:
            while sent < 100000:
                lazy.send(h.PROBE)
                sent += 1
        except TimeoutError:
            pass
        self.assertLess(sent, 100000)
        self.assertIn("volume:", self.client.call(h.PROBE).message)
        for token in range(1, sent + 1):  # in order, none lost
            self.assertEqual(lazy.recv().token, token)
        lazy.close()

    def test_kill_and_restart(self):
        sandbox, fd = self.prepare()
        self.inside(fd, "echo before >/f")
        loop = h.loops_of(self.mounter.dir)
        self.assertEqual(len(loop), 1)
        self.mounter.kill()
        # The overlay of a live sandbox goes on, on the same superblock.
        self.assertIn("before", self.inside(fd, "cat /f; echo between >/g"))
        self.restart()
        self.assertEqual(h.loops_of(self.mounter.dir), loop)
        self.assertIn("found again", self.client.call(h.PROBE).message)
        self.assertEqual(self.used(sandbox)[0], 64 << 20)
        self.assertIn("between", self.inside(fd, "cat /g"))
        _, fd2 = self.prepare()
        self.assertIn("from the layer", self.inside(fd2, "cat /etc/hello"))
        self.assertEqual(self.client.reconcile([sandbox]).used, 1)

    def test_kill_without_sandboxes_makes_a_new_volume(self):
        for _ in range(3):
            self.prepare()[1].close()
            self.mounter.kill()
            self.restart()
            self.assertEqual(len(h.loops_of(self.mounter.dir)), 1)

    def test_watermark(self):
        free = os.statvfs(self.mounter.dir)
        self.mounter.proc.send_signal(signal.SIGTERM)
        self.assertEqual(self.mounter.proc.wait(20), 0)
        self.mounter.args += ("--reserve-bytes", str(free.f_bavail * free.f_frsize * 2))
        self.restart()
        reply = self.client.prepare(h.sandbox_id(), self.layer, self.userns)
        self.assertLess(reply.err, 0)
        self.assertIn("refused below", reply.error)

    def test_state_directory_on_btrfs(self):
        """The host's own btrfs serves when it has quotas on, and is left alone when not."""
        where = tempfile.mkdtemp(prefix="layers-b-", dir="/tmp")
        self.addCleanup(shutil.rmtree, where)
        image, point = os.path.join(where, "img"), os.path.join(where, "point")
        os.mkdir(point)
        with open(image, "wb") as f:
            f.truncate(3 << 30)
        subprocess.check_call(["mkfs.btrfs", "-q", "-K", image], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        subprocess.check_call(["mount", "-o", "loop", image, point])
        try:
            for quota, provider in ((False, "btrfs-loop"), (True, "btrfs-dir")):
                if quota:
                    subprocess.check_call(["btrfs", "quota", "enable", point])
                self.on_btrfs(point, provider)
        finally:
            subprocess.check_call(["umount", point])

    def on_btrfs(self, point, provider):
        mounter = h.Mounter(self.store, "--volume-bytes", str(1 << 30), where=point)
        client = mounter.client()
        try:
            self.assertIn(provider, client.call(h.PROBE).message)
            sandbox = h.sandbox_id()
            reply = client.prepare(sandbox, self.layer, self.userns, 16 << 20)
            self.assertEqual((reply.err, reply.error), (0, ""))
            root = h.Root(self.userns, reply.fds[0])
            _, text = root.run("cat /etc/hello; while cat /bin/busybox; do :; done >/big")
            root.close()
            self.assertIn("from the layer", text)
            self.assertIn("quota exceeded", text.lower())
            self.assertEqual(client.call(h.USAGE, sandbox).limit, 16 << 20)
            self.assertEqual(client.reconcile([]).used, 1)
        finally:
            client.close()
            self.assertEqual(mounter.stop(), 0)

    def test_forget_layer(self):
        _, fd = self.prepare()
        self.assertIn("a moment ago", self.client.call(h.FORGET_LAYER, layers=[self.layer]).error)
        self.assertEqual(self.client.call(h.FORGET_LAYER, layers=["sha256:" + "1" * 64]).err, 0)


if __name__ == "__main__":
    unittest.main()
