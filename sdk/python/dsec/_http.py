"""A small HTTP/1.1 client on asyncio streams: what this SDK needs and no more.

One ``Pool`` a client, used from one event loop. A connection carries one request
at a time and returns to the pool once its answer has been read to the end.
Bodies stream both ways under back-pressure: uploads wait in ``drain``, downloads
stop reading the socket when the StreamReader's buffer is full.

Rules that matter:
 1. A request is repeated by itself only when that cannot act twice: the
    connection could not be made, or a reused keep-alive connection turned out to
    be closed before a byte of the answer and the request is ``idempotent``.
    Others do not reuse a connection that has idled longer than FRESH_SECONDS.
 2. An answer that comes before the upload's end stops the upload; that
    connection is never used again.
 3. A timeout aborts the transport; the reader then fails and the failure is
    reported as RequestTimeout. No task is made for it, which keeps calls cheap.
"""
from __future__ import annotations

import asyncio
import json
import ssl as ssl_module
import time
from collections import deque
from typing import Any, AsyncIterable, AsyncIterator, Deque, Dict, List, Optional, Set, Tuple, Union
from urllib.parse import urlsplit

from .errors import BadResponse, ConnectionFailed, ConnectionLost, DSecError, RequestTimeout, from_body

READ_BUFFER_BYTES = 256 << 10  # also the limit of a response head or chunk line
PIECE_BYTES = 64 << 10
INLINE_BODY_BYTES = 64 << 10  # bodies up to this are written with the head, without a task
JSON_MAX_BYTES = 256 << 20  # a bound against a server gone mad; lists can be long
IDLE_MAX_SECONDS = 20.0  # servers close idle connections; do not gamble on old ones
FRESH_SECONDS = 1.0
MAX_IDLE = 256

Body = Union[bytes, AsyncIterable[bytes], None]


class _PipeBroken(Exception):
    """The socket failed under an upload; told apart from the body's own OSError."""


class _SourceFailed(Exception):
    """What the body's own iterator raised, on its way past the handlers of the socket's."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


class Connection:
    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, open_ones: "Set[Connection]"
    ) -> None:
        self.reader = reader
        self.writer = writer
        self._open_ones = open_ones
        open_ones.add(self)
        self.idle_since = 0.0
        self.used = False
        self.timed_out = False
        self._timer: Optional[asyncio.TimerHandle] = None
        self._deadline = 0.0

    def arm(self, seconds: Optional[float]) -> None:
        """Abort unless disarmed or re-armed in time. Cheap to call for every read:
        a pending timer is not replaced, it looks at the moved deadline itself."""
        if seconds is None:
            self.disarm()
            return
        loop = asyncio.get_running_loop()
        self._deadline = loop.time() + seconds
        if self._timer is not None and self._timer.when() > self._deadline:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer = loop.call_at(self._deadline, self._expired, loop)

    def disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expired(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if loop.time() < self._deadline:
            self._timer = loop.call_at(self._deadline, self._expired, loop)
            return
        self.timed_out = True
        self.abort()

    def abort(self) -> None:
        self.disarm()
        self._open_ones.discard(self)
        self.writer.transport.abort()

    def close(self) -> None:
        self.disarm()
        self._open_ones.discard(self)
        self.writer.close()

    def alive(self) -> bool:
        return not (self.reader.at_eof() or self.writer.transport.is_closing())

    def lost(self, what: str, cause: Optional[BaseException] = None) -> DSecError:
        if self.timed_out:
            return RequestTimeout("no answer in time while %s" % what)
        return ConnectionLost("the connection broke while %s%s" % (what, ": %s" % cause if cause else ""))


class Response:
    """An answer whose body may still be on its way. Read it to the end or close
    it; ``async with`` does the latter."""

    def __init__(self, pool: "Pool", conn: Connection, status: int, headers: Dict[str, str]) -> None:
        self.status = status
        self.headers = headers
        self.idle_timeout: Optional[float] = None  # seconds a body read may stay silent
        self._pool = pool
        self._conn: Optional[Connection] = conn
        self._reusable = headers.get("connection", "").lower() != "close"
        self._chunked = headers.get("transfer-encoding", "").lower() == "chunked"
        self._chunk_open = False
        self._left: Optional[int] = None
        if not self._chunked and "content-length" in headers:
            if not headers["content-length"].isdigit():
                raise BadResponse("Content-Length is not a number")
            self._left = int(headers["content-length"])
        if status in (204, 304):
            self._left, self._chunked = 0, False
        if self._left is None and not self._chunked:
            self._reusable = False  # the body ends with the connection
        if self._left == 0:
            self._finish()

    @property
    def request_id(self) -> Optional[str]:
        return self.headers.get("x-request-id")

    @property
    def retry_after(self) -> Optional[float]:
        try:
            return max(0.0, float(self.headers["retry-after"]))
        except (KeyError, ValueError):
            return None

    def spoil(self) -> None:
        """The upload was cut: the connection cannot carry another request."""
        self._reusable = False

    def _finish(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            self._pool.give_back(conn, self._reusable)

    async def aclose(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            conn.abort()

    async def __aenter__(self) -> "Response":
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    async def read_some(self, limit: int = PIECE_BYTES) -> bytes:
        """Some of the body as soon as there is any; b"" at its end."""
        conn = self._conn
        if conn is None:
            return b""
        conn.arm(self.idle_timeout)
        try:
            return await self._read_some(conn, limit)
        except (OSError, asyncio.IncompleteReadError) as e:
            error = conn.lost("reading an answer", e)
            await self.aclose()
            raise error from None
        except BaseException:
            await self.aclose()  # cancelled or nonsense: the position in the stream is unknown
            raise

    async def _read_some(self, conn: Connection, limit: int) -> bytes:
        if self._chunked and not self._left:
            if self._chunk_open:  # its CRLF is read late: data must not wait for it
                await conn.reader.readexactly(2)
            self._left = await _chunk_size(conn.reader)
            self._chunk_open = True
            if self._left == 0:
                while (await _line(conn.reader, b"\n")) not in (b"\r\n", b"\n"):
                    pass  # trailers
                self._finish()
                return b""
        want = limit if self._left is None else min(limit, self._left)
        data = await conn.reader.read(want)
        if not data:
            if self._left is None and not conn.timed_out:
                self._finish()
                return b""
            raise asyncio.IncompleteReadError(b"", self._left)
        if self._left is not None:
            self._left -= len(data)
            if self._left == 0 and not self._chunked:
                self._finish()
        return data

    async def iter_bytes(self) -> AsyncIterator[bytes]:
        while True:
            data = await self.read_some()
            if not data:
                return
            yield data

    async def read(self, limit: int = JSON_MAX_BYTES) -> bytes:
        parts: List[bytes] = []
        total = 0
        while True:
            data = await self.read_some(READ_BUFFER_BYTES)
            if not data:
                return b"".join(parts)
            parts.append(data)
            total += len(data)
            if total > limit:
                await self.aclose()
                raise BadResponse("the answer is longer than %d bytes" % limit)

    async def json(self) -> Any:
        raw = await self.read()
        try:
            return json.loads(raw)
        except ValueError:
            raise BadResponse("the answer is not JSON (status %d)" % self.status) from None

    async def check(self) -> "Response":
        """Raises the typed exception of an answer that is an error."""
        if self.status < 400:
            return self
        try:
            parsed = json.loads(await self.read(1 << 20))
            error = parsed["error"]
            if not isinstance(error, dict):
                raise TypeError
        except (ValueError, KeyError, TypeError, BadResponse):
            raise BadResponse("status %d without an error body" % self.status, status=self.status) from None
        raise from_body(error, status=self.status, retry_after=self.retry_after, request_id=self.request_id)


async def _line(reader: asyncio.StreamReader, end: bytes) -> bytes:
    try:
        return await reader.readuntil(end)
    except asyncio.LimitOverrunError:
        raise BadResponse("a response head or chunk line without an end") from None


async def _chunk_size(reader: asyncio.StreamReader) -> int:
    line = await _line(reader, b"\n")
    digits = line.split(b";", 1)[0].strip()
    try:
        if not digits or digits[:1] in b"+-" or b"_" in digits:
            raise ValueError
        return int(digits, 16)
    except ValueError:
        raise BadResponse("a chunk size that is no number") from None


class Pool:
    def __init__(
        self,
        url: str,
        *,
        headers: Dict[str, str],
        connect_timeout: float,
        ssl_context: Optional[ssl_module.SSLContext] = None,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("the URL must look like http://HOST:PORT or https://HOST[:PORT], not %r" % url)
        self.host = parts.hostname
        self.port = parts.port or (443 if parts.scheme == "https" else 80)
        self.prefix = parts.path.rstrip("/")
        self._ssl: Optional[ssl_module.SSLContext] = None
        if parts.scheme == "https":
            self._ssl = ssl_context or ssl_module.create_default_context()
        name = "[%s]" % self.host if ":" in self.host else self.host
        fixed = {"Host": "%s:%d" % (name, self.port), **headers}
        for key, value in fixed.items():
            _refuse_line_break(key, value)
        self._fixed_head = "".join("%s: %s\r\n" % kv for kv in fixed.items())
        self._connect_timeout = connect_timeout
        self._idle: Deque[Connection] = deque()
        self._open: Set[Connection] = set()
        self._closed = False

    async def close(self) -> None:
        self._closed = True
        self._idle.clear()
        while self._open:
            conn = self._open.pop()
            conn.abort()  # streams that are still read fail at once
            try:
                await conn.writer.wait_closed()
            except OSError:
                pass

    def give_back(self, conn: Connection, reusable: bool) -> None:
        conn.disarm()
        if self._closed or not reusable or not conn.alive() or len(self._idle) >= MAX_IDLE:
            conn.close()
            return
        conn.used = True
        conn.idle_since = time.monotonic()
        self._idle.append(conn)

    async def _take(self, max_idle: float) -> Connection:
        if self._closed:
            raise RuntimeError("the client is closed")
        while self._idle and time.monotonic() - self._idle[0].idle_since > IDLE_MAX_SECONDS:
            self._idle.popleft().close()
        while self._idle:
            conn = self._idle[-1]
            if time.monotonic() - conn.idle_since > max_idle:
                break
            self._idle.pop()
            if conn.alive():
                return conn
            conn.close()
        return await self._connect()

    async def _connect(self) -> Connection:
        where = "%s:%d" % (self.host, self.port)
        try:
            reader, writer = await asyncio.wait_for(
                asyncio.open_connection(self.host, self.port, limit=READ_BUFFER_BYTES, ssl=self._ssl),
                self._connect_timeout,
            )
        except asyncio.TimeoutError:
            raise ConnectionFailed("no connection to %s within %g s" % (where, self._connect_timeout)) from None
        except ssl_module.SSLCertVerificationError as e:
            raise ConnectionFailed("%s is not trusted: %s" % (where, e.verify_message), retry=False) from None
        except OSError as e:
            raise ConnectionFailed("cannot connect to %s: %s; is it running (`dsec up`)?" % (where, e)) from None
        return Connection(reader, writer, self._open)

    async def request(
        self,
        method: str,
        target: str,
        *,
        body: Body = None,
        content_type: Optional[str] = None,
        headers: Optional[Dict[str, str]] = None,
        timeout: Optional[float] = None,
        idempotent: Optional[bool] = None,
    ) -> Response:
        """Sends and returns with the answer's head. ``timeout`` counts to the head,
        but for streamed uploads it is the longest silence instead."""
        if idempotent is None:
            idempotent = method in ("GET", "HEAD")
        replayable = body is None or isinstance(body, bytes)
        head = self._head(method, target, body, content_type, headers or {})
        max_idle = IDLE_MAX_SECONDS if idempotent and replayable else FRESH_SECONDS
        conn = await self._take(max_idle)
        while True:
            was_used = conn.used
            try:
                return await self._exchange(conn, head, body, timeout)
            except ConnectionLost:
                if not (was_used and idempotent and replayable):
                    raise
                conn = await self._connect()

    def _head(
        self, method: str, target: str, body: Body, content_type: Optional[str], extra: Dict[str, str]
    ) -> bytes:
        lines = ["%s %s%s HTTP/1.1\r\n" % (method, self.prefix, target), self._fixed_head]
        for key, value in extra.items():
            _refuse_line_break(key, value)
            lines.append("%s: %s\r\n" % (key, value))
        if isinstance(body, bytes):
            lines.append("Content-Length: %d\r\n" % len(body))
        elif body is not None:
            if "Content-Length" not in extra:
                lines.append("Transfer-Encoding: chunked\r\n")
        elif method in ("POST", "PUT"):
            lines.append("Content-Length: 0\r\n")
        if content_type is not None:
            lines.append("Content-Type: %s\r\n" % content_type)
        lines.append("\r\n")
        return "".join(lines).encode("latin-1")

    async def _exchange(self, conn: Connection, head: bytes, body: Body, timeout: Optional[float]) -> Response:
        upload: Optional["asyncio.Task[None]"] = None
        conn.arm(timeout)
        try:
            if body is None:
                conn.writer.write(head)
            elif isinstance(body, bytes) and len(body) <= INLINE_BODY_BYTES:
                conn.writer.write(head + body)
            else:
                conn.writer.write(head)
                chunked = b"\r\nTransfer-Encoding: chunked\r\n" in head
                upload = asyncio.ensure_future(_upload(conn, body, chunked, timeout))
            status, headers = await self._read_head(conn, upload)
            if upload is not None and not upload.done():
                headers["connection"] = "close"  # rule 2
                await _stop(upload)
            conn.disarm()
            return Response(self, conn, status, headers)
        except (_PipeBroken, OSError, asyncio.IncompleteReadError) as e:
            error = conn.lost("waiting for an answer", e)
            conn.abort()
            await _stop(upload)
            raise error from None
        except BaseException as e:
            conn.abort()
            await _stop(upload)
            if isinstance(e, _SourceFailed):
                raise e.error from None
            raise

    async def _read_head(
        self, conn: Connection, upload: Optional["asyncio.Task[None]"]
    ) -> Tuple[int, Dict[str, str]]:
        if upload is None:
            return await _read_head(conn.reader)
        reading = asyncio.ensure_future(_read_head(conn.reader))
        try:
            await asyncio.wait({upload, reading}, return_when=asyncio.FIRST_COMPLETED)
            if upload.done() and not reading.done():
                error = upload.exception()
                # A refused upload breaks the pipe, yet its answer may be waiting to be read.
                if error is not None and not isinstance(error, _PipeBroken):
                    raise _SourceFailed(error)
            return await reading
        finally:
            await _stop(reading)


async def _stop(task: Optional["asyncio.Task[Any]"]) -> None:
    """Cancels and collects, so that no exception is left unlooked at."""
    if task is None:
        return
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.exception()


async def _upload(conn: Connection, body: Body, chunked: bool, timeout: Optional[float]) -> None:
    async def send(data: bytes) -> None:
        try:
            conn.writer.write(data)
            await conn.writer.drain()
        except OSError as e:
            raise _PipeBroken(str(e)) from None
        conn.arm(timeout)

    if isinstance(body, bytes):
        for pos in range(0, len(body), PIECE_BYTES):
            await send(body[pos : pos + PIECE_BYTES])
        return
    assert body is not None
    async for piece in body:
        if piece:
            await send(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
    if chunked:
        await send(b"0\r\n\r\n")


async def _read_head(reader: asyncio.StreamReader) -> Tuple[int, Dict[str, str]]:
    while True:
        raw = await _line(reader, b"\r\n\r\n")
        lines = raw.decode("latin-1").split("\r\n")
        version, _, rest = lines[0].partition(" ")
        code = rest[:3]
        if version not in ("HTTP/1.1", "HTTP/1.0") or not code.isdigit():
            raise BadResponse("what answered does not speak HTTP/1.1")
        headers: Dict[str, str] = {}
        for line in lines[1:]:
            if line:
                name, colon, value = line.partition(":")
                if not colon:
                    raise BadResponse("a header line without a colon")
                headers[name.strip().lower()] = value.strip()
        if version == "HTTP/1.0":
            headers.setdefault("connection", "close")
        status = int(code)
        if status >= 200:
            return status, headers  # 1xx are only announcements


def _refuse_line_break(key: str, value: str) -> None:
    if any(c in key + value for c in "\r\n\0"):
        raise ValueError("a line break in the HTTP header %r" % key)
