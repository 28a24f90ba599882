"""Files through the Python SDK on a real platform."""
import asyncio
import hashlib
import os
import pathlib
import stat
import tempfile
import unittest

from sdk import SdkTest, dsec, in_sandbox


class Files(SdkTest):
    @in_sandbox()
    async def test_sizes_round_trip(self, client, sandbox):
        for size in (0, 1, 65535, 65536, 65537, 3 << 20):
            data = os.urandom(size)
            written = await sandbox.files.write("/tmp/f", data)
            self.assertEqual((written.size, written.sha256), (size, hashlib.sha256(data).hexdigest()))
            self.assertEqual(await sandbox.files.read("/tmp/f"), data)
            self.assertEqual((await sandbox.exec(["cat", "/tmp/f"])).stdout, data)

    @in_sandbox()
    async def test_names_modes_ranges(self, client, sandbox):
        name = "/tmp/a b/ü&?%41'\"\n/x"
        await sandbox.files.write(name, "héllo", mode=0o750)
        self.assertEqual(await sandbox.files.read_text(name), "héllo")
        self.assertEqual(await sandbox.files.read(name, offset=1, length=2), "é".encode())
        info = await sandbox.files.stat(name)
        self.assertEqual((info.type, info.mode, info.size, info.uid), ("file", 0o750, 6, 0))
        await sandbox.files.write("in-home", b"1")
        self.assertEqual((await sandbox.run_shell("cat ~/in-home")).stdout, b"1")
        await sandbox.files.write("/tmp/theirs", b"2", user="user")
        self.assertEqual((await sandbox.files.stat("/tmp/theirs")).uid, 1000)
        await sandbox.files.mkdir("/tmp/their-dir", user="user")
        await sandbox.files.move("/tmp/theirs", "/tmp/their-dir/x", user="user")
        self.assertEqual([e.uid for e in await sandbox.files.list("/tmp/their-dir", user="user")], [1000])

    @in_sandbox()
    async def test_list_mkdir_move_remove(self, client, sandbox):
        files = sandbox.files
        await files.mkdir("/tmp/d/e/f")
        await files.write("/tmp/d/b", b"")
        await sandbox.run_shell("ln -s b /tmp/d/l; mkfifo /tmp/d/p; touch /tmp/d/$(printf '\\377')")
        entries = await files.list("/tmp/d")
        self.assertEqual([(os.fsencode(e.name), e.type, e.link) for e in entries],
                         [(b"b", "file", None), (b"e", "directory", None), (b"l", "symlink", "b"), (b"p", "fifo", None),
                          (b"\xff", "file", None)])
        await files.move("/tmp/d/b", "/tmp/d/c")
        self.assertFalse(await files.exists("/tmp/d/b"))
        await files.write("/tmp/d/b", b"x")
        with self.assertRaises(dsec.RemoteFileExists):
            await files.move("/tmp/d/b", "/tmp/d/c")
        await files.move("/tmp/d/b", "/tmp/d/c", overwrite=True)
        with self.assertRaises(dsec.DirectoryNotEmpty):
            await files.remove("/tmp/d")
        await files.remove("/tmp/d", recursive=True)
        self.assertFalse(await files.exists("/tmp/d"))

    @in_sandbox()
    async def test_streams_of_local_files(self, client, sandbox):
        data = os.urandom(12 << 20)
        with tempfile.TemporaryDirectory() as d:
            local, back = pathlib.Path(d, "a"), pathlib.Path(d, "b")
            local.write_bytes(data)
            await sandbox.files.upload_file(local, "/tmp/big")
            self.assertEqual(await sandbox.files.download_file("/tmp/big", back), len(data))
            self.assertEqual(back.read_bytes(), data)

    @in_sandbox()
    async def test_directories(self, client, sandbox):
        with tempfile.TemporaryDirectory() as d:
            src, dst = pathlib.Path(d, "src"), pathlib.Path(d, "dst")
            (src / "sub dir" / "empty").mkdir(parents=True)
            (src / "run").write_bytes(b"#!/bin/sh\necho ran\n")
            (src / "run").chmod(0o755)
            (src / "sub dir" / "data").write_bytes(os.urandom(700000))
            (src / "sub dir" / "link").symlink_to("../run")
            for i in range(200):
                (src / f"f{i}").write_bytes(b"%d" % i)
            done = await sandbox.files.upload_dir(src, "/work/tree")
            self.assertGreaterEqual(done.entries, 204)
            self.assertEqual((await sandbox.exec(["/work/tree/sub dir/link"])).stdout, b"ran\n")
            self.assertEqual((await sandbox.run_shell("cat /work/tree/f*")).stdout_bytes, sum(len(str(i)) for i in range(200)))
            await sandbox.files.download_dir("/work/tree", dst)
            self.assertEqual((dst / "sub dir" / "data").read_bytes(), (src / "sub dir" / "data").read_bytes())
            self.assertEqual(os.readlink(dst / "sub dir" / "link"), "../run")
            self.assertEqual(stat.S_IMODE((dst / "run").stat().st_mode), 0o755)
            self.assertTrue((dst / "sub dir" / "empty").is_dir())

    @in_sandbox()
    async def test_hostile_download_stays_in_its_directory(self, client, sandbox):
        await sandbox.run_shell("mkdir /tmp/h; ln -s / /tmp/h/root; ln -s ../../../.. /tmp/h/up; echo x > /tmp/h/z")
        with tempfile.TemporaryDirectory() as d:
            with self.assertRaises(dsec.PathUnsafe):
                await sandbox.files.download_dir("/tmp/h", pathlib.Path(d, "t"))
            await sandbox.files.download_dir("/tmp/h", pathlib.Path(d, "t"), skip_unsafe=True)
            self.assertEqual(os.listdir(pathlib.Path(d, "t")), ["z"])

    @in_sandbox()
    async def test_copy_between_sandboxes(self, client, sandbox):
        await sandbox.run_shell("mkdir -p /w/a; head -c 2000000 /dev/urandom > /w/a/b; sha256sum < /w/a/b > /w/sum")
        fresh = await client.run_container(dsec.DSecContainerRunArgs("busybox:1"))
        async with fresh:
            await fresh.files.write_archive("/copy", sandbox.files.read_archive("/w"))
            check = await fresh.run_shell('[ "$(sha256sum < /copy/a/b)" = "$(cat /copy/sum)" ]')
            self.assertEqual(check.exit_code, 0)

    @in_sandbox()
    async def test_typed_errors(self, client, sandbox):
        files = sandbox.files
        await files.mkdir("/tmp/dir")
        await files.write("/tmp/file", b"x")
        for error, call in (
            (dsec.RemoteFileNotFound, files.read("/nope")),
            (dsec.RemoteFileNotFound, files.list("/nope")),
            (dsec.RemoteFileNotFound, files.remove("/nope")),
            (dsec.RemoteIsADirectory, files.read("/tmp/dir")),
            (dsec.RemoteNotADirectory, files.list("/tmp/file")),
            (dsec.RemoteNotADirectory, files.write("/tmp/file/below", b"")),
            (dsec.PermissionDenied, files.write("/root/no", b"", user="nobody")),
            (dsec.BadUser, files.read("/tmp/file", user="ghost")),
        ):
            with self.assertRaises(error):
                await call

    @in_sandbox(disk_limit_mb=64)
    async def test_full_disk_is_the_programs_fault(self, client, sandbox):
        with self.assertRaises(dsec.DiskFull) as caught:
            await sandbox.files.write("/big", bytes(100 << 20))
        self.assertEqual(caught.exception.fault, "program")
        self.assertFalse(await sandbox.files.exists("/big"))
        await asyncio.wait_for(sandbox.files.write("/small", b"ok"), 30)


if __name__ == "__main__":
    unittest.main()
