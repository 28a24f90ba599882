"""Files of a sandbox. Paths are the sandbox's: absolute, or relative to the
user's home; `user` says as whom. Bytes in, bytes out; text only where asked."""
from __future__ import annotations

import asyncio
import hashlib
import os
from typing import AsyncIterator, List, Optional, Tuple, Union

from . import _tar
from ._api import Api, Query, repeated, sandbox_path
from ._http import Response
from ._sources import BytesSource, pieces
from .errors import BadResponse, RemoteFileNotFound
from .types import ArchiveWritten, FileStat, FileWritten

Path = Union[str, bytes, "os.PathLike[str]"]
IDLE_SECONDS = 120.0  # silence of a transfer; the disk at either end may be slow


def _path(path: Path) -> Union[str, bytes]:
    return path if isinstance(path, (str, bytes)) else os.fspath(path)


class Files:
    def __init__(self, api: Api, sandbox_id: str) -> None:
        self._api = api
        self._id = sandbox_id

    # --- whole files --------------------------------------------------------
    async def read(self, path: Path, *, offset: int = 0, length: int = 0, user: Optional[str] = None) -> bytes:
        """The file's bytes; `length` 0 means to the end. The whole answer is held
        in memory: see read_stream and download_file for large ones."""

        async def once() -> bytes:
            async with await self._open_read(path, offset, length, user) as response:
                return await response.read(1 << 62)

        return await repeated(once, safe=True)

    async def read_text(self, path: Path, *, user: Optional[str] = None, errors: str = "strict") -> str:
        return (await self.read(path, user=user)).decode("utf-8", errors)

    async def write(
        self,
        path: Path,
        data: Union[bytes, str],
        *,
        mode: int = 0o644,
        parents: bool = True,
        user: Optional[str] = None,
    ) -> FileWritten:
        """Replaces the file atomically. The digest goes with the bytes: the server
        keeps the old file when what arrived is something else."""
        raw = data.encode("utf-8") if isinstance(data, str) else bytes(data)
        digest = hashlib.sha256(raw).hexdigest()

        async def once() -> FileWritten:
            return await self._put(path, raw, mode, parents, user, digest)

        return await repeated(once, safe=True)

    # --- streams ------------------------------------------------------------
    async def read_stream(
        self, path: Path, *, offset: int = 0, length: int = 0, user: Optional[str] = None
    ) -> AsyncIterator[bytes]:
        """The bytes as they come, in pieces of the network's choice."""
        async with await self._open_read(path, offset, length, user) as response:
            async for piece in response.iter_bytes():
                yield piece

    async def write_stream(
        self,
        path: Path,
        source: BytesSource,
        *,
        mode: int = 0o644,
        parents: bool = True,
        user: Optional[str] = None,
    ) -> FileWritten:
        """Replaces the file by what `source` gives; the old one stays until all
        has arrived. The answer's digest is compared with what was sent."""
        digest = hashlib.sha256()

        async def hashed() -> AsyncIterator[bytes]:
            async for piece in pieces(source):
                digest.update(piece)
                yield piece

        written = await self._put(path, hashed(), mode, parents, user, None)
        if written.sha256 != digest.hexdigest():
            raise BadResponse("%r arrived with another digest than it was sent with" % (path,))
        return written

    async def upload_file(
        self, local: "Union[str, os.PathLike[str]]", path: Path, *, mode: Optional[int] = None, user: Optional[str] = None
    ) -> FileWritten:
        """`mode` None takes the local file's."""
        with open(local, "rb") as f:
            bits = os.fstat(f.fileno()).st_mode & 0o777 if mode is None else mode
            return await self.write_stream(path, f, mode=bits, user=user)

    async def download_file(
        self, path: Path, local: "Union[str, os.PathLike[str]]", *, user: Optional[str] = None
    ) -> int:
        """Bytes written. The local file appears only when all of it is there."""
        target = os.fspath(local)
        partial = "%s.dsec-part-%d" % (target, os.getpid())
        try:
            with open(partial, "xb") as f:
                async for piece in self.read_stream(path, user=user):
                    await asyncio.to_thread(f.write, piece)
                size = f.tell()
            os.replace(partial, target)
            return size
        except BaseException:
            if os.path.lexists(partial):
                os.unlink(partial)
            raise

    # --- directories --------------------------------------------------------
    async def upload_dir(
        self, local: "Union[str, os.PathLike[str]]", path: Path, *, user: Optional[str] = None
    ) -> ArchiveWritten:
        """The content of a local directory into one of the sandbox (made if missing).
        Links stay links; files belong to `user`."""
        packed = _tar.pack(os.fspath(local))
        try:
            return await self.write_archive(path, packed, user=user)
        finally:
            await packed.aclose()  # a refused upload leaves no packing thread behind

    async def download_dir(
        self,
        path: Path,
        local: "Union[str, os.PathLike[str]]",
        *,
        user: Optional[str] = None,
        skip_unsafe: bool = False,
    ) -> int:
        """The content of a directory into a local one; the number of entries. An
        entry that would leave `local`, a link out of it, a device: PathUnsafe, or
        left out with `skip_unsafe`."""
        return await _tar.unpack(self.read_archive(path, user=user), os.fspath(local), skip_unsafe)

    async def read_archive(self, path: Path, *, user: Optional[str] = None) -> AsyncIterator[bytes]:
        """A directory as a tar stream."""
        response = await self._api.open(
            "GET", self._url("/archive"), query=self._query(path, user), timeout=IDLE_SECONDS, safe=True
        )
        response.idle_timeout = IDLE_SECONDS
        async with response:
            async for piece in response.iter_bytes():
                yield piece

    async def write_archive(
        self, path: Path, source: BytesSource, *, user: Optional[str] = None
    ) -> ArchiveWritten:
        """Unpacks a tar stream into a directory of the sandbox (made if missing)."""
        response = await self._api.open(
            "PUT",
            self._url("/archive"),
            query=self._query(path, user),
            body=pieces(source),
            content_type="application/x-tar",
            timeout=IDLE_SECONDS,
        )
        answer = await response.json()
        return ArchiveWritten(entries=int(answer["entries"]), bytes=int(answer["bytes"]))

    async def list(self, path: Path, *, user: Optional[str] = None) -> List[FileStat]:
        answer = await self._api.call("GET", self._url("/files/list"), query=self._query(path, user))
        return [FileStat.from_json(o) for o in answer["entries"]]

    # --- names --------------------------------------------------------------
    async def stat(self, path: Path, *, follow: bool = False, user: Optional[str] = None) -> FileStat:
        query = self._query(path, user, ("follow", follow))
        return FileStat.from_json(await self._api.call("GET", self._url("/files/stat"), query=query))

    async def exists(self, path: Path, *, user: Optional[str] = None) -> bool:
        try:
            await self.stat(path, user=user)
            return True
        except RemoteFileNotFound:
            return False

    async def mkdir(
        self, path: Path, *, mode: int = 0o755, parents: bool = True, user: Optional[str] = None
    ) -> None:
        data = {"path": _json_path(path), "mode": "%04o" % mode, "parents": parents}
        await self._api.call("POST", self._url("/files/mkdir"), query=(("user", user),), data=data, safe=parents)

    async def move(
        self, source: Path, target: Path, *, overwrite: bool = False, user: Optional[str] = None
    ) -> None:
        data = {"from": _json_path(source), "to": _json_path(target), "overwrite": overwrite}
        await self._api.call("POST", self._url("/files/move"), query=(("user", user),), data=data)

    async def remove(self, path: Path, *, recursive: bool = False, user: Optional[str] = None) -> None:
        query = self._query(path, user, ("recursive", recursive))
        await self._api.call("DELETE", self._url("/files"), query=query, timeout=IDLE_SECONDS)

    # --- inside -------------------------------------------------------------
    def _url(self, rest: str) -> str:
        return sandbox_path(self._id, rest)

    @staticmethod
    def _query(path: Path, user: Optional[str], *more: Tuple[str, Union[str, bytes, int, bool, None]]) -> Query:
        return (("path", _path(path)), ("user", user), *more)

    async def _open_read(self, path: Path, offset: int, length: int, user: Optional[str]) -> Response:
        query = self._query(path, user, ("offset", offset or None), ("length", length or None))
        response = await self._api.open("GET", self._url("/files"), query=query, timeout=IDLE_SECONDS, safe=True)
        response.idle_timeout = IDLE_SECONDS
        return response

    async def _put(
        self,
        path: Path,
        body: Union[bytes, AsyncIterator[bytes]],
        mode: int,
        parents: bool,
        user: Optional[str],
        digest: Optional[str],
    ) -> FileWritten:
        query = self._query(path, user, ("mode", "%04o" % mode), ("parents", parents), ("sha256", digest))
        response = await self._api.open(
            "PUT",
            self._url("/files"),
            query=query,
            body=body,
            content_type="application/octet-stream",
            timeout=IDLE_SECONDS,
            safe=digest is not None,
        )
        answer = await response.json()
        return FileWritten(path=answer["path"], size=int(answer["size"]), sha256=answer["sha256"])


def _json_path(path: Path) -> str:
    """JSON carries text only; a name that is not UTF-8 cannot be named in a body."""
    value = _path(path)
    if isinstance(value, bytes):
        return value.decode("utf-8")
    value.encode("utf-8")  # surrogate escapes are refused here, with a clear error
    return value
