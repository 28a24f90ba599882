"""Calls on the API: URLs, JSON, typed errors, and the one retry policy.

Used by every public class; not public itself. What may be repeated:
 - any call whose connection could not even be made;
 - any call that the server refused for load (``overloaded``, and
   ``capacity_exhausted`` where the caller has time): a refusal has done nothing;
 - `safe` calls (those that may act twice: reads, deletes by id, whole-file
   writes, starts under an id of our own) also after a lost connection and while
   an edge restarts.
Nothing else, above all no create without an idempotency key.
"""
from __future__ import annotations

import asyncio
import json
import random
from typing import Any, Awaitable, Callable, Mapping, Optional, Sequence, Tuple, TypeVar, Union
from urllib.parse import quote

from ._http import Body, Pool, Response
from .errors import ConnectionFailed, ConnectionLost, DSecError, EdgeUnavailable, Overloaded

ATTEMPTS = 6
BACKOFF_FIRST_SECONDS = 0.1
BACKOFF_MAX_SECONDS = 2.0
RETRY_AFTER_MAX_SECONDS = 30.0

T = TypeVar("T")
Query = Sequence[Tuple[str, Union[str, bytes, int, bool, None]]]


def quoted(value: Union[str, bytes]) -> str:
    raw = value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape")
    return quote(raw, safe="")


def target(path: str, query: Query = ()) -> str:
    """Parameters that are None are left out."""
    parts = []
    for key, value in query:
        if value is None:
            continue
        if isinstance(value, bool):
            value = "true" if value else "false"
        elif isinstance(value, int):
            value = str(value)
        parts.append("%s=%s" % (key, quoted(value)))
    return path + ("?" + "&".join(parts) if parts else "")


def backoff(attempt: int) -> float:
    """Doubles, with jitter so that 64 clients do not come back as one."""
    return min(BACKOFF_MAX_SECONDS, BACKOFF_FIRST_SECONDS * 2.0**attempt) * random.uniform(0.6, 1.0)


def may_repeat(error: DSecError, safe: bool) -> bool:
    if isinstance(error, (ConnectionFailed, Overloaded)):
        return error.retry
    return safe and isinstance(error, (ConnectionLost, EdgeUnavailable))


async def pause(error: DSecError, attempt: int) -> None:
    delay = backoff(attempt)
    if error.retry_after is not None:
        delay = max(delay, min(error.retry_after, RETRY_AFTER_MAX_SECONDS))
    await asyncio.sleep(delay)


async def repeated(call: Callable[[], Awaitable[T]], safe: bool) -> T:
    for attempt in range(ATTEMPTS):
        try:
            return await call()
        except DSecError as e:
            if attempt == ATTEMPTS - 1 or not may_repeat(e, safe):
                raise
            await pause(e, attempt)
    raise AssertionError("unreachable")


class Api:
    def __init__(self, pool: Pool, timeout: float) -> None:
        self.pool = pool
        self.timeout = timeout

    async def open(
        self,
        method: str,
        path: str,
        *,
        query: Query = (),
        body: Body = None,
        content_type: Optional[str] = None,
        headers: Optional[Mapping[str, str]] = None,
        timeout: Optional[float] = None,
        safe: bool = False,
    ) -> Response:
        """One attempt; the answer's body is still to be read. Raises typed errors."""
        response = await self.pool.request(
            method,
            target(path, query),
            body=body,
            content_type=content_type,
            headers=dict(headers or {}),
            timeout=timeout,
            idempotent=safe,
        )
        return await response.check()

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Query = (),
        data: Optional[Mapping[str, Any]] = None,
        timeout: Optional[float] = None,
        safe: Optional[bool] = None,
    ) -> Any:
        """JSON in, JSON out, repeated where that is safe."""
        is_safe = method == "GET" if safe is None else safe
        body = None if data is None else json.dumps(data).encode("utf-8")
        wait = self.timeout if timeout is None else timeout

        async def once() -> Any:
            response = await self.open(
                method,
                path,
                query=query,
                body=body,
                content_type="application/json" if body is not None else None,
                timeout=wait,
                safe=is_safe,
            )
            response.idle_timeout = wait
            return await response.json()

        return await repeated(once, is_safe)


def sandbox_path(sandbox_id: str, rest: str = "") -> str:
    return "/v1/sandboxes/%s%s" % (quoted(sandbox_id), rest)


def exec_path(sandbox_id: str, exec_id: str, rest: str = "") -> str:
    return sandbox_path(sandbox_id, "/execs/%s%s" % (quoted(exec_id), rest))
