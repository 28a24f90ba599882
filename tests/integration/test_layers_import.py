"""The layer importer as a process: its answers, what it leaves, what a sandbox sees of the result."""
import glob
import gzip
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import layers_help as h  # noqa: E402


def tar_of(entries, mode="w"):
    """entries: (name, bytes or None, TarInfo fields)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode, format=tarfile.PAX_FORMAT) as tar:
        for name, data, fields in entries:
            info = tarfile.TarInfo(name)
            for key, value in fields.items():
                setattr(info, key, value)
            if data is not None:
                info.size = len(data)
            tar.addfile(info, io.BytesIO(data) if data is not None else None)
    return out.getvalue()


@unittest.skipUnless(os.geteuid() == 0, "needs root")
class ImportTest(unittest.TestCase):
    def setUp(self):
        self.store = tempfile.mkdtemp(prefix="layers-s-", dir="/tmp")
        self.addCleanup(shutil.rmtree, self.store)

    def start(self, *args):
        return subprocess.Popen([h.program("dsec-layer-import"), "--layer-dir", self.store, *args],
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def run_import(self, data, *args):
        proc = self.start(*args)
        out, err = proc.communicate(data, timeout=60)
        self.assertEqual(err, b"")
        self.assertEqual(out.count(b"\n"), 1)
        answer = json.loads(out)
        self.assertEqual(proc.returncode, 1 if "error" in answer else 0)
        return answer

    def left(self):
        return [os.path.basename(p) for p in glob.glob(self.store + "/.tmp-*")]

    def test_answer(self):
        answer = self.run_import(tar_of([("f", b"x", {}), ("dev/null", None, {"type": tarfile.CHRTYPE})]))
        name = answer["digest"].replace(":", "-")
        image = os.path.join(self.store, name, "image.erofs")
        self.assertEqual(answer["size_bytes"], os.path.getsize(image))
        self.assertEqual(answer["config"], {"env": {}, "cwd": "", "user": ""})
        self.assertEqual(answer["skipped"], {"device_nodes": 1, "xattrs": 0, "clamped_owners": 0})
        digest = subprocess.check_output(["sha256sum", image]).split()[0].decode()
        self.assertEqual(answer["digest"], "sha256:" + digest)
        self.assertEqual(os.stat(os.path.dirname(image)).st_mode & 0o777, 0o755)
        with open(os.path.join(self.store, name, "layer.json")) as f:
            self.assertEqual(json.load(f)["format_version"], 1)
        self.assertEqual(os.listdir(self.store), [name])

    def test_same_content_however_packed(self):
        entries = [("a/b", b"x" * 100000, {"mtime": 7}), ("caf\u00e9", b"y", {"mtime": 8})]
        plain = tar_of(entries)
        digests = {self.run_import(data)["digest"] for data in (
            plain, gzip.compress(plain), tar_of(entries[::-1]), subprocess.check_output(["zstd", "-q"], input=plain))}
        self.assertEqual(len(digests), 1)
        self.assertNotIn(self.run_import(plain, "--compress")["digest"], digests)

    def test_refusals(self):
        big_name = "/".join(["d" * 200] * 25)
        for data, code in ((b"", "bad_request"), (b"PK\x03\x04" + b"\0" * 4096, "bad_request"),
                           (tar_of([("../x", b"1", {})]), "path_unsafe"),
                           (tar_of([(big_name, b"1", {})]), "name_too_long"),
                           (tar_of([("d" * 256, b"1", {})]), "name_too_long"),
                           (gzip.compress(tar_of([("f", os.urandom(90000), {})]))[:50000], "bad_request")):
            answer = self.run_import(data)
            self.assertEqual(answer["error"]["code"], code, answer)
            self.assertTrue(answer["error"]["message"])
        self.assertEqual(os.listdir(self.store), [])
        self.assertEqual(self.start("--nonsense").wait(10), 2)

    def test_name_that_is_not_utf8(self):
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w", format=tarfile.GNU_FORMAT, encoding="latin-1") as tar:
            tar.addfile(tarfile.TarInfo("caf\u00e9"), io.BytesIO())
        self.assertIn("digest", self.run_import(data.getvalue()))

    def test_sparse_and_long_names(self):
        with tempfile.TemporaryDirectory(dir="/tmp", prefix="layers-x-") as tree:
            with open(os.path.join(tree, "sparse"), "wb") as f:
                f.seek(50 << 20)
                f.write(b"end")
                f.truncate(60 << 20)
            deep = os.path.join(tree, *["n" * 120] * 8)
            os.makedirs(deep)
            open(os.path.join(deep, "leaf"), "w").close()
            data = subprocess.check_output(["tar", "-C", tree, "-S", "-cf", "-", "."])
            self.assertLess(len(data), 1 << 20)
            answer = self.run_import(data)
            plain = subprocess.check_output(["tar", "-C", tree, "-cf", "-", "."])
            self.assertEqual(self.run_import(plain)["digest"], answer["digest"])

    def begin_slow(self):
        """An import that has got half of its stream and waits for the rest."""
        proc = self.start()
        data = tar_of([("f", os.urandom(3 << 20), {})])
        proc.stdin.write(data[:2 << 20])
        proc.stdin.flush()
        self.assertTrue(h.wait_until(self.left))
        return proc, data

    def test_signals(self):
        for sig in (signal.SIGTERM, signal.SIGINT):
            proc, _ = self.begin_slow()
            proc.send_signal(sig)
            begun = time.monotonic()
            out = proc.stdout.read()
            self.assertEqual(proc.wait(10), 1)
            self.assertLess(time.monotonic() - begun, 5)
            self.assertEqual(json.loads(out)["error"]["code"], "deadline_exceeded")
            self.assertEqual(os.listdir(self.store), [])
            proc.stdin.close(), proc.stdout.close(), proc.stderr.close()

    def test_cut_upload(self):
        proc, _ = self.begin_slow()
        out, _ = proc.communicate(timeout=10)
        self.assertEqual(json.loads(out)["error"]["code"], "bad_request")
        self.assertEqual(os.listdir(self.store), [])

    def test_killed(self):
        proc, data = self.begin_slow()
        proc.kill()
        proc.communicate(timeout=10)
        self.assertEqual(len(self.left()), 1)
        # The next import removes it, and one that is running it lets be.
        running, _ = self.begin_slow_after(proc)
        self.assertIn("digest", self.run_import(data))
        self.assertEqual(len(self.left()), 1)
        running.kill()
        running.communicate(timeout=10)

    def begin_slow_after(self, dead):
        gone = self.left()
        proc, data = self.begin_slow()
        self.assertTrue(h.wait_until(lambda: self.left() != gone and len(self.left()) == 1))
        return proc, data

    def test_capabilities_and_setuid_reach_the_sandbox(self):
        # cap_net_raw+ep in the kernel's version 2 layout, as getcap prints it.
        cap = bytes.fromhex("0100000200200000" + "00" * 12)
        answer = self.run_import(tar_of([
            ("ping", b"x", {"mode": 0o755, "pax_headers": {
                "SCHILY.xattr.security.capability": cap.decode("latin-1")}}),
            ("su", b"x", {"mode": 0o4755})]))
        where = tempfile.mkdtemp(prefix="layers-x-", dir="/tmp")
        self.addCleanup(os.rmdir, where)
        image = os.path.join(self.store, answer["digest"].replace(":", "-"), "image.erofs")
        subprocess.check_call(["mount", "-o", "loop,ro", image, where])
        try:
            self.assertEqual(os.getxattr(where + "/ping", "security.capability"), cap)
            self.assertEqual(os.stat(where + "/su").st_mode & 0o7777, 0o4755)
        finally:
            subprocess.check_call(["umount", where])


if __name__ == "__main__":
    unittest.main()
