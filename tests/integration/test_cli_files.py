"""`dsec cp` and `dsec layer`: both directions, files and directories, hostile content, names and versions."""
import io
import json
import os
import pathlib
import shutil
import subprocess
import tarfile
import tempfile
import unittest

from harness import busybox_tar
from test_cli_run import CliTest


class Cp(CliTest):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="dsec-cp-"))
        self.addCleanup(shutil.rmtree, self.dir)
        self.sb = self.sandbox()

    def test_file_both_ways(self):
        data = os.urandom(1 << 20)
        (self.dir / "f").write_bytes(data)
        (self.dir / "f").chmod(0o750)
        self.good("cp", str(self.dir / "f"), f"{self.sb}:/tmp/")
        self.assertEqual(self.client.stat(self.sb, "/tmp/f")["mode"], "0750")
        self.good("cp", f"{self.sb}:/tmp/f", str(self.dir / "g"))
        self.assertTrue((self.dir / "g").read_bytes() == data)
        self.assertEqual((self.dir / "g").stat().st_mode & 0o777, 0o750)
        self.assertEqual(sorted(p.name for p in self.dir.iterdir()), ["f", "g"])  # no temporary stays

    def test_standard_streams(self):
        done = self.dsec("cp", "-", f"{self.sb}:/tmp/in", stdin=b"bytes\0")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.dsec("cp", f"{self.sb}:/tmp/in", "-").stdout, b"bytes\0")

    def test_directory_both_ways(self):
        tree = self.dir / "tree"
        (tree / "sub").mkdir(parents=True)
        (tree / "sub" / "x").write_text("x")
        (tree / "exe").write_text("#!/bin/sh\n")
        (tree / "exe").chmod(0o755)
        (tree / "link").symlink_to("sub/x")
        self.good("cp", str(tree), f"{self.sb}:/root")      # /root is there: keeps its name
        self.assertEqual(self.client.run(self.sb, "cat /root/tree/link; ls /root/tree")["stdout"], b"xexe\nlink\nsub\n")
        self.good("cp", str(tree) + "/.", f"{self.sb}:/root/other")
        self.good("cp", f"{self.sb}:/root/other", str(self.dir / "back"))
        done = subprocess.run(["diff", "-r", tree, self.dir / "back"], capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertTrue(os.access(self.dir / "back" / "exe", os.X_OK))

    def test_absent_things(self):
        for words, code in [(("cp", f"{self.sb}:/nosuch", "."), b"file_not_found"),
                            (("cp", str(self.dir / "nosuch"), f"{self.sb}:/tmp"), b"local_file"),
                            (("cp", f"{self.sb}:/etc/passwd", "/no/such/dir/x"), b"local_file")]:
            done = self.dsec(*words)
            self.assertEqual(done.returncode, 1)
            self.assertTrue(done.stderr.startswith(b"dsec: " + code), done.stderr)

    def test_links_of_the_inside_lead_nowhere(self):
        """A link in the target that the same stream goes through, and set-id bits."""
        self.client.run(self.sb, f"mkdir -p /d && ln -s {self.dir}/out /d/esc && cp /bin/busybox /d/su && chmod 4755 /d/su")
        (self.dir / "out").mkdir()
        into = self.dir / "in"
        self.good("cp", f"{self.sb}:/d", str(into))
        self.assertEqual(os.readlink(into / "esc"), f"{self.dir}/out")
        self.assertEqual((into / "su").stat().st_mode & 0o7000, 0)
        self.client.run(self.sb, "rm /d/esc && mkdir /d/esc && echo bad >/d/esc/f")
        done = self.dsec("cp", f"{self.sb}:/d/.", str(into))  # now esc is a link here and a directory there
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"path_unsafe", done.stderr)
        self.assertEqual(list((self.dir / "out").iterdir()), [])


class Layers(CliTest):
    def test_import_versions_and_removal(self):
        with tempfile.TemporaryDirectory() as d:
            path = pathlib.Path(d) / "bb.tar"
            path.write_bytes(busybox_tar())
            first = json.loads(self.good("layer", "import", "--json", str(path), "mine"))
            again = json.loads(self.good("layer", "import", "--json", str(path), "mine"))
            piped = json.loads(self.good("layer", "import", "--json", "-", "mine@x", stdin=busybox_tar()))
        self.assertEqual((first["version"], again["version"], piped["version"]), ("1", "2", "x"))
        self.assertEqual({first["digest"], again["digest"], piped["digest"]}, {first["digest"]})
        self.assertEqual(self.good("run", "--env", "mine@2", "--", "echo", "hi"), "hi\n")
        self.assertEqual(json.loads(self.good("layer", "inspect", "mine"))["name"], "mine")
        self.assertEqual(self.good("layer", "rm", "mine@1", "mine@2", "mine@x").split(), ["mine@1", "mine@2", "mine@x"])
        done = self.dsec("layer", "inspect", "mine")
        self.assertTrue(done.stderr.startswith(b"dsec: layer_not_found"), done.stderr)

    def test_import_of_a_directory(self):
        with tempfile.TemporaryDirectory() as d:
            with tarfile.open(fileobj=io.BytesIO(busybox_tar())) as tar:
                tar.extractall(d, filter="fully_trusted") if hasattr(tarfile, "fully_trusted_filter") else tar.extractall(d)
            os.chown(pathlib.Path(d) / "home/user", 1000, 1000)
            one = json.loads(self.good("layer", "import", "--json", d, "fromdir@1"))
            two = json.loads(self.good("layer", "import", "--json", d, "fromdir@2"))
        self.assertEqual(one["digest"], two["digest"])
        self.assertEqual(self.good("run", "--env", "fromdir", "--", "stat", "-c", "%U", "/home/user"), "user\n")

    def test_import_of_junk(self):
        done = self.dsec("layer", "import", "-", "junk@1", stdin=os.urandom(100000))
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, rb"^dsec: [a-z_]+: ")
        self.assertNotIn("junk", self.good("layer", "ls"))

    def test_layer_in_use(self):
        self.sandbox()
        done = self.dsec("layer", "rm", "busybox@1")
        self.assertTrue(done.stderr.startswith(b"dsec: layer_in_use"), done.stderr)

    def test_build_without_mmdebstrap(self):
        done = self.dsec("layer", "build", "--debian", "bookworm", "b", PATH="/nonexistent")
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"host_lacks: mmdebstrap", done.stderr)


if __name__ == "__main__":
    unittest.main()
