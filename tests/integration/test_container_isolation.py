"""What root inside a container sees and may do; each fact is one that an escape would begin with."""
import hashlib
import os
import pathlib
import subprocess
import unittest

from container_host import CPUS, ContainerTest


class Isolation(ContainerTest):
    def status(self, box):
        return pathlib.Path(f"/proc/{box['pid']}/status").read_text()

    def test_view(self):
        box = self.start(cpu=1000, memory=256)
        with self.subTest("who"):
            self.assertEqual(self.sh(box, "id -u; id -g; id -G"), "0\n0\n0")
        with self.subTest("host name"):
            self.assertEqual(self.sh(box, "hostname"), "sb-" + box["name"].rpartition("-")[2][:12])
        with self.subTest("only its own processes"):
            self.assertEqual(len(self.sh(box, "echo /proc/[0-9]*").split()), 2)  # PID 1 and the shell
        with self.subTest("no mount of the host"):
            mounts = self.sh(box, "cat /proc/self/mountinfo").splitlines()
            types = {line.split(" - ")[1].split()[0] for line in mounts}
            self.assertEqual(types, {"overlay", "proc", "sysfs", "tmpfs", "devpts"})
            # Mount points and what of a file system is shown; an overlay of an older kernel names its
            # lower directories among its options, which are only words.
            self.assertNotIn(str(self.base), "".join(m.split(" - ")[0] for m in mounts))
            self.assertEqual([m for m in mounts if m.split()[4] == "/"][0].split(" - ")[1].split()[0], "overlay")
        with self.subTest("only lo, up, with its address"):
            self.assertEqual(self.sh(box, "ls /sys/class/net; cat /proc/net/dev | wc -l"), "lo\n3")
            self.assertIn("127.0.0.1", self.sh(box, "ifconfig lo"))
        with self.subTest("cgroup namespace starts at the sandbox"):
            for line in self.sh(box, "cat /proc/self/cgroup").splitlines():
                path = line.split(":", 2)[2]
                self.assertIn(path, ("/", "/work/e-0"))
        with self.subTest("devices"):
            self.assertEqual(self.sh(box, "ls /dev").split(), ["fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr",
                                                               "stdin", "stdout", "tty", "urandom", "zero"])
            self.assertEqual(self.sh(box, "echo x > /dev/null; head -c 4 /dev/zero | wc -c; echo y > /dev/shm/f; cat /dev/shm/f"),
                             "4\ny")
            self.assertIn("denied", self.sh(box, "echo x > /dev/new").lower() + "denied" * ("Read-only" in self.sh(
                box, "echo x > /dev/new")))
        with self.subTest("files belong to the root inside"):
            self.assertEqual(self.sh(box, "stat -c %u:%g /bin/busybox; touch /root/a; stat -c %u /root/a; chown 12:34 /root/a; "
                                          "stat -c %u:%g /root/a"), "0:0\n0\n12:34")

    def test_limits_are_what_is_seen(self):
        box = self.start(cpu=1000, memory=192)
        self.assertEqual(self.sh(box, "nproc"), "1")
        self.assertEqual(self.sh(box, "grep -c ^processor /proc/cpuinfo"), "1")
        for name in ("online", "present", "possible"):
            self.assertEqual(self.sh(box, f"cat /sys/devices/system/cpu/{name}"), "0")
        self.assertEqual(self.sh(box, "grep MemTotal /proc/meminfo").split()[1], str(192 * 1024))
        whole = self.start(cpu=CPUS * 1000, memory=64)
        self.assertEqual(self.sh(whole, "nproc; grep -c ^processor /proc/cpuinfo"), f"{CPUS}\n{CPUS}")

    def test_pid1_is_out_of_reach(self):
        box = self.start()
        for command in ("kill -9 1", "kill -STOP 1", "cat /proc/1/environ", "readlink /proc/1/exe", "ls /proc/1/fd", "cat /proc/1/maps",
                        "ls /proc/1/root/", "cat /proc/1/mem", "renice -n 5 1", "echo 500 > /proc/1/oom_score_adj"):
            with self.subTest(command):
                _, status = self.ask(box, "sh", f"{command} >/dev/null 2>&1")
                self.assertNotEqual(status, 0)
        self.ask(box, "sh", "kill -9 -1")
        self.assertEqual(self.sh(box, "echo alive"), "alive")
        status = dict(line.split(":\t", 1) for line in self.status(box).splitlines() if ":\t" in line)
        self.assertEqual(status["Uid"].split(), [str(0xF0000000 + box["slot"])] * 4)
        self.assertEqual({status[k] for k in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")}, {"0" * 16})
        self.assertEqual(status["Groups"].strip(), "")
        self.assertEqual(status["Seccomp"].strip(), "2")  # the spawner's broad filter

    def test_what_is_locked(self):
        box = self.start()
        for command in ("mount -t tmpfs none /tmp", "umount /proc/sys", "umount /dev/shm", "mount -o remount,rw /sys",
                        "mount -o remount,rw /proc/sys", "unshare -m true", "unshare -n true", "unshare -U true", "unshare -p true",
                        "unshare -i true", "unshare -u true", "unshare -C true", "hostname other", "ip link add d0 type dummy",
                        "ip addr add 10.0.0.1/8 dev lo", "mknod /tmp/n c 1 3", "echo 1 > /proc/sys/user/max_user_namespaces",
                        "echo 1 > /proc/sys/kernel/panic", "echo h > /proc/sysrq-trigger", "pivot_root / /tmp",
                        "nsenter -t 1 -m true", "chroot /proc/1/root true", "dmesg", "swapon /bin/busybox"):
            with self.subTest(command):
                _, status = self.ask(box, "sh", f"{command} >/dev/null 2>&1")
                self.assertNotEqual(status, 0)
        with self.subTest("masked"):
            self.assertEqual(self.sh(box, "cat /proc/keys /proc/timer_list /proc/kpagecount 2>/dev/null; ls /sys/firmware"), "")
        with self.subTest("the old trick out of a chroot"):
            self.assertEqual(self.sh(box, "mkdir -p /tmp/c/bin; cp /bin/busybox /tmp/c/bin/sh; chroot /tmp/c /bin/sh -c "
                                          "'cd ../../../../..; echo *' ; ls -d /t /mask 2>/dev/null"), "bin")
        with self.subTest("low ports and ping are allowed"):
            self.assertEqual(self.ask(box, "sh", "timeout 1 nc -l -p 80; test $? -ge 124")[1], 0)
            self.assertEqual(self.ask(box, "self", "cat /proc/sys/net/ipv4/ping_group_range")[0].split(), ["0", "2147483647"])

    def test_two_do_not_meet(self):
        a, b = self.start(), self.start()
        self.sh(a, "echo secret > /dev/shm/x; echo secret > /tmp/x; echo secret > /x")
        self.assertEqual(self.sh(b, "cat /dev/shm/x /tmp/x /x 2>/dev/null"), "")
        maps = [self.status(x) for x in (a, b)]
        self.assertNotEqual(*[m.split("\nUid:")[1].split()[0] for m in maps])
        for ns in ("mnt", "pid", "ipc", "uts", "net", "cgroup"):
            self.assertEqual(len({os.readlink(f"/proc/{x}/ns/{ns}") for x in (a["pid"], b["pid"], "self")}), 3, ns)

    def raw_layer(self, tree):
        """Past the importer, which may refuse what the spawner must refuse as well."""
        image = self.base / "raw.erofs"
        subprocess.run(["mkfs.erofs", "-T", "0", image, tree], check=True, stdout=subprocess.DEVNULL)
        digest = hashlib.sha256(image.read_bytes()).hexdigest()
        folder = self.base / "L" / f"sha256-{digest}"
        folder.mkdir()
        image.rename(folder / "image.erofs")
        (folder / "layer.json").write_bytes(next((self.base / "L").glob("sha256-*/layer.json")).read_bytes())
        return f"sha256:{digest}"

    def test_hostile_layer(self):
        """A layer whose mount points are links is refused; nothing of the host is mounted over."""
        for name in ("proc", "sys", "dev"):
            tree = self.base / f"bad-{name}"
            (tree / "bin").mkdir(parents=True)
            (tree / name).symlink_to("/tmp")
            words = self.drive.call(self.start_line(self.new_name(), layer=self.raw_layer(tree)))
            self.assertEqual(words[:2] + words[3:4], ["error", "start", "layer_broken"], words)


if __name__ == "__main__":
    unittest.main()
