"""The entry: make a client, open it, run containers.

    async with DSecClient() as client:
        args = DSecContainerRunArgs(container_image="base:1", memory_limit_mb=1024)
        async with await client.run_container(args, timeout=120) as sandbox:
            result = await sandbox.run_shell("echo hello world")

A client belongs to one event loop and holds only connections: closing it stops no
sandbox. One client serves thousands of sandboxes at once.
"""
from __future__ import annotations

import asyncio
import json
import os
import secrets
import ssl as ssl_module
import time
from typing import Any, AsyncIterator, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from . import _tar
from ._api import Api, backoff, quoted
from ._config import discover
from ._http import Pool, Response
from ._sources import BytesSource, pieces
from .errors import (
    BadResponse,
    CapacityExhausted,
    ConnectionFailed,
    ConnectionLost,
    DSecError,
    EdgeUnavailable,
    Overloaded,
    RequestTimeout,
    SandboxNotFound,
    from_body,
)
from .sandbox import Sandbox
from .types import CREATE_LABEL, DSecContainerRunArgs, LayerInfo, SandboxesDeleted, SandboxEvent, SandboxInfo, SandboxStatuses
from .version import __version__

EVENTS_IDLE_SECONDS = 30.0  # the server says something every 10 s
IMPORT_IDLE_SECONDS = 300.0  # the server converts a layer after its last byte
_RETRIED = (CapacityExhausted, Overloaded, ConnectionFailed)  # nothing was made
_RETRIED_WITH_KEY = (ConnectionLost, EdgeUnavailable)
ORPHAN_LOOKS_SECONDS = (0.2, 1.0, 4.0)  # waits before each look for what a cut create made


class DSecClient:
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
        """Without arguments: DSEC_URL and DSEC_API_KEY, else this machine's server.
        `timeout` is for calls that should answer at once."""
        self.url, key = discover(url, api_key, state_dir)
        headers = {"User-Agent": "dsec-python/" + __version__, "Accept": "application/json, */*"}
        if key:
            headers["Authorization"] = "Bearer " + key
        self._pool = Pool(self.url, headers=headers, connect_timeout=connect_timeout, ssl_context=ssl_context)
        self._api = Api(self._pool, timeout)
        self._cleanups: "set[asyncio.Task[None]]" = set()
        self.layers = Layers(self._api)

    # --- open and close -----------------------------------------------------
    async def open(self) -> "DSecClient":
        """Asks the server for its version: a wrong address or key shows here."""
        await self.version()
        return self

    async def close(self) -> None:
        """Ends the connections. Sandboxes live on until they are stopped or their time ends."""
        if self._cleanups:
            await asyncio.wait(self._cleanups)
        await self._pool.close()

    async def __aenter__(self) -> "DSecClient":
        try:
            return await self.open()
        except BaseException:
            await self.close()
            raise

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    # --- sandboxes ----------------------------------------------------------
    async def run_container(self, args: DSecContainerRunArgs, timeout: float = 120.0) -> Sandbox:
        """Creates a sandbox and returns it when it runs.

        A refusal for lack of room is waited out and asked again within `timeout`. A
        create whose answer was lost is never sent again; what it may have made is
        found by a label and removed. With args.idempotency_key it is sent again within
        `timeout`, and what was made stays for whoever comes back with the key.
        """
        body = args.to_body()
        keyed = args.idempotency_key is not None
        tag = secrets.token_hex(8)
        if not keyed:  # the same key wants the same body
            body["labels"] = {**body.get("labels", {}), CREATE_LABEL: tag}
        until = time.monotonic() + timeout
        attempt = 0
        while True:
            try:
                info = await self._create(body, max(0.001, until - time.monotonic()))
                return Sandbox(self._api, info.id, info)
            except _RETRIED + (_RETRIED_WITH_KEY if keyed else ()) as e:
                delay = max(backoff(attempt), e.retry_after or 0.0)
                left = until - time.monotonic() - delay
                if left < min(1.0, timeout / 4) or (isinstance(e, ConnectionFailed) and attempt >= 4):
                    raise  # what is left would only turn a clear refusal into a timeout
                await asyncio.sleep(delay)
                attempt += 1
            except (ConnectionLost, RequestTimeout, EdgeUnavailable, asyncio.CancelledError):
                if not keyed:
                    self._remove_later(tag)
                raise

    async def run_containers(
        self, args: DSecContainerRunArgs, count: int, timeout: float = 120.0
    ) -> AsyncIterator[Tuple[int, Union[Sandbox, DSecError]]]:
        """Creates `count` sandboxes by one call; yields (index, sandbox or error) as each
        ends, every index once. `timeout` is for the wait from one to the next.

        Left early, nothing more is started and the server deletes what it has not
        sent; what was yielded is the caller's. With args.idempotency_key nothing is
        deleted, and the same call again gives the same sandboxes.
        """
        response = await self._api.open(
            "POST",
            "/v1/sandboxes/batch",
            body=json.dumps({**args.to_body(), "count": count}).encode("utf-8"),
            content_type="application/json",
            timeout=timeout,
        )
        response.idle_timeout = timeout
        async with response:
            seen = 0
            async for line in _lines(response):
                seen += 1
                error = line.get("error")
                if error is not None:
                    yield int(line["index"]), from_body(error)
                else:
                    info = SandboxInfo.from_json(line["sandbox"])
                    yield int(line["index"]), Sandbox(self._api, info.id, info)
            if seen != count:
                raise BadResponse("the batch of %d ended after %d" % (count, seen))

    async def watch(self, labels: Optional[Mapping[str, str]] = None) -> AsyncIterator[SandboxEvent]:
        """Those that carry all of `labels`, then their state changes as they happen,
        without end. Raises what ended it: watch again for a fresh list."""
        response = await self._api.open(
            "GET",
            "/v1/sandboxes/events",
            query=[("label", "%s=%s" % kv) for kv in (labels or {}).items()],
            timeout=EVENTS_IDLE_SECONDS,
            safe=True,
        )
        response.idle_timeout = EVENTS_IDLE_SECONDS
        async with response:
            async for line in _lines(response):
                event, sandbox = str(line.get("event")), line.get("sandbox")
                if event == "error":
                    raise from_body(line["error"])
                if event != "keepalive":
                    yield SandboxEvent(event, SandboxInfo.from_json(sandbox) if sandbox else None)
        raise BadResponse("the events ended without an error")

    async def statuses(self, sandbox_ids: Sequence[str]) -> SandboxStatuses:
        """Many sandboxes by one call (at most limits()["limits"]["status_ids"])."""
        answer = await self._api.call("POST", "/v1/sandboxes/status", data={"ids": [*sandbox_ids]}, safe=True)
        return SandboxStatuses(
            sandboxes=tuple(SandboxInfo.from_json(o) for o in answer["sandboxes"]), unknown=tuple(answer["unknown"])
        )

    async def delete_labelled(self, labels: Mapping[str, str], *, wait: bool = True) -> SandboxesDeleted:
        """Stops and removes all sandboxes that carry all of `labels` (at least one)."""
        query = [("label", "%s=%s" % kv) for kv in labels.items()]
        answer = await self._api.call("DELETE", "/v1/sandboxes", query=(*query, ("wait", wait)), timeout=120.0, safe=True)
        failed = {o["id"]: from_body(o["error"]) for o in answer["failed"]}
        return SandboxesDeleted(ids=tuple(answer["ids"]), failed=failed)

    async def list(
        self,
        *,
        labels: Optional[Mapping[str, str]] = None,
        state: Optional[str] = None,
        include_stopped: bool = False,
    ) -> List[SandboxInfo]:
        """Sandboxes that carry all of `labels`."""
        query = [("label", "%s=%s" % kv) for kv in (labels or {}).items()]
        answer = await self._api.call(
            "GET",
            "/v1/sandboxes",
            query=(*query, ("state", state), ("include_stopped", True if include_stopped else None)),
        )
        return [SandboxInfo.from_json(o) for o in answer["sandboxes"]]

    async def get(self, sandbox_id: str) -> Sandbox:
        """A handle of a living sandbox; SandboxNotFound if there is none."""
        sandbox = Sandbox(self._api, sandbox_id)
        await sandbox.info()
        return sandbox

    async def delete(self, sandbox_id: str, *, wait: bool = True) -> SandboxInfo:
        return await Sandbox(self._api, sandbox_id).stop(wait=wait)

    # --- the server ---------------------------------------------------------
    async def version(self) -> Dict[str, Any]:
        return dict(await self._api.call("GET", "/v1/version"))

    async def limits(self) -> Dict[str, Any]:
        """Every limit of the server by name."""
        return dict(await self._api.call("GET", "/v1/limits"))

    async def edges(self) -> Dict[str, Any]:
        return dict(await self._api.call("GET", "/v1/edges"))

    # --- inside -------------------------------------------------------------
    async def _create(self, body: Mapping[str, Any], timeout: float) -> SandboxInfo:
        response = await self._api.open(
            "POST",
            "/v1/sandboxes",
            body=json.dumps(body).encode("utf-8"),
            content_type="application/json",
            timeout=timeout,
        )
        response.idle_timeout = timeout
        return SandboxInfo.from_json(await response.json())

    def _remove_later(self, tag: str) -> None:
        """The server may still be making it, so look more than once."""

        async def remove() -> None:
            for delay in ORPHAN_LOOKS_SECONDS:
                await asyncio.sleep(delay)
                try:
                    for info in await self.list(labels={CREATE_LABEL: tag}):
                        await self.delete(info.id, wait=False)
                        return
                except SandboxNotFound:
                    return
                except DSecError:
                    continue  # the sandbox's own time limit is the last resort

        task = asyncio.ensure_future(remove())
        self._cleanups.add(task)
        task.add_done_callback(self._cleanups.discard)


async def _lines(response: Response) -> AsyncIterator[Dict[str, Any]]:
    """JSON objects of a body of lines."""
    kept = b""
    async for data in response.iter_bytes():
        *whole, kept = (kept + data).split(b"\n")
        for line in whole:
            yield _object(line)
    if kept:
        raise BadResponse("the answer ends in the middle of a line")


def _object(line: bytes) -> Dict[str, Any]:
    try:
        parsed = json.loads(line)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        raise BadResponse("a line of the answer is not a JSON object")
    return parsed


class Layers:
    """File systems to start sandboxes from, named `name@version`."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def list(self) -> List[LayerInfo]:
        answer = await self._api.call("GET", "/v1/layers")
        return [LayerInfo.from_json(o) for o in answer["layers"]]

    async def get(self, reference: str) -> LayerInfo:
        return LayerInfo.from_json(await self._api.call("GET", _layer_path(reference)))

    async def delete(self, reference: str) -> None:
        await self._api.call("DELETE", _layer_path(reference))

    async def import_tar(self, reference: str, source: BytesSource, *, origin: str = "") -> LayerInfo:
        """Makes a layer of a tar stream (plain, gzip or zstd). `origin` is kept as
        a note of where it came from."""
        response = await self._api.open(
            "PUT",
            _layer_path(reference),
            query=(("source", origin or None),),
            body=pieces(source),
            content_type="application/x-tar",
            timeout=IMPORT_IDLE_SECONDS,
        )
        return LayerInfo.from_json(await response.json())

    async def import_dir(self, reference: str, directory: "Union[str, os.PathLike[str]]") -> LayerInfo:
        """Makes a layer of a local directory; every file becomes root's."""
        path = os.fspath(directory)
        return await self.import_tar(reference, _tar.pack(path), origin="directory " + path)


def _layer_path(reference: str) -> str:
    name, _, version = reference.partition("@")
    if not name or not version:
        raise ValueError("a layer is named like base@1, not %r" % reference)
    return "/v1/layers/%s@%s" % (quoted(name), quoted(version))
