"""One sandbox: run commands, touch files, set its time, stop it.

A handle holds no state of its own beside the last look (`last_info`); any number
of handles, in any number of processes, may stand for one sandbox.
"""
from __future__ import annotations

import asyncio
import base64
import math
import secrets
import time
from typing import Any, Dict, List, Mapping, Optional, Sequence, Type, TypeVar, Union

from ._api import Api, sandbox_path
from ._sources import BytesSource, pieces
from .errors import DSecError, StdinClosed
from .files import Files
from .process import OUTPUT_LIMIT_BYTES, Process, Pty
from .types import ExecInfo, ExecResult, SandboxInfo

STDIN_INLINE_BYTES = 1 << 20  # the API's bound of stdin_b64
STOP_SECONDS = 120.0
WAIT_SECONDS = 60  # the API's bound of wait_seconds

Argv = Sequence[Union[str, bytes]]
P = TypeVar("P", bound=Process)


class Sandbox:
    """Not made directly: see DSecClient.run_container and get. As an async
    context manager it stops the sandbox on the way out."""

    def __init__(self, api: Api, sandbox_id: str, info: Optional[SandboxInfo] = None) -> None:
        self.id = sandbox_id
        self.last_info = info
        self.files = Files(api, sandbox_id)
        self._api = api

    def __repr__(self) -> str:
        return "<Sandbox %s>" % self.id

    # --- commands -----------------------------------------------------------
    async def run_shell(
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
        """Runs `text` by /bin/sh -c in the sandbox and waits for its end.

        `timeout` (seconds) is kept by the server: the whole tree is killed and the
        result says `timed_out`, with the output so far. Cancelling the call (as
        asyncio.wait_for does) kills the command too.
        """
        body = _start_body(None, text, env, cwd, user, timeout, kill_grace, output_limit_bytes)
        return await self._run(body, stdin, output_limit_bytes, exec_id)

    async def exec(
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
        """As run_shell, but without a shell: argv goes to the kernel as it is."""
        body = _start_body(argv, None, env, cwd, user, timeout, kill_grace, output_limit_bytes)
        return await self._run(body, stdin, output_limit_bytes, exec_id)

    async def start(
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
    ) -> Process:
        """Starts a command and returns its handle as soon as it runs. `stdin=True`
        leaves its standard input open for write(); otherwise it reads /dev/null."""
        body = _start_body(argv, shell, env, cwd, user, timeout, kill_grace, output_limit_bytes)
        if stdin:
            body["stdin"] = "open"
        return await self._start(Process, body, output_limit_bytes, exec_id)

    async def pty(
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
    ) -> Pty:
        """A command on a terminal of its own; without argv and shell: /bin/sh."""
        if argv is None and shell is None:
            argv = ["/bin/sh"]
        body = _start_body(argv, shell, env, cwd, user, timeout, 0, output_limit_bytes)
        body["stdin"] = "open"
        body["pty"] = {"rows": rows, "cols": cols}
        return await self._start(Pty, body, output_limit_bytes, exec_id)

    async def attach(
        self,
        exec_id: str,
        *,
        stdout_offset: int = 0,
        stderr_offset: int = 0,
        output_limit_bytes: int = OUTPUT_LIMIT_BYTES,
    ) -> Process:
        """The handle of a command that was started before, by whomever."""
        process = Process(
            self._api,
            self.id,
            exec_id,
            output_limit_bytes=output_limit_bytes,
            stdout_offset=stdout_offset,
            stderr_offset=stderr_offset,
        )
        await process._attach()
        return process

    async def execs(self) -> List[ExecInfo]:
        answer = await self._api.call("GET", sandbox_path(self.id, "/execs"))
        return [ExecInfo.from_json(o) for o in answer["execs"]]

    async def _start(self, cls: Type[P], body: Dict[str, Any], limit: int, exec_id: Optional[str]) -> P:
        body["id"] = exec_id or new_exec_id()
        process = cls(self._api, self.id, body["id"], body=body, output_limit_bytes=limit)
        await process._start()
        return process

    async def _run(
        self, body: Dict[str, Any], stdin: Optional[BytesSource], limit: int, exec_id: Optional[str]
    ) -> ExecResult:
        body["id"] = exec_id or new_exec_id()
        if isinstance(stdin, str):
            stdin = stdin.encode("utf-8")
        if isinstance(stdin, (bytes, bytearray, memoryview)) and len(stdin) <= STDIN_INLINE_BYTES:
            body["stdin_b64"] = base64.b64encode(stdin).decode("ascii")
            stdin = None
        elif stdin is not None:
            body["stdin"] = "open"
        process = Process(self._api, self.id, body["id"], body=body, output_limit_bytes=limit)
        try:
            await process._start()
            if stdin is None:
                return await process.wait()
            return await _feed_and_wait(process, stdin)
        except BaseException as e:
            if not isinstance(e, DSecError) and not process.finished:
                await _kill_quietly(process)
            raise
        finally:
            await process.aclose()

    # --- the sandbox itself -------------------------------------------------
    async def info(self) -> SandboxInfo:
        self.last_info = SandboxInfo.from_json(await self._api.call("GET", sandbox_path(self.id)))
        return self.last_info

    async def wait_until(self, state: str = "stopped", timeout: float = 60.0) -> SandboxInfo:
        """Returns when its state is `state` ("running" or "stopped"), cannot become that
        any more, or `timeout` is over: look at the answer's state."""
        until = time.monotonic() + timeout
        while True:
            left = max(0, min(WAIT_SECONDS, math.ceil(until - time.monotonic())))
            answer = await self._api.call(
                "GET", sandbox_path(self.id), query=(("wait_seconds", left), ("until", state)), timeout=left + 30.0
            )
            self.last_info = SandboxInfo.from_json(answer)
            over = self.last_info.state in (state, "stopped", *(("stopping",) if state == "running" else ()))
            if over or time.monotonic() >= until:
                return self.last_info

    async def set_ttl(
        self, ttl_seconds: Optional[float] = None, *, idle_ttl_seconds: Optional[float] = None
    ) -> SandboxInfo:
        """New lifetime and idle time, both counted from now; what is None stays."""
        named = {"ttl_seconds": ttl_seconds, "idle_ttl_seconds": idle_ttl_seconds}
        data = {k: v for k, v in named.items() if v is not None}
        if not data:
            raise ValueError("name ttl_seconds or idle_ttl_seconds")
        answer = await self._api.call("POST", sandbox_path(self.id, "/ttl"), data=data, safe=True)
        self.last_info = SandboxInfo.from_json(answer)
        return self.last_info

    async def stop(self, *, wait: bool = True) -> SandboxInfo:
        """Ends and removes the sandbox with everything in it. Idempotent."""
        answer = await self._api.call(
            "DELETE", sandbox_path(self.id), query=(("wait", wait),), timeout=STOP_SECONDS, safe=True
        )
        self.last_info = SandboxInfo.from_json(answer)
        return self.last_info

    async def __aenter__(self) -> "Sandbox":
        return self

    async def __aexit__(self, *exc: object) -> None:
        try:
            await self.stop()
        except DSecError:
            if exc[0] is None:
                raise


def new_exec_id() -> str:
    """Same shape as the server's: 130 random bits in base32."""
    alphabet = "abcdefghijklmnopqrstuvwxyz234567"
    number = secrets.randbits(130)
    return "ex-" + "".join(alphabet[(number >> (5 * i)) & 31] for i in range(26))


def _start_body(
    argv: Optional[Argv],
    shell: Optional[str],
    env: Optional[Mapping[str, str]],
    cwd: Optional[str],
    user: Optional[str],
    timeout: Optional[float],
    kill_grace: float,
    output_limit_bytes: int,
) -> Dict[str, Any]:
    if (argv is None) == (shell is None):
        raise ValueError("give either argv or shell")
    body: Dict[str, Any] = {"output_limit_bytes": output_limit_bytes}
    if argv is not None:
        if isinstance(argv, (str, bytes)):
            raise TypeError("argv is a list; for a command line use run_shell or shell=")
        body["argv"] = [_argv_member(a) for a in argv]
    else:
        body["shell"] = shell
    if timeout is not None:
        if timeout <= 0:
            raise ValueError("timeout must be above 0 (None means no limit)")
        body["timeout_seconds"] = timeout
    if kill_grace:
        body["kill_grace_seconds"] = kill_grace
    if env:
        body["env"] = dict(env)
    if cwd:
        body["cwd"] = cwd
    if user:
        body["user"] = user
    return body


def _argv_member(member: Union[str, bytes]) -> Any:
    raw = member.encode("utf-8", "surrogateescape") if isinstance(member, str) else bytes(member)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(raw).decode("ascii")}


async def _feed_and_wait(process: Process, stdin: BytesSource) -> ExecResult:
    """Writes and reads at once, so that a program that answers while it reads
    cannot block both ends."""
    feeding = asyncio.ensure_future(_feed(process, stdin))
    waiting = asyncio.ensure_future(process.wait())
    try:
        await asyncio.wait({feeding, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if feeding.done():
            feeding.result()  # the source's own failure ends the call
        return await waiting
    finally:
        for task in (feeding, waiting):
            task.cancel()
        await asyncio.wait({feeding, waiting})
        for task in (feeding, waiting):
            if not task.cancelled():
                task.exception()


async def _feed(process: Process, stdin: BytesSource) -> None:
    try:
        async for piece in pieces(stdin):
            await process.write(piece)
        await process.close_stdin()
    except StdinClosed:
        pass  # as a closed pipe: the program decides how much it reads


async def _kill_quietly(process: Process) -> None:
    """After a cancelled call. Shielded: being cancelled again must not leave it running."""

    async def kill() -> None:
        try:
            await asyncio.wait_for(process.kill(), 5)
        except (DSecError, asyncio.TimeoutError):
            pass  # may never have started; the sandbox's own limits hold

    task = asyncio.ensure_future(kill())
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        pass
