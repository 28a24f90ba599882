"""Tar streams between a local directory and the wire, packed and unpacked in a
worker thread with a bounded queue between it and the event loop.

Unpacking trusts nothing in the archive: it may come from a sandbox whose root is
hostile. Every component is opened relative to its parent's descriptor without
following links, so neither `..` nor a link planted earlier in the same archive
leads out of the target; links whose destination lies outside, devices, fifos and
set-id bits are refused or dropped. What is refused raises PathUnsafe.
"""
from __future__ import annotations

import asyncio
import concurrent.futures
import os
import queue
import stat
import tarfile
import threading
from typing import IO, Any, AsyncGenerator, AsyncIterator, List, Optional, Tuple, cast

from .errors import BadResponse, PathUnsafe

QUEUE_PIECES = 8
COPY_BYTES = 256 << 10


class _Stopped(Exception):
    """The other side has gone; ends the worker thread."""


class _ToLoop:
    """File object of the packing thread: what it writes, the event loop reads."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: "asyncio.Queue[Any]" = asyncio.Queue(QUEUE_PIECES)
        self.stopped = threading.Event()

    def write(self, data: bytes) -> int:
        self.put(bytes(data))
        return len(data)

    def put(self, item: Any) -> None:
        future = asyncio.run_coroutine_threadsafe(self._queue.put(item), self._loop)
        while True:
            try:
                future.result(0.2)
                return
            except concurrent.futures.TimeoutError:
                pass
            if self.stopped.is_set():
                future.cancel()
                raise _Stopped

    async def get(self) -> Any:
        return await self._queue.get()


async def pack(directory: str) -> AsyncGenerator[bytes, None]:
    """The tar stream of a directory's content; links stay links, owners become 0."""
    pipe = _ToLoop(asyncio.get_running_loop())

    def work() -> None:
        try:
            with tarfile.open(
                fileobj=cast(IO[bytes], pipe), mode="w|", format=tarfile.PAX_FORMAT, bufsize=COPY_BYTES
            ) as tar:
                for name in sorted(os.listdir(directory)):
                    tar.add(os.path.join(directory, name), arcname=name, filter=_plain_owner)
            pipe.put(None)
        except _Stopped:
            pass
        except BaseException as e:
            try:
                pipe.put(e)
            except _Stopped:
                pass

    if not os.path.isdir(directory):
        raise NotADirectoryError(directory)
    worker = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        while True:
            item = await pipe.get()
            if item is None:
                return
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        pipe.stopped.set()
        await asyncio.wait({worker})


def _plain_owner(info: tarfile.TarInfo) -> Optional[tarfile.TarInfo]:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    return info if info.isreg() or info.isdir() or info.issym() or info.islnk() else None


class _FromLoop:
    """File object of the unpacking thread: what the event loop puts, it reads."""

    def __init__(self) -> None:
        self.queue: "queue.Queue[Optional[bytes]]" = queue.Queue(QUEUE_PIECES)
        self.stopped = threading.Event()
        self._rest = b""
        self._ended = False

    def read(self, size: int) -> bytes:
        while len(self._rest) < size and not self._ended:
            try:
                piece = self.queue.get(timeout=0.2)
            except queue.Empty:
                if self.stopped.is_set():
                    raise _Stopped from None
                continue
            if piece is None:
                self._ended = True
            else:
                self._rest += piece
        data, self._rest = self._rest[:size], self._rest[size:]
        return data


async def unpack(source: AsyncIterator[bytes], directory: str, skip_unsafe: bool = False) -> int:
    """Unpacks a tar stream into `directory` (made if missing); the entries made."""
    os.makedirs(directory, exist_ok=True)
    pipe = _FromLoop()
    worker = asyncio.ensure_future(asyncio.to_thread(_unpack_thread, pipe, directory, skip_unsafe))

    async def put(item: Optional[bytes]) -> None:
        while not worker.done():
            try:
                pipe.queue.put_nowait(item)
                return
            except queue.Full:
                await asyncio.wait({worker}, timeout=0.005)

    try:
        async for piece in source:
            await put(piece)
            if worker.done():
                break
        await put(None)
        return await asyncio.shield(worker)
    finally:
        pipe.stopped.set()
        if not worker.done():
            await asyncio.wait({worker})
        if not worker.cancelled():
            worker.exception()


def _unpack_thread(pipe: _FromLoop, directory: str, skip_unsafe: bool) -> int:
    try:
        with tarfile.open(fileobj=cast(IO[bytes], pipe), mode="r|", bufsize=COPY_BYTES) as tar:
            with Unpacker(directory, skip_unsafe) as unpacker:
                for member in tar:
                    unpacker.add(tar, member)
                unpacker.finish()
                count = unpacker.entries
        while pipe.read(COPY_BYTES):
            pass  # padding behind the end mark: the connection can then be used again
        return count
    except tarfile.TarError as e:
        raise BadResponse("the archive is damaged or cut: %s" % e) from None
    except _Stopped:
        return 0


class Unpacker:
    def __init__(self, directory: str, skip_unsafe: bool) -> None:
        self.entries = 0
        self._root = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._skip_unsafe = skip_unsafe
        self._directory_modes: List[Tuple[List[str], int, float]] = []

    def __enter__(self) -> "Unpacker":
        return self

    def __exit__(self, *exc: object) -> None:
        os.close(self._root)

    def add(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        try:
            path = _components(member.name)
            if member.isdir():
                os.close(self._directory(path))
                self._directory_modes.append((path, member.mode & 0o777, member.mtime))
            elif not path:
                raise PathUnsafe("the archive names its own root as a file")
            else:
                self._leaf(tar, member, path)
        except PathUnsafe:
            if not self._skip_unsafe:
                raise
            return
        self.entries += 1

    def finish(self) -> None:
        """Directory modes last, deepest first: a read-only one may hold files."""
        for path, mode, mtime in sorted(self._directory_modes, key=lambda m: -len(m[0])):
            fd = self._directory(path)
            try:
                if path:
                    os.fchmod(fd, mode)
                os.utime(fd, (mtime, mtime))
            finally:
                os.close(fd)

    def _directory(self, path: List[str]) -> int:
        """A descriptor of a directory below the root, made where missing."""
        fd = os.dup(self._root)
        for part in path:
            try:
                try:
                    os.mkdir(part, 0o700, dir_fd=fd)
                except FileExistsError:
                    pass
                deeper = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
            except OSError as e:
                raise PathUnsafe("%s is in the way of the archive: %s" % ("/".join(path), e.strerror)) from None
            finally:
                os.close(fd)
            fd = deeper
        return fd

    def _leaf(self, tar: tarfile.TarFile, member: tarfile.TarInfo, path: List[str]) -> None:
        parent = self._directory(path[:-1])
        try:
            _remove(parent, path)
            if member.issym():
                _check_link(path, member.linkname)
                os.symlink(member.linkname, path[-1], dir_fd=parent)
            elif member.islnk():
                self._hard_link(parent, path, _components(member.linkname))
            elif member.isreg():
                self._file(tar, member, parent, path[-1])
            else:
                raise PathUnsafe("%s is neither file, directory nor link" % member.name)
        finally:
            os.close(parent)

    def _file(self, tar: tarfile.TarFile, member: tarfile.TarInfo, parent: int, name: str) -> None:
        source = tar.extractfile(member)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(name, flags, 0o600, dir_fd=parent)
        with os.fdopen(fd, "wb") as out:
            while source is not None:
                data = source.read(COPY_BYTES)
                if not data:
                    break
                out.write(data)
            out.flush()
            os.fchmod(out.fileno(), member.mode & 0o777)
            os.utime(out.fileno(), (member.mtime, member.mtime))

    def _hard_link(self, parent: int, path: List[str], target: List[str]) -> None:
        if not target:
            raise PathUnsafe("%s is a link to the root" % "/".join(path))
        directory = self._directory(target[:-1])
        try:
            # follow_symlinks=False: a link planted as the target is linked itself.
            os.link(target[-1], path[-1], src_dir_fd=directory, dst_dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            raise PathUnsafe("%s links to what is not in the archive" % "/".join(path)) from None
        finally:
            os.close(directory)


def _components(name: str) -> List[str]:
    parts = [p for p in name.split("/") if p not in ("", ".")]
    if name.startswith("/") or ".." in parts or "\0" in name:
        raise PathUnsafe("the archive entry %r leaves its directory" % name)
    return parts


def _check_link(path: List[str], destination: str) -> None:
    """A symbolic link may point only to what lies below the target."""
    depth = len(path) - 1
    if destination.startswith("/"):
        raise PathUnsafe("%s is a link to %s, outside of the target" % ("/".join(path), destination))
    for part in destination.split("/"):
        if part == "..":
            depth -= 1
        elif part not in ("", "."):
            depth += 1
        if depth < 0:
            raise PathUnsafe("%s is a link to %s, outside of the target" % ("/".join(path), destination))


def _remove(parent: int, path: List[str]) -> None:
    """An older file gives way; an older directory does not."""
    try:
        info = os.stat(path[-1], dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return
    if stat.S_ISDIR(info.st_mode):
        raise PathUnsafe("%s is a directory already" % "/".join(path))
    os.unlink(path[-1], dir_fd=parent)
