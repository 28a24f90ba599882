"""A scripted HTTP server for the SDK's unit tests, in the test's own event loop.

Each test hands it one coroutine, called for every request with the parsed request
and a `Wire` that writes raw bytes, so that a test decides where chunks split and
when a connection breaks. It implements nothing of the platform.
"""
import asyncio
import json
import pathlib
import sys
import unittest
from urllib.parse import parse_qsl, unquote, urlsplit

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import dsec  # noqa: E402
from dsec import _api, _frames, client as _client  # noqa: E402

TEST_SECONDS = 20
# The waits, not what is waited for, are shortened.
_api.BACKOFF_FIRST_SECONDS = 0.005
_client.ORPHAN_LOOKS_SECONDS = (0.05, 0.1)


class Request:
    def __init__(self, method, target, headers, reader):
        self.method, self.target, self.headers = method, target, headers
        parts = urlsplit(target)
        self.path = unquote(parts.path)
        self.query = dict(parse_qsl(parts.query, keep_blank_values=True))
        self._reader = reader
        self._done = False

    async def pieces(self):
        """The body, read from the socket only as fast as the test asks."""
        self._done = True
        if self.headers.get("transfer-encoding") == "chunked":
            while True:
                line = await self._reader.readline()
                if not line:
                    raise asyncio.IncompleteReadError(b"", None)
                size = int(line.strip(), 16)
                data = await self._reader.readexactly(size)
                await self._reader.readexactly(2)
                if not size:
                    return
                yield data
        else:
            left = int(self.headers.get("content-length", 0))
            while left:
                data = await self._reader.read(min(left, 65536))
                if not data:
                    raise asyncio.IncompleteReadError(b"", left)
                left -= len(data)
                yield data

    async def body(self):
        return b"".join([p async for p in self.pieces()])

    async def json(self):
        return json.loads(await self.body())


class Wire:
    def __init__(self, writer):
        self.writer = writer
        self.keep = True

    async def raw(self, data):
        self.writer.write(data)
        await self.writer.drain()

    async def json(self, value, status=200, **headers):
        body = json.dumps(value).encode()
        await self.head(status, content_length=len(body), content_type="application/json", **headers)
        await self.raw(body)

    async def error(self, code, status, fault="caller", retry=False, **headers):
        inner = {"code": code, "message": "a test said so", "fault": fault, "retry": retry, "request_id": "rq-t"}
        await self.json({"error": inner}, status, **headers)

    async def head(self, status=200, **headers):
        lines = ["HTTP/1.1 %d X" % status]
        lines += ["%s: %s" % (k.replace("_", "-"), v) for k, v in headers.items()]
        await self.raw(("\r\n".join(lines) + "\r\n\r\n").encode())

    async def start_frames(self, status=201):
        await self.head(status, transfer_encoding="chunked", content_type="application/vnd.dsec.frames")

    async def chunk(self, data):
        await self.raw(b"%x\r\n%b\r\n" % (len(data), data))

    async def end_chunks(self):
        await self.raw(b"0\r\n\r\n")

    def cut(self):
        """Breaks the connection without a goodbye."""
        self.writer.transport.abort()
        self.keep = False


class ScriptedTest(unittest.IsolatedAsyncioTestCase):
    """`await self.serve(script)` gives an open client whose every request (but the
    version asked by open) goes to `script(request, wire)`."""

    async def serve(self, script, ssl=None, client_ssl=None, **options):
        self.connections = 0
        self.requests = []
        self.tasks = set()

        async def connected(reader, writer):
            self.connections += 1
            self.tasks.add(asyncio.current_task())
            try:
                await self._serve_one(reader, writer, script)
            except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                pass  # the client went away, as some tests want
            finally:
                writer.close()

        server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=ssl)
        self.addAsyncCleanup(self._close_server, server)
        self.port = server.sockets[0].getsockname()[1]
        scheme = "https" if ssl else "http"
        client = dsec.DSecClient(
            "%s://localhost:%d" % (scheme, self.port) if ssl else "http://127.0.0.1:%d" % self.port,
            "k", ssl_context=client_ssl, **options)
        await client.open()
        self.addAsyncCleanup(client.close)
        return client

    async def _close_server(self, server):
        server.close()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _serve_one(self, reader, writer, script):
        wire = Wire(writer)
        while wire.keep:
            line = await reader.readline()
            if not line:
                return
            method, target, _ = line.decode().split(" ")
            headers = {}
            while True:
                line = (await reader.readline()).decode().strip()
                if not line:
                    break
                name, _, value = line.partition(":")
                headers[name.lower()] = value.strip()
            request = Request(method, target, headers, reader)
            if request.path == "/v1/version":
                await wire.json({"version": "test"})
                continue
            self.requests.append(request)
            await script(request, wire)

    async def asyncSetUp(self):
        """No test may hang: the one that does fails with a stack."""
        task = asyncio.current_task()
        handle = asyncio.get_running_loop().call_later(TEST_SECONDS, task.cancel)
        self.addCleanup(handle.cancel)


def exec_json(exec_id="ex-1", state="running", **fields):
    return {"id": exec_id, "sandbox_id": "sb-e0-x", "state": state, "argv": ["sh"], "exit_code": None,
            "signal": None, **fields}


def finished_json(exec_id="ex-1", code=0, **fields):
    return exec_json(exec_id, "finished", **{"exit_code": code, **fields})


def frame(kind, payload):
    return bytes([kind]) + len(payload).to_bytes(4, "big") + payload


def out(data):
    return frame(_frames.STDOUT, data)


def err(data):
    return frame(_frames.STDERR, data)


def event(name, **fields):
    return frame(_frames.EVENT, json.dumps({"event": name, **fields}).encode())


def sandbox_json(sandbox_id="sb-e0-x", state="running", **fields):
    return {"id": sandbox_id, "state": state, "environment": "base@1", "labels": {}, **fields}


def sandbox(client):
    return dsec.Sandbox(client._api, "sb-e0-x")
