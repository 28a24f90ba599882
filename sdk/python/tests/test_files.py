"""Files: what goes over the wire, digests, and archives that try to get out."""
import asyncio
import hashlib
import io
import os
import pathlib
import stat
import tarfile
import tempfile
import unittest

from scripted import ScriptedTest, dsec, sandbox
from dsec import _tar


class Store(ScriptedTest):
    """A script that keeps one file and one archive."""

    async def store(self):
        self.data = b""
        self.archive = b""
        self.cut_once = self.cut_body = False

        async def script(request, wire):
            if self.cut_once:
                self.cut_once = False
                wire.cut()
                return
            await self.archives(request, wire) if request.path.endswith("/archive") else await self.file(request, wire)

        return sandbox(await self.serve(script)).files

    async def file(self, request, wire):
        if request.method == "PUT":
            self.data = await request.body()
            self.query = request.query
            digest = "0" * 64 if self.data == b"bad" else hashlib.sha256(self.data).hexdigest()
            await wire.json({"path": request.query["path"], "size": len(self.data), "sha256": digest})
        elif request.path.endswith("/files"):
            offset, length = int(request.query.get("offset", 0)), int(request.query.get("length", 0))
            part = self.data[offset:offset + length if length else None]
            await wire.head(200, transfer_encoding="chunked", x_dsec_size=len(self.data), x_dsec_mode="0644")
            for pos in range(0, len(part), 70001):
                await wire.chunk(part[pos:pos + 70001])
                if self.cut_body:
                    wire.cut()
                    return
            await wire.end_chunks()
        elif request.path.endswith("/stat"):
            await wire.error("file_not_found", 404)
        else:
            await wire.json({"entries": [
                {"name": "a", "type": "file", "mode": "0755", "size": 3, "mtime": 1.5, "uid": 1, "gid": 2, "inode": 9,
                 "nlink": 1, "link": None},
                {"name": "", "name_b64": "/2E=", "type": "symlink", "mode": "0777", "size": 1, "mtime": 1, "uid": 0,
                 "gid": 0, "inode": 10, "nlink": 1, "link": "a"}]})

    async def archives(self, request, wire):
        if request.method == "PUT":
            self.archive = await request.body()
            await wire.json({"entries": 1, "bytes": len(self.archive)})
        else:
            await wire.head(200, transfer_encoding="chunked")
            for pos in range(0, len(self.archive), 1001):
                await wire.chunk(self.archive[pos:pos + 1001])
            await wire.end_chunks()

    async def test_bytes_round_trip(self):
        files = await self.store()
        for data in (b"", b"\x00", bytes(range(256)), b"\r\n" * 3, os.urandom(65535), os.urandom(65536), os.urandom(65537)):
            written = await files.write("/d/ä b&c", data, mode=0o640)
            self.assertEqual((written.path, written.size), ("/d/ä b&c", len(data)))
            self.assertEqual(await files.read("/d/ä b&c"), data)
        self.assertEqual(self.query["mode"], "0640")
        self.assertEqual(self.query["sha256"], hashlib.sha256(data).hexdigest())
        await files.write("t", "grüße")
        self.assertEqual(await files.read_text("t"), "grüße")
        self.assertEqual(await files.read("t", offset=2, length=2), "ü".encode())

    async def test_reads_and_whole_writes_are_repeated(self):
        files = await self.store()
        self.cut_once = True
        await files.write("f", b"abc")
        self.cut_once = True
        self.assertEqual(await files.read("f"), b"abc")

    async def test_streams(self):
        files = await self.store()
        data = os.urandom(3000000)
        written = await files.write_stream("f", io.BytesIO(data))
        self.assertEqual(written.sha256, hashlib.sha256(data).hexdigest())
        self.assertEqual(b"".join([p async for p in files.read_stream("f")]), data)
        await files.write_stream("f", iter([b"a", b"b"]))
        self.assertEqual(self.data, b"ab")
        with self.assertRaises(dsec.BadResponse):
            await files.write_stream("f", b"bad")

    async def test_local_files(self):
        files = await self.store()
        with tempfile.TemporaryDirectory() as d:
            local = pathlib.Path(d, "x")
            local.write_bytes(b"1" * 200000)
            local.chmod(0o751)
            await files.upload_file(local, "f")
            self.assertEqual(self.query["mode"], "0751")
            self.assertEqual(await files.download_file("f", pathlib.Path(d, "y")), 200000)
            self.assertEqual(pathlib.Path(d, "y").read_bytes(), b"1" * 200000)
            self.cut_body = True
            with self.assertRaises(dsec.ConnectionLost):
                await files.download_file("f", pathlib.Path(d, "z"))
            self.assertEqual(sorted(os.listdir(d)), ["x", "y"])

    async def test_stat_and_list(self):
        files = await self.store()
        self.assertFalse(await files.exists("nope"))
        with self.assertRaises(dsec.RemoteFileNotFound):
            await files.stat("nope")
        first, second = await files.list("/")
        self.assertEqual((first.name, first.mode, first.is_file, first.mtime, first.link), ("a", 0o755, True, 1.5, None))
        self.assertEqual(os.fsencode(second.name), b"\xffa")
        self.assertEqual(second.link, "a")

    async def test_directories_round_trip(self):
        files = await self.store()
        with tempfile.TemporaryDirectory() as d:
            src, dst = pathlib.Path(d, "src"), pathlib.Path(d, "dst")
            (src / "sub" / "empty").mkdir(parents=True)
            (src / "run.sh").write_bytes(b"#!/bin/sh\n")
            (src / "run.sh").chmod(0o755)
            (src / "sub" / "big").write_bytes(os.urandom(5000000))
            (src / "sub" / "link").symlink_to("../run.sh")
            os.link(src / "run.sh", src / "twin")
            os.mkfifo(src / "fifo")  # left out: it has no content to carry
            await files.upload_dir(src, "/w")
            self.assertGreater(await files.download_dir("/w", dst), 4)
            self.assertEqual((dst / "sub" / "big").read_bytes(), (src / "sub" / "big").read_bytes())
            self.assertEqual(os.readlink(dst / "sub" / "link"), "../run.sh")
            self.assertEqual(stat.S_IMODE((dst / "run.sh").stat().st_mode), 0o755)
            self.assertTrue((dst / "twin").samefile(dst / "run.sh"))
            self.assertTrue((dst / "sub" / "empty").is_dir())
            self.assertFalse((dst / "fifo").exists())
            await files.download_dir("/w", dst)  # again, over what is there

    async def test_cut_archive_is_an_error(self):
        files = await self.store()
        self.archive = make_tar([("a", b"1" * 5000), ("b", b"2" * 5000)])[:8000]
        with tempfile.TemporaryDirectory() as d:
            with self.assertRaises(dsec.BadResponse):
                await files.download_dir("/w", d)

    async def test_missing_directory(self):
        files = await self.store()
        with self.assertRaises(NotADirectoryError):
            await files.upload_dir("/nonexistent/x", "/w")


def make_tar(entries):
    """(name, bytes) files, (name, "->dest") symlinks, (name, "=target") hard links,
    (name, "/") directories, (name, type) others."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, what in entries:
            info = tarfile.TarInfo(name)
            info.mode = 0o6755
            if isinstance(what, bytes) and len(what) != 1:
                info.size = len(what)
                tar.addfile(info, io.BytesIO(what))
                continue
            if what == "/":
                info.type = tarfile.DIRTYPE
            elif isinstance(what, str) and what.startswith("->"):
                info.type, info.linkname = tarfile.SYMTYPE, what[2:]
            elif isinstance(what, str):
                info.type, info.linkname = tarfile.LNKTYPE, what[1:]
            else:
                info.type = what
            tar.addfile(info)
    return raw.getvalue()


class HostileArchives(unittest.IsolatedAsyncioTestCase):
    async def unpack(self, entries, skip=False):
        raw = make_tar(entries)

        async def source():
            for pos in range(0, len(raw), 777):
                yield raw[pos:pos + 777]

        return await _tar.unpack(source(), self.target, skip)

    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.target = os.path.join(self.directory.name, "target")
        self.outside = os.path.join(self.directory.name, "outside")
        os.mkdir(self.outside)
        pathlib.Path(self.outside, "precious").write_bytes(b"mine")

    CASES = {
        "dotdot": [("../outside/new", b"xx")],
        "dotdot inside": [("a/../../outside/new", b"xx")],
        "absolute": [("/tmp/dsec-escape", b"xx")],
        "link up": [("l", "->../outside"), ("l/new", b"xx")],
        "link absolute": [("l", "->/etc/passwd")],
        "link climbs from a depth": [("a/l", "->../../outside")],
        "link through a link": [("a", "->."), ("a/new", b"xx")],
        "hard link out": [("h", "=../outside/precious")],
        "hard link to what is missing": [("h", "=none")],
        "write through a hard link's name": [("d", "/"), ("d", b"xx")],
        "device": [("c", tarfile.CHRTYPE)],
        "fifo": [("f", tarfile.FIFOTYPE)],
        "root as a file": [(".", b"xx")],
    }

    async def test_each_is_refused(self):
        for name, entries in self.CASES.items():
            with self.subTest(name):
                with self.assertRaises(dsec.PathUnsafe):
                    await self.unpack(entries)
                self.assertEqual(os.listdir(self.outside), ["precious"])
                self.assertFalse(os.path.exists("/tmp/dsec-escape"))

    async def test_each_is_left_out_when_asked(self):
        for name, entries in self.CASES.items():
            with self.subTest(name):
                await self.unpack(entries + [("good", b"fine")], skip=True)
                self.assertEqual(os.listdir(self.outside), ["precious"])
                self.assertEqual(pathlib.Path(self.target, "good").read_bytes(), b"fine")

    async def test_a_link_that_waits_in_the_target(self):
        os.mkdir(self.target)
        os.symlink(self.outside, os.path.join(self.target, "l"))
        with self.assertRaises(dsec.PathUnsafe):
            await self.unpack([("l/new", b"xx")])
        await self.unpack([("l", b"replaced")])
        self.assertEqual(os.listdir(self.outside), ["precious"])
        self.assertFalse(os.path.islink(os.path.join(self.target, "l")))

    async def test_set_id_bits_are_dropped_and_inner_links_kept(self):
        await self.unpack([("d", "/"), ("d/x", b"ab"), ("d/l", "->x"), ("up", "->d/../d/x")])
        self.assertEqual(stat.S_IMODE(os.stat(os.path.join(self.target, "d/x")).st_mode), 0o755)
        self.assertEqual(pathlib.Path(self.target, "up").read_bytes(), b"ab")


if __name__ == "__main__":
    unittest.main()
