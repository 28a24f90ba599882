"""chronus by itself: file operations, by a worker inside as the asked user."""
import io
import os
import stat
import tarfile
import time
import unittest

from chronus_client import FileError
from harness import wait_until
from test_chronus_exec import ChronusTest


class FilesTest(ChronusTest):
    def setUp(self):
        super().setUp()
        self.ok("rm -rf /root/* /root/.[!.]* /home/agent/* /tmp/*; true")

    def do(self, op, path, **kw):
        f = self.edge.file(op, path, **kw)
        f.done = f.wait()
        return f

    def refused(self, code, op, path, **kw):
        with self.assertRaises(FileError) as c:
            self.do(op, path, **kw)
        self.assertEqual(c.exception.code, code, c.exception)
        return c.exception

    def read(self, path, **kw):
        return self.do("read", path, **kw).bytes


class Basic(FilesTest):
    def test_write_read(self):
        self.do("write", "/root/a", data=b"hello")
        self.assertEqual(self.read("/root/a"), b"hello")
        self.assertEqual(self.read("a", offset=1, length=3), b"ell")
        self.assertEqual(self.read("a", offset=100), b"")
        self.assertEqual(self.ok("stat -c '%a %U' /root/a").out, b"644 root\n")
        self.do("write", "/root/empty", data=b"")
        self.assertEqual(self.do("stat", "/root/empty").stat["size"], 0)

    def test_big_file_with_constant_memory(self):
        data = os.urandom(1 << 20) * 20
        self.do("write", "/tmp/big", data=data)
        self.assertEqual(self.read("/tmp/big"), data)
        self.assertLess(self.host.rss_kib(), 1500)

    def test_modes(self):
        self.do("write", "/root/x", data=b"1", mode=0o750)
        self.assertEqual(self.ok("stat -c %a /root/x").out, b"750\n")
        self.do("write", "/root/x", data=b"2")  # a rewritten file keeps its mode
        self.assertEqual(self.ok("stat -c %a /root/x").out, b"750\n")

    def test_write_makes_parents_when_asked(self):
        self.refused("file_not_found", "write", "/root/d/e/f", data=b"x")
        self.do("write", "/root/d/e/f", data=b"x", parents=True)
        self.assertEqual(self.read("/root/d/e/f"), b"x")
        self.do("write", "top", data=b"y", parents=True)
        self.refused("not_a_directory", "write", "/root/top/x", data=b"y", parents=True)

    def test_write_through_a_link_and_over_odd_targets(self):
        self.ok("echo old > real; ln -s real link; ln -s nowhere dangling; mkdir dir; mkfifo fifo")
        self.do("write", "link", data=b"new")
        self.assertEqual(self.ok("cat real; test -L link && echo L").out, b"newL\n")
        self.do("write", "dangling", data=b"d")
        self.assertEqual(self.ok("cat dangling; test -L dangling || echo plain").out, b"dplain\n")
        self.refused("is_a_directory", "write", "dir", data=b"x")
        self.refused("is_a_directory", "write", "/", data=b"x")
        self.do("write", "fifo", data=b"f")  # replaced, not opened
        self.assertEqual(self.read("fifo"), b"f")

    def test_write_without_commit_leaves_the_old_file(self):
        self.do("write", "keep", data=b"old")
        self.refused("bad_request", "write", "keep", data=b"new", commit=False)
        self.assertEqual(self.read("keep"), b"old")
        # The connection is lost in the middle
        f = self.edge.file("write", "keep")
        f.s.write(b"half" * 1000)
        self.edge.pump(0.2)
        self.edge.close()
        self.edge = self.host.connect()
        self.edge.hello()
        wait_until("the worker to end", 5, lambda: not self.host.leaves())
        self.assertEqual(self.read("keep"), b"old")
        self.assertEqual(self.ok("ls -A /root").out, b"keep\n")

    def test_full_disk(self):
        self.do("write", "keep", data=b"old")
        e = self.refused("disk_full", "write", "/root/keep", data=b"x" * (70 << 20))
        self.assertEqual(e.err, 28)
        self.assertEqual(self.ok("cat keep; ls -A /root").out, b"oldkeep\n")

    def test_stat(self):
        self.ok("echo abc > f; ln -s f l; chmod 4755 f; mkdir d; touch -d @1234567890.5 f")
        s = self.do("stat", "/root/f").stat
        self.assertEqual((s["name"], s["size"], stat.S_IMODE(s["mode"]), s["uid"], s["nlink"], s["mtime_ns"]),
                         (b"f", 4, 0o4755, 0, 1, 1234567890500000000))
        s = self.do("stat", "l").stat
        self.assertTrue(stat.S_ISLNK(s["mode"]))
        self.assertEqual(s["link"], b"f")
        self.assertTrue(stat.S_ISREG(self.do("stat", "l", follow=True).stat["mode"]))
        self.assertTrue(stat.S_ISDIR(self.do("stat", "/").stat["mode"]))
        self.refused("file_not_found", "stat", "nothing")
        self.refused("not_a_directory", "stat", "f/x")
        self.refused("name_too_long", "stat", "x" * 5000)
        self.refused("name_too_long", "stat", "x" * 300)
        self.refused("bad_field", "stat", "")
        self.refused("bad_field", "stat", "a\0b")
        self.ok("ln -s loop loop")
        self.refused("path_unsafe", "stat", "loop/x")

    def test_list(self):
        self.ok("touch b a c; mkdir d; ln -s a l; printf x > $(printf '\\377\\001')")
        f = self.do("list", ".")
        self.assertEqual([e["name"] for e in f.entries], [b"a", b"b", b"c", b"d", b"l", b"\xff\x01"])
        self.assertEqual(f.entries[4]["link"], b"a")
        self.assertEqual(f.entries[5]["size"], 1)
        self.refused("not_a_directory", "list", "a")
        self.refused("file_not_found", "list", "zz")
        self.ok("mkdir many; cd many; seq 1 3000 | xargs touch")
        f = self.do("list", "/root/many")
        self.assertEqual([int(e["name"]) for e in f.entries], sorted(range(1, 3001), key=str))

    def test_read_refuses_what_may_never_end(self):
        self.ok("mkfifo f; mkdir d; ln -s /dev/zero z")
        self.refused("path_unsafe", "read", "f")
        self.refused("path_unsafe", "read", "z")
        self.refused("is_a_directory", "read", "d")
        self.assertIn(b"MemTotal", self.read("/proc/meminfo"))

    def test_no_way_into_pid_1(self):
        self.ok("ln -s /proc/1/root r; ln -s /proc/self/fd/3 s")
        for path in ("/proc/1/root/etc/passwd", "r/etc/passwd", "/proc/1/environ", "s", "/proc/self/root/etc/passwd"):
            with self.subTest(path), self.assertRaises(FileError) as c:
                self.do("read", path)
            self.assertIn(c.exception.code, ("permission_denied", "path_unsafe"))

    def test_mkdir(self):
        self.do("mkdir", "d", mode=0o777)
        self.assertEqual(self.ok("stat -c %a d").out, b"777\n")
        self.refused("file_exists", "mkdir", "d")
        self.refused("file_not_found", "mkdir", "x/y/z")
        self.do("mkdir", "x/y/z", parents=True)
        self.do("mkdir", "x/y/z", parents=True)
        self.do("mkdir", "/root/x/../w/./q/", parents=True)
        self.assertEqual(self.ok("test -d w/q && echo ok").out, b"ok\n")
        self.ok("touch file")
        self.refused("not_a_directory", "mkdir", "file/x", parents=True)
        self.refused("file_exists", "mkdir", "/")

    def test_move(self):
        self.ok("echo a > a; echo b > b; mkdir d")
        self.refused("file_exists", "move", "a", to="b")
        self.do("move", "a", to="b", overwrite=True)
        self.assertEqual(self.ok("cat b; ls").out, b"a\nb\nd\n")
        self.do("move", "b", to="/root/d/c")
        self.assertEqual(self.read("d/c"), b"a\n")
        self.refused("file_not_found", "move", "zz", to="y")
        self.refused("unsupported", "move", "d/c", to="/dev/shm/c")
        self.refused("bad_field", "move", "d/c", to="")

    def test_remove(self):
        self.ok("echo a > a; mkdir -p d/e/f; touch d/e/f/g d/h; ln -s /etc d/etc; ln -s d dl")
        self.do("remove", "a")
        self.refused("file_not_found", "remove", "a")
        self.refused("directory_not_empty", "remove", "d")
        self.do("remove", "dl", recursive=True)  # the link, not what it leads to
        self.assertEqual(self.ok("ls").out, b"d\n")
        self.do("remove", "d", recursive=True)
        self.assertEqual(self.ok("ls; test -e /etc/passwd && echo there").out, b"there\n")
        self.refused("permission_denied", "remove", "/", recursive=True)
        self.do("mkdir", "e")
        self.do("remove", "e")

    def test_remove_a_deep_tree(self):
        self.ok(["python3", "-c", "import os\nos.mkdir('/root/deep'); os.chdir('/root/deep')\n"
                                  "for i in range(3000):\n  os.mkdir('d' * 50); os.chdir('d' * 50)\n  open('f','w').close()\n"])
        self.do("remove", "deep", recursive=True)
        self.assertEqual(self.ok("ls").out, b"")


class Users(FilesTest):
    def test_as_a_user(self):
        self.do("write", "mine", data=b"m", user="agent")
        self.assertEqual(self.ok("stat -c '%U %G' /home/agent/mine").out, b"agent agent\n")
        self.ok("echo secret > /root/s; chmod 600 /root/s")
        self.refused("permission_denied", "read", "/root/s", user="agent")
        self.refused("permission_denied", "write", "/etc/x", data=b"1", user="agent")
        self.refused("permission_denied", "remove", "/etc/passwd", user="agent")
        self.refused("bad_user", "stat", "/", user="nobody-here")

    def test_root_reads_what_others_own(self):
        self.ok("umask 077; echo x > ~/p", user="agent")
        self.assertEqual(self.read("/home/agent/p"), b"x\n")


class Tar(FilesTest):
    def members(self, raw):
        with tarfile.open(fileobj=io.BytesIO(raw)) as t:
            return {m.name: (m, t.extractfile(m).read() if m.isreg() else None) for m in t.getmembers()}

    def make(self, *entries):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as t:
            for name, kind, extra in entries:
                m = tarfile.TarInfo(name)
                m.type, m.mtime, m.mode = kind, 1000000000, 0o640
                if kind == tarfile.REGTYPE:
                    m.size = len(extra)
                    t.addfile(m, io.BytesIO(extra))
                    continue
                if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
                    m.linkname = extra
                if kind == tarfile.DIRTYPE:
                    m.mode = extra or 0o750
                t.addfile(m)
        return out.getvalue()

    def test_out(self):
        long = "n" * 200
        self.ok(f"mkdir -p t/sub/{long}; echo one > t/one; chmod 4711 t/one; ln t/one t/sub/hard; ln -s one t/soft; mkfifo t/fifo; "
                f"echo deep > t/sub/{long}/f; touch -d @1000000001 t/one; head -c 100000 /dev/zero > t/zeros; mkdir t/empty")
        m = self.members(self.do("tar_out", "t").bytes)
        self.assertEqual(set(m), {"one", "soft", "fifo", "sub", "sub/hard", f"sub/{long}", f"sub/{long}/f", "zeros", "empty"})
        self.assertEqual(m[f"sub/{long}/f"][1], b"deep\n")
        self.assertEqual(m["zeros"][1], bytes(100000))
        one, hard = m["one"][0], m["sub/hard"][0]
        self.assertEqual({one.type, hard.type}, {tarfile.REGTYPE, tarfile.LNKTYPE})
        self.assertEqual((one.mode, one.mtime), (0o4711, 1000000001))
        self.assertEqual((m["soft"][0].linkname, m["fifo"][0].type), ("one", tarfile.FIFOTYPE))
        self.refused("not_a_directory", "tar_out", "t/one")
        self.refused("file_not_found", "tar_out", "tt")

    def test_gnu_tar_reads_it(self):
        self.ok("mkdir t; cd t; for i in $(seq 200); do head -c $((i * 37)) /dev/urandom > f$i; done")
        raw = self.do("tar_out", "t").bytes
        self.do("write", "t.tar", data=raw)
        self.ok("mkdir u; tar -xf t.tar -C u; diff -r t u")

    def test_in(self):
        long = "l" * 180
        raw = self.make(("d", tarfile.DIRTYPE, 0o550), ("d/f", tarfile.REGTYPE, b"data"), ("d/h", tarfile.LNKTYPE, "d/f"),
                        ("./d/s", tarfile.SYMTYPE, "/etc/passwd"), (f"d/{long}", tarfile.REGTYPE, b"long"),
                        ("no/parent/here", tarfile.REGTYPE, b"x" * 100000))
        f = self.do("tar_in", "/root/dest/dir", data=raw)
        self.assertEqual(f.done[2][0], 6)
        x = self.ok(f"cd dest/dir; stat -c '%n %a %h %Y' d d/f d/h; cat d/f d/{long}; readlink d/s; stat -c '%s %a' no/parent/here; stat -c %a no")
        self.assertEqual(x.out.decode().split("\n"), ["d 550 2 1000000000", "d/f 640 2 1000000000", "d/h 640 2 1000000000",
                                                      "datalong/etc/passwd", "100000 640", "755", ""])

    def test_in_replaces_and_merges(self):
        self.ok("mkdir -p t/d; echo old > t/f; ln -s /etc/passwd t/l; echo keep > t/d/keep")
        raw = self.make(("f", tarfile.REGTYPE, b"new"), ("l", tarfile.REGTYPE, b"plain"), ("d", tarfile.DIRTYPE, 0o700),
                        ("d/n", tarfile.REGTYPE, b"n"))
        self.do("tar_in", "t", data=raw)
        self.assertEqual(self.ok("cd t; cat f l d/keep d/n; test -L l || echo nolink; head -c 4 /etc/passwd").out, b"newplainkeep\nnnolink\nroot")
        self.refused("is_a_directory", "tar_in", "t", data=self.make(("d", tarfile.REGTYPE, b"")))

    def test_in_links_to_directories_beneath_are_followed(self):
        self.ok("mkdir -p t/usr/bin; ln -s usr/bin t/bin")
        self.do("tar_in", "t", data=self.make(("bin", tarfile.DIRTYPE, 0), ("bin/x", tarfile.REGTYPE, b"1")))
        self.assertEqual(self.ok("cat t/usr/bin/x; readlink t/bin").out, b"1usr/bin\n")

    def test_in_stays_beneath(self):
        self.ok("mkdir -p t out; ln -s ../out t/up; ln -s /root/out t/abs")
        R, S, L = tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE
        for entries in ([("../x", R, b"1")], [("a/../../x", R, b"1")], [("up/x", R, b"1")], [("abs/x", R, b"1")],
                        [("new", S, "/root/out"), ("new/x", R, b"1")], [("rel", S, ".."), ("rel/out/x", R, b"1")],
                        [("h", L, "../out/secret")], [("h", L, "up/secret")]):
            with self.subTest(entries):
                self.refused("path_unsafe", "tar_in", "t", data=self.make(*entries))
        self.assertEqual(self.ok("ls out").out, b"")
        self.do("tar_in", "t", data=self.make(("/etc/passwd", R, b"mine")))  # absolute: beneath
        self.assertEqual(self.ok("cat t/etc/passwd; head -c 4 /etc/passwd").out, b"mineroot")
        self.refused("unsupported", "tar_in", "t", data=self.make(("dev", tarfile.CHRTYPE, None)))
        self.refused("unsupported", "tar_in", "t", data=self.make(("dev", tarfile.BLKTYPE, None)))

    def test_in_as_a_user(self):
        self.do("tar_in", "x", data=self.make(("f", tarfile.REGTYPE, b"1")), user="agent")
        self.assertEqual(self.ok("stat -c %U /home/agent/x/f").out, b"agent\n")
        self.refused("permission_denied", "tar_in", "/etc", data=self.make(("f", tarfile.REGTYPE, b"1")), user="agent")

    def test_in_broken(self):
        good = self.make(("f", tarfile.REGTYPE, b"1" * 5000))
        self.refused("bad_request", "tar_in", "t", data=b"no tar at all" * 100)
        self.refused("bad_request", "tar_in", "t", data=good[:2000])
        self.refused("bad_request", "tar_in", "t", data=good[:100])
        self.assertEqual(self.ok("ls t").out, b"")  # no cut file
        self.do("tar_in", "t", data=b"")
        self.do("tar_in", "t", data=good[:512 + 5120])  # without end mark

    def test_in_full_disk(self):
        self.refused("disk_full", "tar_in", "t", data=self.make(("f", tarfile.REGTYPE, b"1" * (70 << 20))))
        self.assertEqual(self.ok("ls t").out, b"")

    def test_round_trip(self):
        self.ok("mkdir -p t/a/b; cd t; for i in $(seq 50); do echo $i > a/f$i; ln a/f$i a/b/h$i; done; ln -s a x; chmod 700 a/b; chmod 1777 a; "
                "find . -exec touch -h -d @1111111111 {} +")
        raw = self.do("tar_out", "t").bytes
        self.do("tar_in", "u", data=raw)
        self.ok("diff -r t u; (cd t; find . -printf '%p %y %m %n %l %T@\\n' | grep -v '^. ' | sort) > 1; "
                "(cd u; find . -printf '%p %y %m %n %l %T@\\n' | grep -v '^. ' | sort) > 2; diff 1 2")


class Hostile(FilesTest):
    def test_stopped_worker_does_not_hang_anything(self):
        f = self.edge.file("write", "w")
        f.s.write(b"x" * 1000)
        self.edge.pump(0.3)
        self.ok("for p in /proc/[0-9]*; do test \"$(cat $p/comm 2>/dev/null)\" = chronus && kill -STOP ${p#/proc/}; done; true")
        self.edge.send(5, f.s.sid, b"\0\0\0\1")  # reset by the edge
        wait_until("the worker to be killed", 4, lambda: not self.host.leaves())
        self.ok(["true"])

    def test_killed_worker_is_an_error(self):
        f = self.edge.file("write", "w")
        f.s.write(b"x" * 1000)
        self.edge.pump(0.3)
        self.ok("for p in /proc/[0-9]*; do test \"$(cat $p/comm 2>/dev/null)\" = chronus && kill -9 ${p#/proc/}; done; true")
        with self.assertRaises(FileError) as c:
            f.wait()
        self.assertEqual(c.exception.code, "exec_blocked")

    def test_slow_reader_of_a_download(self):
        self.ok("head -c 5000000 /dev/zero > big")
        f = self.edge.file("read", "big")
        f.s.hold_credit = True
        end = time.monotonic() + 0.7
        while time.monotonic() < end:
            self.edge.pump(0.05)
        self.assertLessEqual(len(f.bytes), 256 << 10)
        f.s.release_credit()
        f.wait()
        self.assertEqual(len(f.bytes), 5000000)

    def test_many_at_once(self):
        fs = [self.edge.file("stat", "/") for _ in range(160)]
        codes = []
        for f in fs:
            try:
                f.wait()
                codes.append("ok")
            except FileError as e:
                codes.append(e.code)
        # 64 workers at a time; on a fast machine some are done before the last are asked for.
        self.assertGreaterEqual(codes.count("ok"), 64)
        self.assertGreaterEqual(codes.count("overloaded"), 1)
        self.assertEqual(len(codes), codes.count("ok") + codes.count("overloaded"))
        wait_until("the leaves to go", 3, lambda: not self.host.leaves())


if __name__ == "__main__":
    unittest.main()
