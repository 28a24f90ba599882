"""A command in a sandbox: live output, standard input, signals, the result.

Theory of operation. A command is started under an id that we choose, so a start
whose answer was lost is sent again and means the same command. Its output is one
long answer of frames, read only when somebody asks (`async for`, `wait`), which
carries the reader's pace back to the program. When that connection is lost, for
whatever reason, the next read opens `/output` at the exact offsets already
handed on; the server keeps the bytes. Numbered rules:
 1. `_offset[s]` counts bytes handed on (queued items not yet handed on are
    dropped with their connection only when a new one starts from `_offset`).
 2. The exit event comes once, after all output; then `_info` is final.
 3. Reading silence over SILENCE_SECONDS is a lost connection: the server sends a
    keepalive every 10 s.
 4. Without progress for RECONNECT_SECONDS the reader gives up and raises.
"""
from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from typing import Any, AsyncIterator, Deque, Dict, Mapping, Optional, Union

from . import _frames
from ._api import Api, exec_path, may_repeat, pause, sandbox_path
from ._http import Response
from ._output import Collector, text_decoder
from .errors import (
    BadField,
    BadResponse,
    Conflict,
    ConnectionFailed,
    ConnectionLost,
    DSecError,
    ExecNotFound,
    RequestTimeout,
    StdinClosed,
    WrongState,
    from_body,
)
from .types import ExecInfo, ExecResult, OutputEvent

SILENCE_SECONDS = 35.0
RECONNECT_SECONDS = 60.0
START_SECONDS = 60.0  # the server's own pre-exec deadline is shorter
STDIN_PIECE_BYTES = 1 << 20
STDIN_RECENT_BYTES = 512 << 10  # above what edge and sandbox can hold on their way
OUTPUT_LIMIT_BYTES = 10 << 20
WAIT_STEP_SECONDS = 50

_NAMES = {_frames.STDOUT: "stdout", _frames.STDERR: "stderr"}


class Process:
    """Handle of one command. Not made directly: see Sandbox.start and attach.

    As an async context manager it kills the command on the way out if it still runs.
    """

    def __init__(
        self,
        api: Api,
        sandbox_id: str,
        exec_id: str,
        *,
        body: Optional[Mapping[str, Any]] = None,
        output_limit_bytes: int = OUTPUT_LIMIT_BYTES,
        stdout_offset: int = 0,
        stderr_offset: int = 0,
    ) -> None:
        self.id = exec_id
        self.sandbox_id = sandbox_id
        self._api = api
        self._body = body
        self._info: Optional[ExecInfo] = None
        self._final = False
        self._failure: Optional[DSecError] = None
        self._response: Optional[Response] = None
        self._parser = _frames.FrameParser()
        self._items: Deque[_frames.Item] = deque()
        self._offset = {_frames.STDOUT: stdout_offset, _frames.STDERR: stderr_offset}
        self._skipped = {_frames.STDOUT: 0, _frames.STDERR: 0}
        self._collected = {s: Collector(output_limit_bytes) for s in _NAMES}
        self._decoders = {s: text_decoder() for s in _NAMES}
        self._progress = time.monotonic()
        self._attempt = 0
        self._iterating = False
        self._changed = asyncio.Event()
        self._reading = asyncio.Lock()
        self._writing = asyncio.Lock()
        self._stdin_offset = 0
        self._stdin_recent = b""

    # --- what is known ------------------------------------------------------
    @property
    def info(self) -> ExecInfo:
        """The last look at the command; see refresh()."""
        if self._info is None:
            raise RuntimeError("the command has not been started")
        return self._info

    @property
    def finished(self) -> bool:
        return self._final

    async def refresh(self) -> ExecInfo:
        info = ExecInfo.from_json(await self._api.call("GET", exec_path(self.sandbox_id, self.id)))
        if not self._final:
            self._info = info
        return info

    # --- start and attach (called by Sandbox) -------------------------------
    async def _start(self) -> None:
        """Returns when the command runs; raises when it could not be started."""
        began, attempt = time.monotonic(), 0
        while True:
            try:
                await self._post_start()
                return
            except DSecError as e:
                patient = time.monotonic() - began < RECONNECT_SECONDS
                if not (patient and may_repeat(e, safe=True)):
                    raise
                await pause(e, attempt)
                attempt += 1
                if isinstance(e, ConnectionFailed) and attempt > 5:
                    raise

    async def _post_start(self) -> None:
        payload = json.dumps(self._body).encode("utf-8")
        response = await self._api.open(
            "POST",
            sandbox_path(self.sandbox_id, "/execs"),
            query=(("stream", True),),
            body=payload,
            content_type="application/json",
            timeout=START_SECONDS,
            safe=True,
        )
        self._use(response)
        while self._info is None:  # the first event says "started"
            if not await self._fill():
                raise ConnectionLost("the stream ended before the command had started")
            item = self._items.popleft()
            if item[0] == _frames.EVENT:
                self._on_event(item[1])
                if self._failure is not None:
                    failure, self._failure = self._failure, None
                    raise failure
            elif item[0] != _frames.KEEPALIVE:
                raise BadResponse("output came before the start event")

    async def _attach(self) -> None:
        """Knows a command that somebody started; its stream is opened when read."""
        await self.refresh()
        self._stdin_offset = self.info.stdin_offset

    # --- output -------------------------------------------------------------
    def __aiter__(self) -> AsyncIterator[OutputEvent]:
        return self.events()

    async def events(self) -> AsyncIterator[OutputEvent]:
        """Live output until the command has ended. One iteration at a time."""
        if self._iterating:
            raise RuntimeError("the output of this command is already being iterated")
        self._iterating = True
        try:
            while True:
                async with self._reading:
                    event = await self._next_event()
                if event is None:
                    return
                yield event
        finally:
            self._iterating = False
            self._changed.set()

    async def wait(self) -> ExecResult:
        """The result. Reads the output unless an iteration does; then it waits for that."""
        while not self._final:
            if self._iterating:
                self._changed.clear()
                await self._changed.wait()
                continue
            async with self._reading:
                if not self._iterating:
                    await self._next_event()
        if self._failure is not None:
            raise self._failure
        return self.result()

    def result(self) -> ExecResult:
        """The result of a finished command."""
        if not self._final:
            raise RuntimeError("the command has not finished")
        out, err = self._collected[_frames.STDOUT], self._collected[_frames.STDERR]
        return ExecResult(
            info=self.info,
            stdout=out.value(),
            stderr=err.value(),
            stdout_truncated=out.truncated or self.info.stdout_truncated,
            stderr_truncated=err.truncated or self.info.stderr_truncated,
        )

    async def _next_event(self) -> Optional[OutputEvent]:
        while not self._final:
            try:
                event = self._handle(await self._next_item())
            except DSecError as e:
                if not may_repeat(e, safe=True) and not isinstance(e, RequestTimeout):
                    self._end(e)
                    raise
                await self._lost(e)
                continue
            if event is not None:
                return event
        await self._finish_stream()
        if self._failure is not None:
            raise self._failure
        return self._flush()

    def _handle(self, item: _frames.Item) -> Optional[OutputEvent]:
        stream, payload = item
        if isinstance(payload, bytes):
            return self._output(stream, payload) if payload else None
        return self._on_event(payload)

    async def _next_item(self) -> _frames.Item:
        if not self._items:
            if self._response is None:
                await self._reopen()
            if not await self._fill():
                raise ConnectionLost("the output stream ended before the command")
        self._progress = time.monotonic()
        self._attempt = 0
        return self._items.popleft()

    async def _fill(self) -> bool:
        assert self._response is not None
        while not self._items:
            data = await self._response.read_some()
            if not data:
                return False
            self._items.extend(self._parser.feed(data))
        return True

    def _use(self, response: Response) -> None:
        response.idle_timeout = SILENCE_SECONDS
        self._response = response
        self._parser = _frames.FrameParser()
        self._items.clear()

    async def _reopen(self) -> None:
        self._use(
            await self._api.open(
                "GET",
                exec_path(self.sandbox_id, self.id, "/output"),
                query=(
                    ("stdout_offset", self._offset[_frames.STDOUT]),
                    ("stderr_offset", self._offset[_frames.STDERR]),
                    ("follow", True),
                ),
                timeout=self._api.timeout,
                safe=True,
            )
        )

    async def _lost(self, error: DSecError) -> None:
        await self._drop_stream()
        if time.monotonic() - self._progress > RECONNECT_SECONDS:
            raise error  # not final: a later call may try again
        if self._attempt:
            await pause(error, self._attempt - 1)
        self._attempt += 1

    async def _drop_stream(self) -> None:
        response, self._response = self._response, None
        self._items.clear()
        if response is not None:
            await response.aclose()

    async def _finish_stream(self) -> None:
        """Reads the answer's last chunk so that the connection can be used again."""
        response, self._response = self._response, None
        if response is not None:
            response.idle_timeout = 1.0
            try:
                while await response.read_some():
                    pass
            except DSecError:
                pass
            await response.aclose()

    def _output(self, stream: int, data: bytes) -> OutputEvent:
        offset = self._offset[stream]
        self._offset[stream] = offset + len(data)
        self._collected[stream].add(data)
        skipped, self._skipped[stream] = self._skipped[stream], 0
        return OutputEvent(_NAMES[stream], data, self._decoders[stream].decode(data), offset, skipped)

    def _on_event(self, event: Any) -> Optional[OutputEvent]:
        try:
            return self._on_known_event(event)
        except (KeyError, TypeError, ValueError) as e:
            raise BadResponse("an exec event lacks a field: %r" % e) from None

    def _on_known_event(self, event: Dict[str, Any]) -> Optional[OutputEvent]:
        kind = event.get("event")
        if kind == "started":
            self._info = ExecInfo.from_json(event["exec"])
        elif kind == "exit":
            self._info = ExecInfo.from_json(event["exec"])
            self._end(None)
        elif kind == "gap":
            return self._on_gap(event)
        elif kind == "error":
            error = from_body(event.get("error") or {})
            if may_repeat(error, safe=True):
                raise ConnectionLost(error.message)
            self._end(error)
        return None  # events of later versions are not ours to judge

    def _on_gap(self, event: Dict[str, Any]) -> Optional[OutputEvent]:
        stream = _frames.STDERR if event.get("stream") == "stderr" else _frames.STDOUT
        first, last = int(event["from"]), int(event["to"])
        if last <= self._offset[stream]:
            return None
        self._skipped[stream] += last - max(first, self._offset[stream])
        self._offset[stream] = last
        self._collected[stream].gap()
        text = self._decoders[stream].decode(b"", final=True)
        self._decoders[stream].reset()
        if text:  # half a character was waiting for bytes that will not come
            return OutputEvent(_NAMES[stream], b"", text, last, 0)
        return None

    def _end(self, failure: Optional[DSecError]) -> None:
        self._final = True
        self._failure = failure
        self._changed.set()

    def _flush(self) -> Optional[OutputEvent]:
        for stream, name in _NAMES.items():
            text = self._decoders[stream].decode(b"", final=True)
            self._decoders[stream].reset()
            skipped, self._skipped[stream] = self._skipped[stream], 0
            if text or skipped:
                return OutputEvent(name, b"", text, self._offset[stream], skipped)
        return None

    # --- standard input -----------------------------------------------------
    async def write(self, data: Union[bytes, str]) -> None:
        """Sends all of `data`; waits as long as the program does not read.
        StdinClosed when it no longer can."""
        raw = data.encode("utf-8") if isinstance(data, str) else bytes(data)
        async with self._writing:
            for pos in range(0, len(raw), STDIN_PIECE_BYTES):
                await self._write_piece(raw[pos : pos + STDIN_PIECE_BYTES], eof=False)

    async def close_stdin(self) -> None:
        """End of file for the program (for a pty: its input side)."""
        async with self._writing:
            try:
                await self._write_piece(b"", eof=True)
            except StdinClosed:
                pass

    async def _write_piece(self, piece: bytes, eof: bool) -> None:
        """One POST. After a lost one, asks how far it got and sends on from there.
        That may lie before this piece (what the edge had taken can be lost with its
        connection to the sandbox), so the last bytes sent are kept."""
        held = self._stdin_recent + piece
        start = self._stdin_offset - len(self._stdin_recent)
        end = start + len(held)
        at, attempt, began = self._stdin_offset, 0, time.monotonic()
        while True:
            try:
                answer = await self._post_stdin(at, held[at - start :], eof)
            except DSecError as e:
                if time.monotonic() - began > RECONNECT_SECONDS or not self._resumable(e):
                    raise
                await pause(e, attempt)
                attempt += 1
                at = (await self.refresh()).stdin_offset
                if not start <= at <= end:
                    raise ConnectionLost("standard input was lost with the sandbox's connection") from None
                continue
            at = int(answer.get("offset", 0))
            if at >= end:
                break
            if answer.get("closed"):
                raise StdinClosed("the command has closed its standard input")
            raise BadResponse("the server took part of the standard input and gave no reason")
        self._stdin_offset = end
        self._stdin_recent = held[-STDIN_RECENT_BYTES:]

    @staticmethod
    def _resumable(error: DSecError) -> bool:
        """WrongState: an upload of ours whose end the server has not noticed yet.
        BadField: the server is behind the offset that it had acknowledged."""
        return may_repeat(error, safe=True) or isinstance(error, (WrongState, BadField))

    async def _post_stdin(self, at: int, rest: bytes, eof: bool) -> Dict[str, Any]:
        try:
            response = await self._api.open(
                "POST",
                exec_path(self.sandbox_id, self.id, "/stdin"),
                query=(("offset", at), ("eof", eof)),
                body=rest,
                content_type="application/octet-stream",
                timeout=None,  # the program decides when it reads
            )
            answer = await response.json()
        except (Conflict, ExecNotFound):
            raise StdinClosed("the command has ended or closed its standard input") from None
        return answer if isinstance(answer, dict) else {}

    # --- control ------------------------------------------------------------
    async def signal(self, signal: Union[int, str], *, whole_tree: bool = True) -> None:
        """Sends a signal by number or name ("TERM", "SIGTERM"). Nothing to do
        when the command has ended."""
        name = signal[3:] if isinstance(signal, str) and signal.startswith("SIG") else signal
        data = {"signal": name, "whole_tree": whole_tree}
        try:
            await self._api.call("POST", exec_path(self.sandbox_id, self.id, "/signal"), data=data, safe=True)
        except (WrongState, Conflict):
            if not (await self.refresh()).finished:
                raise

    async def kill(self) -> None:
        """SIGKILL to the command and everything it started."""
        await self.signal("KILL")

    async def resize(self, rows: int, cols: int) -> None:
        """New size of the terminal; the program gets SIGWINCH."""
        data = {"rows": rows, "cols": cols}
        await self._api.call("POST", exec_path(self.sandbox_id, self.id, "/resize"), data=data, safe=True)

    async def wait_finished(self, timeout: float) -> bool:
        """Whether the command ends within `timeout` seconds; reads no output."""
        until = time.monotonic() + timeout
        while True:
            left = until - time.monotonic()
            step = max(0, min(WAIT_STEP_SECONDS, int(left + 0.999)))
            answer = await self._api.call(
                "GET",
                exec_path(self.sandbox_id, self.id),
                query=(("wait_seconds", step),),
                timeout=step + self._api.timeout,
            )
            if ExecInfo.from_json(answer).finished:
                return True
            if left <= 0:
                return False

    async def aclose(self) -> None:
        """Stops reading. The command goes on; attach() finds it again."""
        await self._drop_stream()

    async def __aenter__(self) -> "Process":
        return self

    async def __aexit__(self, *exc: object) -> None:
        if not self._final:
            try:
                await self.kill()
            except DSecError:
                if exc[0] is None:
                    raise
        await self.aclose()


class Pty(Process):
    """A command on a terminal: everything it prints is `stdout`, with the
    terminal's line ends; what is written is typed."""
