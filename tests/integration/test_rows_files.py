"""Rows of "Files" of the public reports, end to end through HTTP. ROWS.md says where the others are shown.

Scaled: row 31 moves 20 files of 16 MiB at once both ways (320 MiB a way, not 20 GiB), row 26 ends at 64 MiB, not 1 GiB;
both hold every daemon's peak memory under a bound."""
import base64
import hashlib
import io
import os
import pathlib
import subprocess
import tarfile
import tempfile
import unittest
import urllib.parse

from harness import ApiError, PlatformTest, busybox_tar, find_program
from rows_help import MIB, in_threads, memory_bound

EVERY = bytes(range(256)) + b"\r\n\0\r\n\0"


def block_of(i):
    return hashlib.sha256(b"%d" % i).digest() * 2048  # 64 KiB


class Rows(PlatformTest):
    def setUp(self):
        self.sb = self.sandbox(disk_mb=1024)

    def sh(self, command, **fields):
        return self.client.run(self.sb, command, **fields)

    def archive(self, path, body):
        return self.client.call("PUT", f"/v1/sandboxes/{self.sb}/archive?{urllib.parse.urlencode({'path': path})}", body,
                                {"Content-Type": "application/x-tar"})

    def test_row_26_an_answered_write_is_there(self):
        """Sizes around the pieces things travel in; what the answer says is what is inside, and nothing else is left."""
        for size in (0, 1, 18 * 1024 + 1, 65535, 65536, 65537, 64 * MIB):
            data = (block_of(size) * (size // 65536 + 1))[:size]
            want = hashlib.sha256(data).hexdigest()
            with memory_bound(self, 8 * MIB):
                got = self.client.write_file(self.sb, "/w/f", data, parents="true")
            self.assertEqual((got["path"], got["size"], got["sha256"]), ("/w/f", size, want))
            inside = self.sh("sha256sum < /w/f; stat -c %s /w/f; ls -A /w")["stdout"].split()
            self.assertEqual(inside, [want.encode(), b"-", b"%d" % size, b"f"])
        self.assertApiError("hash_mismatch", self.client.write_file, self.sb, "/w/f", b"other", sha256="0" * 64)
        self.assertEqual(self.client.stat(self.sb, "/w/f")["size"], 64 * MIB)  # refused: the old file stays

    def test_row_26_replacing_is_atomic_for_readers(self):
        sizes = (1000, 3 * MIB)
        self.client.write_file(self.sb, "/f", bytes(sizes[0]))
        look = self.client.start(self.sb, "while [ ! -e /stop ]; do stat -c %s /f 2>&1; done | sort | uniq -c")
        for i in range(12):
            self.client.write_file(self.sb, "/f", bytes(sizes[(i + 1) % 2]))
        self.client.write_file(self.sb, "/stop", b"")
        self.client.wait(self.sb, look["id"])
        seen = self.client.read_output(self.sb, look["id"])[0].split()
        self.assertEqual(set(seen[1::2]), {b"%d" % s for s in sizes})

    def test_row_27_many_files_with_odd_names(self):
        names = ["plain", "two words", " lead", "ünïcødé 漢字 🙂", "new\nline", "quote'\"`$(x)", "-rf", "a\\b", "%41+&?#",
                 "x" * 255, "sub dir/ß"]
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for i, name in enumerate(names + [f"m/{i:04d}" for i in range(2000)]):
                info = tarfile.TarInfo(("/" if i % 2 else "") + name)  # a leading / stays beneath the target
                info.size = len(str(i))
                tar.addfile(info, io.BytesIO(str(i).encode()))
        made = self.archive("/up load", out.getvalue())
        self.assertGreaterEqual(made["entries"], len(names) + 2000)
        for i, name in enumerate(names):
            self.assertEqual(self.client.read_file(self.sb, "/up load/" + name), str(i).encode(), name)
            self.client.write_file(self.sb, "/one by one/" + name, name.encode(), parents="true")
        self.assertEqual(self.sh("ls '/up load/m' | wc -l; ls / | grep -c plain")["stdout"].split(), [b"2000", b"0"])
        listed = self.client.call("GET", self.client.file_path(self.sb, "/list", path="/one by one"))["entries"]
        self.assertEqual({e["name"] for e in listed}, {n.split("/")[0] for n in names})

    def test_row_29_paths_end_inside(self):
        """.. and links lead to the sandbox's own root at most; an archive cannot write beside its target."""
        secret = self.platform.state / "row29"
        secret.write_text("of the host")
        self.sh(f"ln -s / /root/l; ln -s '{secret}' /root/s; mkdir /root/d; echo mine > /mine")
        for path in (str(secret), "../" * 40 + str(secret), f"/root/l/{secret}", "/root/s", f"/proc/self/root{secret}",
                     f"/proc/1/root{secret}", f"/proc/1/cwd/..{secret}"):
            with self.assertRaises(ApiError, msg=path) as caught:
                self.client.read_file(self.sb, path)
            self.assertIn(caught.exception.code, ("file_not_found", "permission_denied", "path_unsafe"))
        self.assertEqual(self.client.read_file(self.sb, "/root/l/" + "../" * 40 + "mine"), b"mine\n")  # links do work
        for name, kind, link in (("../out", tarfile.REGTYPE, ""), ("a/../../out", tarfile.REGTYPE, ""),
                                 ("up/out", tarfile.REGTYPE, "up")):
            out = io.BytesIO()
            with tarfile.open(fileobj=out, mode="w") as tar:
                if link:
                    info = tarfile.TarInfo(link)
                    info.type, info.linkname = tarfile.SYMTYPE, ".."
                    tar.addfile(info)
                tar.addfile(tarfile.TarInfo(name))
            with self.assertRaises(ApiError, msg=name) as caught:
                self.archive("/root/d", out.getvalue())
            self.assertEqual(caught.exception.code, "path_unsafe")
        self.assertEqual(self.sh("ls / /root | grep -c '^out$'")["stdout"], b"0\n")

    def test_row_30_all_byte_values_everywhere(self):
        self.client.write_file(self.sb, "/b", EVERY)
        self.assertEqual(self.client.read_file(self.sb, "/b"), EVERY)
        self.assertEqual(self.client.read_file(self.sb, "/b", offset=10, length=250), EVERY[10:260])
        done = self.sh("cat /b; cat /b >&2")
        self.assertEqual((done["stdout"], done["stderr"]), (EVERY, EVERY))
        self.assertEqual(self.sh("cat", stdin_b64=base64.b64encode(EVERY).decode())["stdout"], EVERY)
        argument = {"b64": base64.b64encode(EVERY.replace(b"\0", b"")).decode()}
        self.assertEqual(self.client.run(self.sb, ["printf", "%s", argument])["stdout"], EVERY.replace(b"\0", b""))

    def test_row_31_files_pass_in_constant_memory(self):
        """Twice, cold and warm. 20 streams take their windows: 5 to 9.4 MiB in the edge, under the load of other tests."""
        n, pieces = 20, 256
        blocks = [block_of(i) for i in range(n)]
        want = [hashlib.sha256(b * pieces).hexdigest() for b in blocks]
        got = [None] * n

        def up(i):
            got[i] = self.client.call("PUT", self.client.file_path(self.sb, path=f"/f{i}"),
                                      (blocks[i] for _ in range(pieces)), timeout=120)["sha256"]

        def down(i):
            conn, response = self.client.open("GET", self.client.file_path(self.sb, path=f"/f{i}"), timeout=120)
            digest = hashlib.sha256()
            while data := response.read(65536):
                digest.update(data)
            conn.close()
            got[i] = digest.hexdigest()

        for _ in ("cold", "warm"):
            for way in (up, down):
                got[:] = [None] * n
                with memory_bound(self, 12 * MIB):
                    in_threads([lambda i=i: way(i) for i in range(n)], 120)
                self.assertEqual(got, want)

    def test_row_32_a_full_disk_is_its_owners_alone(self):
        """The quota holds on the host's side too; commands, output and removal work when it is full."""
        small, other = self.sandbox(disk_mb=32), self.sandbox(disk_mb=64)
        volume = [p for p in self.platform.state.rglob("*.img") if p.is_file()]
        before = sum(p.stat().st_blocks for p in volume) * 512
        for where in ("/root/a", "/tmp/b", "/var/tmp/c", "/home/user/d"):
            done = self.client.run(small, f"dd if=/dev/urandom of={where} bs=1M count=200 2>&1; sync")
            self.assertRegex(done["stdout"], b"(?i)quota exceeded|no space")
        error = self.assertApiError("disk_full", self.client.write_file, small, "/e", bytes(8 * MIB))
        self.assertEqual((error.fault, error.status), ("program", 507))
        grown = sum(p.stat().st_blocks for p in volume) * 512 - before
        self.assertLess(grown, (32 + 16) * MIB)
        self.assertGreater(grown, 16 * MIB)  # it is this file that grows: the bound above can fail
        done = self.client.run(small, "head -c 2000000 /dev/zero")  # the platform's copy of output is not in there
        self.assertEqual((done["exit_code"], done["stdout_bytes"], done["stdout_truncated"]), (0, 2000000, False))
        self.assertEqual(self.client.run(other, "dd if=/dev/zero of=/f bs=1M count=40 2>/dev/null && echo ok")["stdout"], b"ok\n")
        self.client.run(small, "rm /root/a /tmp/b /var/tmp/c /home/user/d")
        self.assertEqual(self.client.write_file(small, "/e", bytes(8 * MIB))["size"], 8 * MIB)

    def test_row_34_a_layer_is_made_of_its_directory_only(self):
        """Links are kept as links and never followed while the context is packed."""
        with tempfile.TemporaryDirectory() as d:
            outside, inside = pathlib.Path(d, "outside"), pathlib.Path(d, "in")
            outside.mkdir()
            (outside / "secret").write_text("secret")
            with tarfile.open(fileobj=io.BytesIO(busybox_tar())) as tar:
                tar.extractall(inside, **({"filter": "fully_trusted"} if hasattr(tarfile, "fully_trusted_filter") else {}))
            for name, target in (("file", outside / "secret"), ("dir", outside), ("rel", "../outside/secret"),
                                 ("good", "etc/hostname")):
                os.symlink(target, inside / name)
            done = subprocess.run([find_program("dsec"), "layer", "import", str(inside), "row34@1"], text=True, capture_output=True,
                                  env={**os.environ, "DSEC_URL": f"http://127.0.0.1:{self.platform.port}",
                                       "DSEC_API_KEY": self.client.key}, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            sb = self.sandbox("row34@1")
            links = self.client.run(sb, "for l in file dir rel good; do readlink /$l; done; cat /good")["stdout"].decode()
            self.assertEqual(links.split(), [f"{outside}/secret", str(outside), "../outside/secret", "etc/hostname", "localhost"])
            self.assertEqual(self.client.run(sb, "cat /file /rel /dir/secret")["stdout"], b"")


if __name__ == "__main__":
    unittest.main()
