"""The HTTP client: framing, keep-alive, what is repeated, uploads, timeouts, TLS."""
import asyncio
import os
import shutil
import ssl
import subprocess
import tempfile
import unittest
from unittest import skipUnless

from scripted import ScriptedTest, dsec

BLOB = bytes(range(256)) * 40


class Bodies(ScriptedTest):
    async def get(self, script, **options):
        client = await self.serve(script, **options)
        response = await client._api.open("GET", "/x", safe=True)
        return await response.read()

    async def test_chunked_in_odd_pieces(self):
        wire_bytes = b""
        for size in (1, 2, 500, 3, 4096, len(BLOB)):
            part = BLOB[:size]
            wire_bytes += b"%X;ext=1\r\n%b\r\n" % (len(part), part)
        wire_bytes += b"0\r\nX-Trailer: 1\r\n\r\n"
        want = b"".join(BLOB[:size] for size in (1, 2, 500, 3, 4096, len(BLOB)))

        async def script(request, wire):
            head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n"
            step = int(request.query.get("step", 7))
            whole = head + wire_bytes
            for pos in range(0, len(whole), step):
                await wire.raw(whole[pos:pos + step])
                if pos < 300:
                    await asyncio.sleep(0)

        client = await self.serve(script)
        for step in (1, 2, 3, 7, 1000, 1 << 20):
            response = await client._api.open("GET", "/x", query=(("step", step),), safe=True)
            self.assertEqual(await response.read(), want)
        self.assertEqual(self.connections, 1)  # trailers were read, the connection lived on

    async def test_body_until_close(self):
        async def script(request, wire):
            await wire.raw(b"HTTP/1.0 200 OK\r\n\r\n" + BLOB)
            wire.writer.close()
            wire.keep = False

        self.assertEqual(await self.get(script), BLOB)

    async def test_interim_answer_is_skipped(self):
        async def script(request, wire):
            await wire.raw(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

        self.assertEqual(await self.get(script), b"ok")

    async def test_first_bytes_do_not_wait_for_the_chunk_end(self):
        release = asyncio.Event()

        async def script(request, wire):
            await wire.raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello")
            await release.wait()
            await wire.raw(b"\r\n0\r\n\r\n")

        client = await self.serve(script)
        response = await client._api.open("GET", "/x", safe=True)
        self.assertEqual(await response.read_some(), b"hello")
        release.set()
        self.assertEqual(await response.read_some(), b"")

    async def test_cut_bodies_are_errors(self):
        for raw in (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf",
                    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
                    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"):
            async def script(request, wire, raw=raw):
                await wire.raw(raw)
                wire.writer.close()
                wire.keep = False

            with self.assertRaises(dsec.ConnectionLost):
                await self.get(script)

    async def test_nonsense_is_a_bad_response(self):
        for raw in (b"SMTP ready\r\n\r\n", b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n",
                    b"HTTP/1.1 200 OK\r\nContent-Length: -4\r\n\r\n", b"x" * 400000,
                    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n",
                    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\n"):
            async def script(request, wire, raw=raw):
                await wire.raw(raw)
                await asyncio.sleep(0.2)
                wire.cut()

            with self.assertRaises(dsec.BadResponse, msg=raw[:40]):
                await self.get(script)


class KeepAlive(ScriptedTest):
    async def test_connections_are_reused_and_parallel_calls_get_their_own(self):
        async def script(request, wire):
            await asyncio.sleep(0.05)
            await wire.json({"n": request.query["n"]})

        client = await self.serve(script)
        for n in range(5):
            self.assertEqual(await client._api.call("GET", "/x", query=(("n", n),)), {"n": str(n)})
        self.assertEqual(self.connections, 1)
        answers = await asyncio.gather(*[client._api.call("GET", "/x", query=(("n", n),)) for n in range(64)])
        self.assertEqual([a["n"] for a in answers], [str(n) for n in range(64)])
        self.assertEqual(self.connections, 64)

    async def test_closed_idle_connection_is_replaced_for_get_only(self):
        async def script(request, wire):
            if self.poisoned:
                self.poisoned = False
                wire.cut()
                return
            await request.body()
            await wire.json({"ok": True})

        self.poisoned = False
        client = await self.serve(script)
        self.poisoned = True
        self.assertEqual(await client._api.call("GET", "/x"), {"ok": True})
        self.poisoned = True
        with self.assertRaises(dsec.ConnectionLost):
            await client._api.call("POST", "/x", data={})
        self.assertEqual(sum(r.method == "POST" for r in self.requests), 1)

    async def test_unread_answer_is_not_reused(self):
        async def script(request, wire):
            await wire.head(200, content_length=1000)
            await wire.raw(b"x" * 10)

        client = await self.serve(script)
        async with await client._api.open("GET", "/x", safe=True) as response:
            self.assertEqual(len(await response.read_some()), 10)
        await client.version()
        self.assertEqual(self.connections, 2)


class Uploads(ScriptedTest):
    async def test_chunked_upload_arrives_whole(self):
        async def script(request, wire):
            body = await request.body()
            await wire.json({"n": len(body), "same": body == BLOB * 30, "te": request.headers["transfer-encoding"]})

        async def source():
            for i in range(30):
                yield BLOB
                yield b""  # must not end the body

        client = await self.serve(script)
        response = await client._api.open("PUT", "/x", body=source())
        self.assertEqual(await response.json(), {"n": len(BLOB) * 30, "same": True, "te": "chunked"})

    async def test_back_pressure(self):
        """A server that does not read stops the source after the socket buffers."""
        release, given = asyncio.Event(), 0

        async def script(request, wire):
            await release.wait()
            total = sum([len(p) async for p in request.pieces()])
            await wire.json({"n": total})

        async def source():
            nonlocal given
            for _ in range(640):
                given += 1
                yield bytes(100000)

        client = await self.serve(script)
        task = asyncio.ensure_future(client._api.open("PUT", "/x", body=source()))
        await asyncio.sleep(0.3)
        self.assertLess(given, 200)  # 20 of 64 MB: socket buffers, not our memory
        release.set()
        self.assertEqual(await (await task).json(), {"n": 64000000})

    async def test_early_refusal_stops_the_upload(self):
        given = 0

        async def script(request, wire):
            await wire.error("body_too_large", 413, connection="close")
            await asyncio.sleep(0.1)
            wire.cut()

        async def source():
            nonlocal given
            for _ in range(100000):
                given += 1
                yield bytes(100000)

        client = await self.serve(script)
        with self.assertRaises(dsec.BodyTooLarge):
            await client._api.open("PUT", "/x", body=source())
        self.assertLess(given, 1000)
        await client.version()  # on another connection

    async def test_failing_source_raises_its_own_error(self):
        async def script(request, wire):
            await request.body()

        async def source():
            yield b"x"
            raise FileNotFoundError("gone")

        client = await self.serve(script)
        with self.assertRaises(FileNotFoundError):
            await asyncio.wait_for(client._api.open("PUT", "/x", body=source()), 5)


class Failures(ScriptedTest):
    async def test_timeout(self):
        async def script(request, wire):
            await asyncio.sleep(5)

        client = await self.serve(script)
        with self.assertRaises(dsec.RequestTimeout):
            await client._api.call("GET", "/x", timeout=0.1)
        self.assertEqual(len(self.requests), 1)

    async def test_silent_body_times_out_but_a_slow_one_does_not(self):
        async def script(request, wire):
            await wire.head(200, content_length=10)
            for _ in range(8):
                await wire.raw(b"x")
                await asyncio.sleep(0.1)
            await asyncio.sleep(5)

        client = await self.serve(script)
        response = await client._api.open("GET", "/x", safe=True)
        response.idle_timeout = 0.3
        got = b""
        with self.assertRaises(dsec.RequestTimeout):
            while True:
                got += await response.read_some()
        self.assertEqual(got, b"x" * 8)

    async def test_nobody_listens(self):
        client = dsec.DSecClient("http://127.0.0.1:1", "k")
        with self.assertRaises(dsec.ConnectionFailed) as caught:
            await client.open()
        self.assertEqual((caught.exception.fault, caught.exception.retry), ("platform", True))

    async def test_typed_errors_and_retry_after(self):
        async def script(request, wire):
            await wire.error("conflict", 409, retry_after="7", x_request_id="rq-h")

        client = await self.serve(script)
        with self.assertRaises(dsec.Conflict) as caught:
            await client._api.call("GET", "/x")
        e = caught.exception
        self.assertEqual((e.code, e.fault, e.status, e.retry_after, e.request_id), ("conflict", "caller", 409, 7.0, "rq-t"))
        self.assertIsInstance(e, dsec.CallerError)

    async def test_error_without_a_body_and_unknown_code(self):
        async def script(request, wire):
            if request.path == "/bare":
                await wire.head(502, content_length=3)
                await wire.raw(b"bad")
            else:
                await wire.error("from_the_future", 499, fault="program")

        client = await self.serve(script)
        with self.assertRaises(dsec.BadResponse) as caught:
            await client._api.call("GET", "/bare")
        self.assertEqual(caught.exception.status, 502)
        with self.assertRaises(dsec.ProgramError) as caught2:
            await client._api.call("GET", "/x")
        self.assertEqual(caught2.exception.code, "from_the_future")

    async def test_overload_is_asked_again_after_the_wait(self):
        async def script(request, wire):
            await request.body()
            if len(self.requests) < 3:
                await wire.error("overloaded", 429, fault="platform", retry=True, retry_after="0")
            else:
                await wire.json({"ok": True})

        client = await self.serve(script)
        self.assertEqual(await client._api.call("POST", "/x", data={}), {"ok": True})
        self.assertEqual(len(self.requests), 3)

    async def test_header_injection_is_refused(self):
        with self.assertRaises(ValueError):
            dsec.DSecClient("http://127.0.0.1:1", "k\r\nX-Evil: 1")


@skipUnless(shutil.which("openssl"), "openssl is not installed")
class Tls(ScriptedTest):
    async def test_https_checks_the_certificate(self):
        directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, directory)
        key, cert = os.path.join(directory, "k.pem"), os.path.join(directory, "c.pem")
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert, "-days", "2",
             "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True)
        server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server_side.load_cert_chain(cert, key)

        async def script(request, wire):
            await wire.json({"n": len(await request.body())})

        trusting = ssl.create_default_context(cafile=cert)
        client = await self.serve(script, ssl=server_side, client_ssl=trusting)
        response = await client._api.open("PUT", "/x", body=BLOB * 30)
        self.assertEqual(await response.json(), {"n": len(BLOB) * 30})
        # The server's side of a refused handshake is no news.
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        doubting = dsec.DSecClient("https://localhost:%d" % self.port, "k")
        with self.assertRaises(dsec.ConnectionFailed):
            await doubting.open()


if __name__ == "__main__":
    unittest.main()
