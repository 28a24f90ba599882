"""The same client without asyncio: every public method of the asynchronous
classes, blocking. One background thread a client runs the event loop; any thread
may call. Ctrl-C cancels the call that waits (and so kills the command it runs).

Nothing is implemented here: each method hands its arguments to its asynchronous
twin. A test compares the two by reflection, names and signatures.
"""
from __future__ import annotations

import asyncio
import os
import ssl as ssl_module
import threading
from types import TracebackType
from typing import (
    Any,
    AsyncIterator,
    Callable,
    Coroutine,
    Dict,
    Iterator,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    Type,
    TypeVar,
    Union,
)

from ._sources import BytesSource
from .client import DSecClient, Layers
from .errors import DSecError
from .files import Files, Path
from .process import OUTPUT_LIMIT_BYTES, Process, Pty
from .sandbox import Argv, Sandbox
from .types import (
    ArchiveWritten,
    DSecContainerRunArgs,
    ExecInfo,
    ExecResult,
    FileStat,
    FileWritten,
    LayerInfo,
    OutputEvent,
    SandboxesDeleted,
    SandboxEvent,
    SandboxInfo,
    SandboxStatuses,
)

T = TypeVar("T")
S = TypeVar("S")


class _Loop:
    """An event loop on a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="dsec-loop", daemon=True)
        self._thread.start()

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(call, self._loop)
        try:
            return future.result()
        except BaseException:
            if not future.done():  # Ctrl-C in this thread
                future.cancel()
            raise

    def iterate(self, source: AsyncIterator[T]) -> Iterator[T]:
        end: Any = object()

        async def step() -> Any:
            try:
                return await source.__anext__()
            except StopAsyncIteration:
                return end

        try:
            while True:
                item = self.run(step())
                if item is end:
                    return
                yield item
        finally:
            close: Optional[Callable[[], Coroutine[Any, Any, None]]] = getattr(source, "aclose", None)
            if close is not None:
                self.run(close())

    def stop(self) -> None:
        async def finish() -> None:
            rest = asyncio.all_tasks() - {asyncio.current_task()}
            for task in rest:
                task.cancel()
            await asyncio.gather(*rest, return_exceptions=True)
            await asyncio.get_running_loop().shutdown_asyncgens()
            await asyncio.get_running_loop().shutdown_default_executor()

        self.run(finish())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class SyncFiles:
    def __init__(self, loop: _Loop, inner: Files) -> None:
        self._loop = loop
        self._inner = inner

    def read(self, path: Path, *, offset: int = 0, length: int = 0, user: Optional[str] = None) -> bytes:
        return self._loop.run(self._inner.read(path, offset=offset, length=length, user=user))

    def read_text(self, path: Path, *, user: Optional[str] = None, errors: str = "strict") -> str:
        return self._loop.run(self._inner.read_text(path, user=user, errors=errors))

    def write(
        self,
        path: Path,
        data: Union[bytes, str],
        *,
        mode: int = 0o644,
        parents: bool = True,
        user: Optional[str] = None,
    ) -> FileWritten:
        return self._loop.run(self._inner.write(path, data, mode=mode, parents=parents, user=user))

    def read_stream(
        self, path: Path, *, offset: int = 0, length: int = 0, user: Optional[str] = None
    ) -> Iterator[bytes]:
        return self._loop.iterate(self._inner.read_stream(path, offset=offset, length=length, user=user))

    def write_stream(
        self,
        path: Path,
        source: BytesSource,
        *,
        mode: int = 0o644,
        parents: bool = True,
        user: Optional[str] = None,
    ) -> FileWritten:
        return self._loop.run(self._inner.write_stream(path, source, mode=mode, parents=parents, user=user))

    def upload_file(
        self, local: "Union[str, os.PathLike[str]]", path: Path, *, mode: Optional[int] = None, user: Optional[str] = None
    ) -> FileWritten:
        return self._loop.run(self._inner.upload_file(local, path, mode=mode, user=user))

    def download_file(
        self, path: Path, local: "Union[str, os.PathLike[str]]", *, user: Optional[str] = None
    ) -> int:
        return self._loop.run(self._inner.download_file(path, local, user=user))

    def upload_dir(
        self, local: "Union[str, os.PathLike[str]]", path: Path, *, user: Optional[str] = None
    ) -> ArchiveWritten:
        return self._loop.run(self._inner.upload_dir(local, path, user=user))

    def download_dir(
        self,
        path: Path,
        local: "Union[str, os.PathLike[str]]",
        *,
        user: Optional[str] = None,
        skip_unsafe: bool = False,
    ) -> int:
        return self._loop.run(self._inner.download_dir(path, local, user=user, skip_unsafe=skip_unsafe))

    def read_archive(self, path: Path, *, user: Optional[str] = None) -> Iterator[bytes]:
        return self._loop.iterate(self._inner.read_archive(path, user=user))

    def write_archive(self, path: Path, source: BytesSource, *, user: Optional[str] = None) -> ArchiveWritten:
        return self._loop.run(self._inner.write_archive(path, source, user=user))

    def list(self, path: Path, *, user: Optional[str] = None) -> List[FileStat]:
        return self._loop.run(self._inner.list(path, user=user))

    def stat(self, path: Path, *, follow: bool = False, user: Optional[str] = None) -> FileStat:
        return self._loop.run(self._inner.stat(path, follow=follow, user=user))

    def exists(self, path: Path, *, user: Optional[str] = None) -> bool:
        return self._loop.run(self._inner.exists(path, user=user))

    def mkdir(
        self, path: Path, *, mode: int = 0o755, parents: bool = True, user: Optional[str] = None
    ) -> None:
        self._loop.run(self._inner.mkdir(path, mode=mode, parents=parents, user=user))

    def move(self, source: Path, target: Path, *, overwrite: bool = False, user: Optional[str] = None) -> None:
        self._loop.run(self._inner.move(source, target, overwrite=overwrite, user=user))

    def remove(self, path: Path, *, recursive: bool = False, user: Optional[str] = None) -> None:
        self._loop.run(self._inner.remove(path, recursive=recursive, user=user))


class SyncProcess:
    """Iterate it for live output; `with` kills it on the way out if it still runs."""

    def __init__(self, loop: _Loop, inner: Process) -> None:
        self._loop = loop
        self._inner = inner
        self.id = inner.id
        self.sandbox_id = inner.sandbox_id

    @property
    def info(self) -> ExecInfo:
        return self._inner.info

    @property
    def finished(self) -> bool:
        return self._inner.finished

    def refresh(self) -> ExecInfo:
        return self._loop.run(self._inner.refresh())

    def __iter__(self) -> Iterator[OutputEvent]:
        return self.events()

    def events(self) -> Iterator[OutputEvent]:
        return self._loop.iterate(self._inner.events())

    def wait(self) -> ExecResult:
        return self._loop.run(self._inner.wait())

    def wait_finished(self, timeout: float) -> bool:
        return self._loop.run(self._inner.wait_finished(timeout))

    def result(self) -> ExecResult:
        return self._inner.result()

    def write(self, data: Union[bytes, str]) -> None:
        self._loop.run(self._inner.write(data))

    def close_stdin(self) -> None:
        self._loop.run(self._inner.close_stdin())

    def signal(self, signal: Union[int, str], *, whole_tree: bool = True) -> None:
        self._loop.run(self._inner.signal(signal, whole_tree=whole_tree))

    def kill(self) -> None:
        self._loop.run(self._inner.kill())

    def resize(self, rows: int, cols: int) -> None:
        self._loop.run(self._inner.resize(rows, cols))

    def aclose(self) -> None:
        self._loop.run(self._inner.aclose())

    def __enter__(self: S) -> S:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], value: Optional[BaseException], tb: Optional[TracebackType]
    ) -> None:
        self._loop.run(self._inner.__aexit__(kind, value, tb))


class SyncPty(SyncProcess):
    pass


class SyncSandbox:
    def __init__(self, loop: _Loop, inner: Sandbox) -> None:
        self._loop = loop
        self._inner = inner
        self.id = inner.id
        self.files = SyncFiles(loop, inner.files)

    def __repr__(self) -> str:
        return "<SyncSandbox %s>" % self.id

    @property
    def last_info(self) -> Optional[SandboxInfo]:
        return self._inner.last_info

    def run_shell(
        self,
        text: str,
        *,
        timeout: Optional[float] = None,
        env: Optional[Mapping[str, str]] = None,
        cwd: Optional[str] = None,
        user: Optional[str] = None,
        stdin: Optional[BytesSource] = None,
        kill_grace: float = 0,
        output_limit_bytes: int = OUTPUT_LIMIT_BYTES,
        exec_id: Optional[str] = None,
    ) -> ExecResult:
        return self._loop.run(
            self._inner.run_shell(
                text,
                timeout=timeout,
                env=env,
                cwd=cwd,
                user=user,
                stdin=stdin,
                kill_grace=kill_grace,
                output_limit_bytes=output_limit_bytes,
                exec_id=exec_id,
            )
        )

    def exec(
        self,
        argv: Argv,
        *,
        timeout: Optional[float] = None,
        env: Optional[Mapping[str, str]] = None,
        cwd: Optional[str] = None,
        user: Optional[str] = None,
        stdin: Optional[BytesSource] = None,
        kill_grace: float = 0,
        output_limit_bytes: int = OUTPUT_LIMIT_BYTES,
        exec_id: Optional[str] = None,
    ) -> ExecResult:
        return self._loop.run(
            self._inner.exec(
                argv,
                timeout=timeout,
                env=env,
                cwd=cwd,
                user=user,
                stdin=stdin,
                kill_grace=kill_grace,
                output_limit_bytes=output_limit_bytes,
                exec_id=exec_id,
            )
        )

    def start(
        self,
        argv: Optional[Argv] = None,
        *,
        shell: Optional[str] = None,
        stdin: bool = False,
        timeout: Optional[float] = None,
        env: Optional[Mapping[str, str]] = None,
        cwd: Optional[str] = None,
        user: Optional[str] = None,
        kill_grace: float = 0,
        output_limit_bytes: int = OUTPUT_LIMIT_BYTES,
        exec_id: Optional[str] = None,
    ) -> SyncProcess:
        inner = self._loop.run(
            self._inner.start(
                argv,
                shell=shell,
                stdin=stdin,
                timeout=timeout,
                env=env,
                cwd=cwd,
                user=user,
                kill_grace=kill_grace,
                output_limit_bytes=output_limit_bytes,
                exec_id=exec_id,
            )
        )
        return SyncProcess(self._loop, inner)

    def pty(
        self,
        argv: Optional[Argv] = None,
        *,
        shell: Optional[str] = None,
        rows: int = 24,
        cols: int = 80,
        timeout: Optional[float] = None,
        env: Optional[Mapping[str, str]] = None,
        cwd: Optional[str] = None,
        user: Optional[str] = None,
        output_limit_bytes: int = OUTPUT_LIMIT_BYTES,
        exec_id: Optional[str] = None,
    ) -> SyncPty:
        inner: Pty = self._loop.run(
            self._inner.pty(
                argv,
                shell=shell,
                rows=rows,
                cols=cols,
                timeout=timeout,
                env=env,
                cwd=cwd,
                user=user,
                output_limit_bytes=output_limit_bytes,
                exec_id=exec_id,
            )
        )
        return SyncPty(self._loop, inner)

    def attach(
        self,
        exec_id: str,
        *,
        stdout_offset: int = 0,
        stderr_offset: int = 0,
        output_limit_bytes: int = OUTPUT_LIMIT_BYTES,
    ) -> SyncProcess:
        inner = self._loop.run(
            self._inner.attach(
                exec_id,
                stdout_offset=stdout_offset,
                stderr_offset=stderr_offset,
                output_limit_bytes=output_limit_bytes,
            )
        )
        return SyncProcess(self._loop, inner)

    def execs(self) -> List[ExecInfo]:
        return self._loop.run(self._inner.execs())

    def info(self) -> SandboxInfo:
        return self._loop.run(self._inner.info())

    def wait_until(self, state: str = "stopped", timeout: float = 60.0) -> SandboxInfo:
        return self._loop.run(self._inner.wait_until(state, timeout))

    def set_ttl(
        self, ttl_seconds: Optional[float] = None, *, idle_ttl_seconds: Optional[float] = None
    ) -> SandboxInfo:
        return self._loop.run(self._inner.set_ttl(ttl_seconds, idle_ttl_seconds=idle_ttl_seconds))

    def stop(self, *, wait: bool = True) -> SandboxInfo:
        return self._loop.run(self._inner.stop(wait=wait))

    def __enter__(self) -> "SyncSandbox":
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], value: Optional[BaseException], tb: Optional[TracebackType]
    ) -> None:
        self._loop.run(self._inner.__aexit__(kind, value, tb))


class SyncLayers:
    def __init__(self, loop: _Loop, inner: Layers) -> None:
        self._loop = loop
        self._inner = inner

    def list(self) -> List[LayerInfo]:
        return self._loop.run(self._inner.list())

    def get(self, reference: str) -> LayerInfo:
        return self._loop.run(self._inner.get(reference))

    def delete(self, reference: str) -> None:
        self._loop.run(self._inner.delete(reference))

    def import_tar(self, reference: str, source: BytesSource, *, origin: str = "") -> LayerInfo:
        return self._loop.run(self._inner.import_tar(reference, source, origin=origin))

    def import_dir(self, reference: str, directory: "Union[str, os.PathLike[str]]") -> LayerInfo:
        return self._loop.run(self._inner.import_dir(reference, directory))


class DSecSyncClient:
    """See DSecClient. Its thread lives until close()."""

    def __init__(
        self,
        url: Optional[str] = None,
        api_key: Optional[str] = None,
        state_dir: Optional[str] = None,
        *,
        timeout: float = 30.0,
        connect_timeout: float = 10.0,
        ssl_context: Optional[ssl_module.SSLContext] = None,
    ) -> None:
        self._inner = DSecClient(
            url, api_key, state_dir, timeout=timeout, connect_timeout=connect_timeout, ssl_context=ssl_context
        )
        self.url = self._inner.url
        self._loop = _Loop()
        self._closed = False
        self.layers = SyncLayers(self._loop, self._inner.layers)

    def open(self) -> "DSecSyncClient":
        self._loop.run(self._inner.open())
        return self

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._loop.run(self._inner.close())
        self._loop.stop()

    def run_container(self, args: DSecContainerRunArgs, timeout: float = 120.0) -> SyncSandbox:
        return SyncSandbox(self._loop, self._loop.run(self._inner.run_container(args, timeout)))

    def run_containers(
        self, args: DSecContainerRunArgs, count: int, timeout: float = 120.0
    ) -> Iterator[Tuple[int, Union[SyncSandbox, DSecError]]]:
        for index, made in self._loop.iterate(self._inner.run_containers(args, count, timeout)):
            yield index, SyncSandbox(self._loop, made) if isinstance(made, Sandbox) else made

    def watch(self, labels: Optional[Mapping[str, str]] = None) -> Iterator[SandboxEvent]:
        return self._loop.iterate(self._inner.watch(labels))

    def statuses(self, sandbox_ids: Sequence[str]) -> SandboxStatuses:
        return self._loop.run(self._inner.statuses(sandbox_ids))

    def delete_labelled(self, labels: Mapping[str, str], *, wait: bool = True) -> SandboxesDeleted:
        return self._loop.run(self._inner.delete_labelled(labels, wait=wait))

    def list(
        self,
        *,
        labels: Optional[Mapping[str, str]] = None,
        state: Optional[str] = None,
        include_stopped: bool = False,
    ) -> List[SandboxInfo]:
        return self._loop.run(self._inner.list(labels=labels, state=state, include_stopped=include_stopped))

    def get(self, sandbox_id: str) -> SyncSandbox:
        return SyncSandbox(self._loop, self._loop.run(self._inner.get(sandbox_id)))

    def delete(self, sandbox_id: str, *, wait: bool = True) -> SandboxInfo:
        return self._loop.run(self._inner.delete(sandbox_id, wait=wait))

    def version(self) -> Dict[str, Any]:
        return self._loop.run(self._inner.version())

    def limits(self) -> Dict[str, Any]:
        return self._loop.run(self._inner.limits())

    def edges(self) -> Dict[str, Any]:
        return self._loop.run(self._inner.edges())

    def __enter__(self) -> "DSecSyncClient":
        try:
            return self.open()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *exc: object) -> None:
        self.close()
