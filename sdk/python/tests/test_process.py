"""Commands: decoding over split characters, resuming at the exact byte, standard
input, cancellation, bounds."""
import asyncio
import base64
import unittest

from scripted import (ScriptedTest, dsec, err, event, exec_json, finished_json, frame, out, sandbox)
from dsec import process as process_module

STARTED = event("started", exec=exec_json())
EXIT = event("exit", exec=finished_json(stdout_bytes=3))


class Output(ScriptedTest):
    async def run_wire(self, pieces):
        async def script(request, wire):
            await request.body()
            await wire.start_frames()
            for piece in pieces:
                await wire.chunk(piece)
                await asyncio.sleep(0)
            await wire.end_chunks()

        return sandbox(await self.serve(script))

    async def test_result(self):
        wire = STARTED + out(b"a\xff\x00b") + err(b"e") + frame(4, b"") + event(
            "exit", exec=finished_json(code=3, cpu_seconds=0.5, max_rss_bytes=7, wall_seconds=1.5, stdout_bytes=4,
                                       stderr_bytes=1, background_alive=True))
        sb = await self.run_wire([wire])
        result = await sb.run_shell("x", timeout=2.5, env={"A": "b"}, cwd="/w", user="u", kill_grace=1)
        self.assertEqual((result.exit_code, result.signal, result.stdout, result.stderr), (3, None, b"a\xff\x00b", b"e"))
        self.assertEqual(result.stdout_text, "a\ufffd\x00b")
        self.assertEqual((result.cpu_seconds, result.max_rss_bytes, result.background_alive), (0.5, 7, True))
        with self.assertRaises(dsec.CommandFailed) as caught:
            result.check()
        self.assertIs(caught.exception.result, result)
        self.assertEqual(caught.exception.fault, "program")
        await sb._api.call("GET", "/v1/version")
        self.assertEqual(self.connections, 1)  # the stream was read to its end

    async def test_timeout_keeps_partial_output(self):
        done = finished_json(code=None, signal="KILL", timed_out=True, killed_by="timeout", wall_seconds=2.0)
        sb = await self.run_wire([STARTED, out(b"partial"), event("exit", exec=done)])
        result = await sb.run_shell("x", timeout=2)
        self.assertEqual((result.stdout, result.timed_out, result.exit_code, result.signal, result.killed_by),
                         (b"partial", True, None, "KILL", "timeout"))
        self.assertFalse(result.ok)
        with self.assertRaisesRegex(dsec.CommandFailed, "timed out after 2.0 s: partial"):
            result.check()

    async def test_utf8_split_over_chunks_and_frames(self):
        text = "aé漢😀z" * 50
        raw = text.encode()
        for size in (1, 2, 3, 5, 7):
            frames = [out(raw[i:i + size]) for i in range(0, len(raw), size)]
            sb = await self.run_wire([STARTED] + frames + [EXIT])
            proc = await sb.start(shell="x")
            events = [e async for e in proc]
            self.assertEqual("".join(e.text for e in events), text, size)
            self.assertEqual(b"".join(e.data for e in events), raw)
            self.assertNotIn("\ufffd", "".join(e.text for e in events))
            self.assertEqual([e.offset for e in events], list(range(0, len(raw), size)))

    async def test_half_a_character_at_the_end(self):
        sb = await self.run_wire([STARTED, out(b"a\xe6\xbc"), err(b"\xf0\x9f"), EXIT])
        events = [e async for e in await sb.start(shell="x")]
        self.assertEqual("".join(e.text for e in events if e.stream == "stdout"), "a\ufffd")
        self.assertEqual("".join(e.text for e in events if e.stream == "stderr"), "\ufffd")

    async def test_gap(self):
        gap = event("gap", stream="stdout", **{"from": 3, "to": 1003})
        sb = await self.run_wire([STARTED, out(b"ab\xe6"), gap, out(b"yz"), EXIT])
        proc = await sb.start(shell="x")
        events = [(e.data, e.text, e.offset, e.skipped) async for e in proc]
        self.assertEqual(events, [(b"ab\xe6", "ab", 0, 0), (b"", "\ufffd", 1003, 0), (b"yz", "yz", 1003, 1000)])
        self.assertTrue(proc.result().stdout_truncated)
        self.assertEqual(proc.result().stdout, b"ab\xe6yz")

    async def test_bound(self):
        sb = await self.run_wire([STARTED] + [out(b"%04d" % i) for i in range(1000)] + [EXIT])
        result = await sb.exec(["x"], output_limit_bytes=16)
        self.assertEqual((result.stdout, result.stdout_truncated), (b"0000000109980999", True))

    async def test_platform_failure_in_the_stream(self):
        lost = {"code": "sandbox_lost", "message": "gone", "fault": "platform", "retry": False}
        sb = await self.run_wire([STARTED, out(b"x"), event("error", error=lost)])
        proc = await sb.start(shell="x")
        for _ in range(2):
            with self.assertRaises(dsec.SandboxLost):
                await proc.wait()

    async def test_start_error_is_an_exception(self):
        async def script(request, wire):
            await request.body()
            await wire.error("command_not_found", 422)

        sb = sandbox(await self.serve(script))
        with self.assertRaises(dsec.CommandNotFound):
            await sb.exec(["nope"])
        self.assertEqual(len(self.requests), 1)

    async def test_first_output_is_seen_at_once(self):
        release = asyncio.Event()

        async def script(request, wire):
            await request.body()
            await wire.start_frames()
            await wire.chunk(STARTED + out(b"now"))
            await release.wait()
            await wire.chunk(EXIT)
            await wire.end_chunks()

        proc = await sandbox(await self.serve(script)).start(shell="x")
        events = proc.events()
        self.assertEqual((await events.__anext__()).data, b"now")
        waiting = asyncio.ensure_future(proc.wait())  # beside a running iteration
        await asyncio.sleep(0.05)
        self.assertFalse(waiting.done())
        release.set()
        self.assertEqual([e async for e in events], [])
        self.assertEqual((await waiting).stdout, b"now")

    async def test_wait_after_an_iteration_was_left(self):
        sb = await self.run_wire([STARTED] + [out(b"ab")] * 10 + [EXIT])
        proc = await sb.start(shell="x")
        async for _ in proc:
            break
        self.assertEqual((await asyncio.wait_for(proc.wait(), 5)).stdout, b"ab" * 10)


class Resume(ScriptedTest):
    DATA = bytes(range(256)) * 30

    async def test_resume_at_every_cut(self):
        """The connection breaks after n bytes of the wire, for many n; every time
        the reader asks for exactly the bytes it has not handed on."""
        whole = STARTED + out(self.DATA) + err(b"E" * 9) + EXIT

        async def script(request, wire):
            await request.body()
            await wire.start_frames()
            if request.method == "POST":
                await wire.raw(b"%x\r\n" % len(whole) + whole[:self.cut])
                await asyncio.sleep(0.005)
                wire.cut()
                return
            so, eo = int(request.query["stdout_offset"]), int(request.query["stderr_offset"])
            self.assertEqual(request.query["follow"], "true")
            self.asked.append((so, eo))
            await wire.chunk(STARTED + out(self.DATA[so:]) + err(b"E" * (9 - eo)) + EXIT)
            await wire.end_chunks()

        sb = sandbox(await self.serve(script))
        for self.cut in (len(STARTED), len(STARTED) + 3, len(STARTED) + 5, len(STARTED) + 6, 2000, 5000,
                         len(whole) - len(EXIT) - 4, len(whole) - len(EXIT), len(whole) - 1):
            self.asked = []
            result = await sb.run_shell("x")
            self.assertEqual((result.stdout, result.stderr, result.exit_code), (self.DATA, b"E" * 9, 0), self.cut)
            handed = min(max(0, self.cut - len(STARTED) - 5), len(self.DATA))
            self.assertEqual(self.asked[0][0], handed)

    async def test_lost_start_is_sent_again_under_the_same_id(self):
        async def script(request, wire):
            self.ids.append((await request.json())["id"])
            if len(self.ids) == 1:
                wire.cut()
                return
            await wire.start_frames()
            await wire.chunk(STARTED + EXIT)
            await wire.end_chunks()

        self.ids = []
        result = await sandbox(await self.serve(script)).run_shell("x")
        self.assertEqual(result.exit_code, 0)
        self.assertEqual(len(self.ids), 2)
        self.assertEqual(self.ids[0], self.ids[1])
        self.assertRegex(self.ids[0], r"^ex-[a-z2-7]{26}$")

    async def test_restarting_edge_in_the_stream_is_waited_out(self):
        async def script(request, wire):
            await request.body()
            self.tries += 1
            if self.tries in (2, 3):
                await wire.error("edge_unavailable", 503, fault="platform", retry=True, retry_after="0")
                return
            await wire.start_frames()
            if self.tries == 1:
                away = {"code": "edge_unavailable", "message": "x", "fault": "platform", "retry": True}
                await wire.chunk(STARTED + out(b"one") + event("error", error=away))
            else:
                self.assertEqual(request.query["stdout_offset"], "3")
                await wire.chunk(STARTED + out(b"two") + EXIT)
            await wire.end_chunks()

        self.tries = 0
        result = await sandbox(await self.serve(script)).run_shell("x")
        self.assertEqual((result.stdout, self.tries), (b"onetwo", 4))

    async def test_silence_is_a_lost_connection(self):
        async def script(request, wire):
            await request.body()
            await wire.start_frames()
            await wire.chunk(STARTED)
            if request.method == "POST":
                await asyncio.sleep(10)
            await wire.chunk(out(b"abc") + EXIT)
            await wire.end_chunks()

        old, process_module.SILENCE_SECONDS = process_module.SILENCE_SECONDS, 0.2
        try:
            result = await asyncio.wait_for(sandbox(await self.serve(script)).run_shell("x"), 5)
        finally:
            process_module.SILENCE_SECONDS = old
        self.assertEqual(result.stdout, b"abc")

    async def test_gives_up_in_the_end(self):
        async def script(request, wire):
            await request.body()
            if request.method == "POST":
                await wire.start_frames()
                await wire.chunk(STARTED)
            wire.cut()

        old, process_module.RECONNECT_SECONDS = process_module.RECONNECT_SECONDS, 0.3
        try:
            with self.assertRaises(dsec.ConnectionLost):
                await asyncio.wait_for(sandbox(await self.serve(script)).run_shell("x"), 10)
        finally:
            process_module.RECONNECT_SECONDS = old

    async def test_cancelled_wait_loses_nothing(self):
        async def script(request, wire):
            await request.body()
            so = int(request.query.get("stdout_offset", 0))
            await wire.start_frames()
            await wire.chunk(STARTED + out(b"abc"[so:]))
            if request.method == "POST":
                await asyncio.sleep(10)
            await wire.chunk(EXIT)
            await wire.end_chunks()

        proc = await sandbox(await self.serve(script)).start(shell="x")
        with self.assertRaises(asyncio.TimeoutError):
            await asyncio.wait_for(proc.wait(), 0.2)
        self.assertEqual((await proc.wait()).stdout, b"abc")


class Stdin(ScriptedTest):
    """A script that takes standard input and, when told so, loses an answer."""

    async def endpoint(self, **options):
        self.received = bytearray()
        self.eof = asyncio.Event()
        self.lose_every = options.get("lose_every", 0)
        self.close_after = options.get("close_after", 1 << 60)
        self.forget_at, self.busy_at = options.get("forget_at"), options.get("busy_at")
        self.posts = 0

        async def script(request, wire):
            if request.path.endswith("/stdin"):
                await self.stdin(request, wire)
            elif request.method == "GET":
                await wire.json(exec_json(stdin_offset=len(self.received)))
            else:
                self.body = await request.json()
                await wire.start_frames()
                await wire.chunk(STARTED)
                if self.body.get("stdin") == "open":
                    await self.eof.wait()
                await wire.chunk(out(b"%d" % len(self.received)) + EXIT)
                await wire.end_chunks()

        return sandbox(await self.serve(script))

    async def stdin(self, request, wire):
        self.posts += 1
        if self.posts == self.forget_at:  # what had been acknowledged is gone
            del self.received[-300000:]
        if int(request.query["offset"]) > len(self.received):
            await request.body()
            await wire.error("bad_field", 400)
            return
        self.assertEqual(int(request.query["offset"]), len(self.received))
        if self.posts == self.busy_at:
            await request.body()
            await wire.error("wrong_state", 409, retry=True)
            return
        got = 0
        async for piece in request.pieces():
            self.received += piece
            got += len(piece)
            if self.lose_every and self.posts % self.lose_every == 0 and got > 100000:
                wire.cut()  # in the middle of the piece
                return
        closed = len(self.received) >= self.close_after
        if request.query["eof"] == "true" or closed:
            self.eof.set()
        offset = min(len(self.received), self.close_after)
        await wire.json({"offset": offset, "closed": closed or request.query["eof"] == "true"})

    async def test_small_input_goes_with_the_start(self):
        sb = await self.endpoint()
        await sb.run_shell("cat", stdin="héllo")
        self.assertEqual(base64.b64decode(self.body["stdin_b64"]), "héllo".encode())
        await sb.run_shell("cat", stdin=bytes(1 << 20))
        self.assertNotIn("stdin", self.body)
        self.assertEqual(self.posts, 0)
        await sb.run_shell("cat")
        self.assertNotIn("stdin_b64", self.body)

    async def test_large_input_is_streamed(self):
        data = bytes(range(256)) * 4097
        sb = await self.endpoint()
        result = await sb.run_shell("cat", stdin=data)
        self.assertEqual(bytes(self.received), data)
        self.assertEqual(result.stdout, b"%d" % len(data))

    async def test_lost_answers_do_not_repeat_or_drop_a_byte(self):
        data = b"".join(b"%08d" % i for i in range(500000))
        sb = await self.endpoint(lose_every=2)

        async def source():
            for pos in range(0, len(data), 700001):
                yield data[pos:pos + 700001]

        await sb.run_shell("cat", stdin=source())
        self.assertEqual(bytes(self.received), data)

    async def test_server_that_fell_behind_and_a_busy_one(self):
        data = b"".join(b"%08d" % i for i in range(500000))
        for options in ({"forget_at": 3}, {"busy_at": 2}, {"forget_at": 2, "busy_at": 4}):
            sb = await self.endpoint(**options)
            await sb.run_shell("cat", stdin=data)
            self.assertEqual(bytes(self.received), data)

    async def test_program_that_stops_reading(self):
        sb = await self.endpoint(close_after=1000)
        result = await sb.run_shell("head -c 1000", stdin=bytes(3 << 20))
        self.assertEqual(result.exit_code, 0)
        sb = await self.endpoint(close_after=1000)
        proc = await sb.start(shell="x", stdin=True)
        with self.assertRaises(dsec.StdinClosed):
            await proc.write(bytes(5000))

    async def test_failing_source_kills_and_raises(self):
        sb = await self.endpoint()

        async def source():
            yield bytes(10)
            raise FileNotFoundError("mine")

        with self.assertRaises(FileNotFoundError):
            await sb.run_shell("cat", stdin=source())
        self.assertTrue(any(r.path.endswith("/signal") for r in self.requests))


class Control(ScriptedTest):
    async def calls(self):
        self.bodies = []
        self.hang = asyncio.Event()

        async def script(request, wire):
            if request.path.endswith("/execs"):
                await request.body()
                await wire.start_frames()
                await wire.chunk(STARTED)
                await self.hang.wait()
                await wire.chunk(event("exit", exec=finished_json(code=None, signal="KILL", killed_by="user")))
                await wire.end_chunks()
                return
            if request.method == "GET":
                await wire.json(finished_json())
                return
            self.bodies.append((request.path.rsplit("/", 1)[1], await request.json()))
            self.hang.set()
            await wire.json({})

        return sandbox(await self.serve(script))

    async def test_signals_and_resize(self):
        sb = await self.calls()
        pty = await sb.pty(rows=5, cols=7)
        await pty.signal("SIGTERM", whole_tree=False)
        await pty.signal(2)
        await pty.resize(50, 60)
        await pty.kill()
        self.assertEqual(self.bodies, [
            ("signal", {"signal": "TERM", "whole_tree": False}), ("signal", {"signal": 2, "whole_tree": True}),
            ("resize", {"rows": 50, "cols": 60}), ("signal", {"signal": "KILL", "whole_tree": True})])
        self.assertEqual((await pty.wait()).killed_by, "user")

    async def test_cancelled_run_kills_the_command(self):
        sb = await self.calls()
        with self.assertRaises(asyncio.TimeoutError):
            await asyncio.wait_for(sb.run_shell("sleep 100"), 0.2)
        self.assertEqual(self.bodies, [("signal", {"signal": "KILL", "whole_tree": True})])

    async def test_context_manager_kills(self):
        sb = await self.calls()
        async with await sb.start(["sleep", "100"]) as proc:
            self.assertFalse(proc.finished)
        self.assertEqual(len(self.bodies), 1)

    async def test_argv_that_is_not_text(self):
        seen = []

        async def script(request, wire):
            seen.append(await request.json())
            await wire.start_frames()
            await wire.chunk(STARTED + EXIT)
            await wire.end_chunks()

        sb = sandbox(await self.serve(script))
        await sb.exec(["printf", b"\xff\xfe", "é", "\udcff"])
        self.assertEqual(seen[0]["argv"], ["printf", {"b64": "//4="}, "é", {"b64": "/w=="}])
        for bad in (lambda: sb.exec("ls -l"), lambda: sb.start(), lambda: sb.start(["a"], shell="b"),
                    lambda: sb.run_shell("x", timeout=0)):
            with self.assertRaises((TypeError, ValueError)):
                await bad()
        self.assertEqual(len(seen), 1)


if __name__ == "__main__":
    unittest.main()
