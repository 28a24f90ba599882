"""Commands through the Python SDK on a real platform: bytes, standard input, live
output, signals, terminals, resuming."""
import asyncio
import hashlib
import time
import unittest

from sdk import SdkTest, dsec, in_sandbox


class Results(SdkTest):
    @in_sandbox()
    async def test_the_published_session(self, client, sandbox):
        result = await sandbox.run_shell("echo hello world")
        self.assertEqual((result.exit_code, result.stdout_text, result.stderr), (0, "hello world\n", b""))
        self.assertTrue(result.check() is result)

    @in_sandbox()
    async def test_exit_codes_and_streams(self, client, sandbox):
        result = await sandbox.run_shell("echo out; echo err >&2; exit 37")
        self.assertEqual((result.exit_code, result.stdout, result.stderr), (37, b"out\n", b"err\n"))
        with self.assertRaises(dsec.CommandFailed):
            result.check()
        killed = await sandbox.run_shell("kill -9 $$")
        self.assertEqual((killed.exit_code, killed.signal, killed.timed_out), (None, "KILL", False))

    @in_sandbox()
    async def test_binary_arguments_environment_and_output(self, client, sandbox):
        every = bytes(range(1, 256))
        result = await sandbox.exec(["printf", "%s", every])
        self.assertEqual(result.stdout, every)
        result = await sandbox.run_shell('printf "\\000\\377\\r\\n$A"; pwd', env={"A": "ä'\""}, cwd="/usr/bin")
        self.assertEqual(result.stdout, b"\x00\xff\r\n" + "ä'\"/usr/bin\n".encode())

    @in_sandbox()
    async def test_users(self, client, sandbox):
        result = await sandbox.exec(["id", "-u"], user="user")
        self.assertEqual(result.stdout_text.strip(), "1000")

    @in_sandbox()
    async def test_timeout_keeps_output_and_kills_the_tree(self, client, sandbox):
        began = time.monotonic()
        result = await sandbox.run_shell("echo partial; sleep 77 & sleep 77", timeout=1)
        self.assertLess(time.monotonic() - began, 5)
        self.assertEqual((result.timed_out, result.killed_by, result.exit_code), (True, "timeout", None))
        self.assertEqual(result.stdout, b"partial\n")
        left = await sandbox.run_shell("ps | grep -c '[s]leep 77'")
        self.assertEqual(left.stdout_text.strip(), "0")

    @in_sandbox()
    async def test_background_process_does_not_hold_the_result(self, client, sandbox):
        result = await asyncio.wait_for(sandbox.run_shell("sleep 60 & echo done"), 10)
        self.assertEqual((result.exit_code, result.stdout, result.background_alive), (0, b"done\n", True))

    @in_sandbox(memory_limit_mb=64)
    async def test_out_of_memory_is_said(self, client, sandbox):
        result = await sandbox.run_shell("head -c 300000000 /dev/zero | tail -c 299999999 | wc -c")
        self.assertTrue(result.oom_killed or result.signal == "KILL" or result.exit_code != 0)
        self.assertEqual((await sandbox.run_shell("echo alive")).stdout, b"alive\n")

    @in_sandbox()
    async def test_64_mib_of_output_arrive_whole(self, client, sandbox):
        size = 64 << 20
        process = await sandbox.start(shell="yes 0123456789abcdef | head -c %d" % size)
        digest, total = hashlib.sha256(), 0
        async for event in process:
            self.assertEqual(event.offset, total)
            digest.update(event.data)
            total += len(event.data)
        want = hashlib.sha256()
        block = b"0123456789abcdef\n" * 4096
        left = size
        while left:
            want.update(block[:left])
            left -= min(left, len(block))
        self.assertEqual((total, digest.hexdigest()), (size, want.hexdigest()))
        result = await process.wait()
        self.assertEqual((result.exit_code, result.stdout_bytes, result.stdout_truncated), (0, size, True))

    @in_sandbox()
    async def test_first_line_comes_at_once(self, client, sandbox):
        process = await sandbox.start(shell="echo first; sleep 30")
        began = time.monotonic()
        async for event in process:
            self.assertEqual(event.text, "first\n")
            break
        self.assertLess(time.monotonic() - began, 2)
        await process.kill()
        self.assertEqual((await process.wait()).killed_by, "user")


class Input(SdkTest):
    @in_sandbox()
    async def test_without_input_it_is_closed(self, client, sandbox):
        self.assertEqual((await asyncio.wait_for(sandbox.exec(["cat"]), 10)).stdout, b"")

    @in_sandbox()
    async def test_small_input(self, client, sandbox):
        every = bytes(range(256))
        self.assertEqual((await sandbox.exec(["cat"], stdin=every)).stdout, every)

    @in_sandbox()
    async def test_40_mib(self, client, sandbox):
        data = b"".join(hashlib.sha256(b"%d" % i).digest() for i in range(40 << 15))
        self.assertEqual(len(data), 40 << 20)
        result = await sandbox.exec(["sha256sum"], stdin=data)
        self.assertEqual(result.stdout_text.split()[0], hashlib.sha256(data).hexdigest())

    @in_sandbox()
    async def test_echoing_large_input_does_not_deadlock(self, client, sandbox):
        data = bytes(8 << 20)
        result = await sandbox.exec(["cat"], stdin=data)
        self.assertEqual(result.stdout_bytes, len(data))

    @in_sandbox()
    async def test_program_that_stops_reading(self, client, sandbox):
        result = await asyncio.wait_for(sandbox.exec(["head", "-c", "10"], stdin=bytes(8 << 20)), 30)
        self.assertEqual((result.exit_code, result.stdout), (0, bytes(10)))

    @in_sandbox()
    async def test_conversation(self, client, sandbox):
        process = await sandbox.start(shell='while read a; do echo "got $a"; done; echo end', stdin=True)
        events = process.events()
        for word in ("one", "zwei ü"):
            await process.write(word + "\n")
            self.assertEqual((await events.__anext__()).text, "got %s\n" % word)
        await process.close_stdin()
        self.assertEqual([e.text async for e in events], ["end\n"])
        self.assertEqual((await process.wait()).exit_code, 0)
        with self.assertRaises(dsec.StdinClosed):
            await process.write("too late")


class Control(SdkTest):
    @in_sandbox()
    async def test_pty(self, client, sandbox):
        async with await sandbox.pty(["sh"], rows=31, cols=97) as pty:
            await pty.write("stty size; exit 3\n")
            result = await asyncio.wait_for(pty.wait(), 15)
        self.assertIn("31 97", result.stdout_text)
        self.assertEqual(result.exit_code, 3)

    @in_sandbox()
    async def test_pty_resize(self, client, sandbox):
        async with await sandbox.pty(shell="read a; stty size", rows=10, cols=20) as pty:
            await pty.resize(50, 60)
            await pty.write("\n")
            self.assertIn("50 60", (await asyncio.wait_for(pty.wait(), 15)).stdout_text)

    @in_sandbox()
    async def test_signal(self, client, sandbox):
        process = await sandbox.start(shell="trap 'echo caught; exit 9' USR1; echo ready; while :; do sleep 0.05; done")
        events = process.events()
        self.assertEqual((await events.__anext__()).text, "ready\n")
        await process.signal("SIGUSR1", whole_tree=False)
        self.assertEqual([e.text async for e in events], ["caught\n"])
        self.assertEqual((await process.wait()).exit_code, 9)

    @in_sandbox()
    async def test_attach_and_list(self, client, sandbox):
        process = await sandbox.start(shell="echo one; sleep 0.5; echo two; exit 4", exec_id="mine")
        await process.aclose()
        other = await sandbox.attach("mine")
        result = await other.wait()
        self.assertEqual((result.exit_code, result.stdout), (4, b"one\ntwo\n"))
        again = await sandbox.attach("mine", stdout_offset=4)
        self.assertEqual((await again.wait()).stdout, b"two\n")
        self.assertIn("mine", [e.id for e in await sandbox.execs()])
        self.assertTrue(await other.wait_finished(1))

    @in_sandbox()
    async def test_same_id_is_the_same_command(self, client, sandbox):
        one = await sandbox.run_shell("echo $$", exec_id="once")
        two = await sandbox.run_shell("echo $$", exec_id="once")
        self.assertEqual(one.stdout, two.stdout)
        with self.assertRaises(dsec.Conflict):
            await sandbox.run_shell("echo other", exec_id="once")

    @in_sandbox()
    async def test_cancelled_call_kills_the_command(self, client, sandbox):
        with self.assertRaises(asyncio.TimeoutError):
            await asyncio.wait_for(sandbox.run_shell("exec sleep 987"), 0.5)
        for _ in range(50):
            if (await sandbox.run_shell("ps | grep -c '[s]leep 987'")).stdout_text.strip() == "0":
                return
            await asyncio.sleep(0.1)
        self.fail("the command outlived its cancelled call")


class Restart(SdkTest):
    @in_sandbox()
    async def test_apiserver_killed_while_output_streams(self, client, sandbox):
        process = await sandbox.start(shell="for i in 1 2 3 4 5 6 7 8 9; do echo $i; sleep 0.3; done")
        seen = []
        async for event in process:
            if not seen:
                self.platform.kill9("apiserver")
            seen.append(event.text)
        self.assertEqual("".join(seen), "".join("%d\n" % i for i in range(1, 10)))
        self.assertEqual((await process.wait()).exit_code, 0)

    @in_sandbox()
    async def test_edge_killed_while_output_streams(self, client, sandbox):
        process = await sandbox.start(shell="for i in 1 2 3 4 5 6 7 8 9; do echo $i; sleep 0.3; done")
        seen = []
        async for event in process:
            if not seen:
                self.platform.kill9("edge")
            seen.append(event.text)
        self.assertEqual("".join(seen), "".join("%d\n" % i for i in range(1, 10)))
        self.assertEqual((await sandbox.run_shell("echo after")).stdout, b"after\n")

    @in_sandbox()
    async def test_edge_killed_while_input_streams(self, client, sandbox):
        data = b"".join(hashlib.sha256(b"%d" % i).digest() for i in range(8 << 15))

        async def source():
            for pos in range(0, len(data), 400000):
                if pos == 4000000:
                    self.platform.kill9("edge")
                yield data[pos:pos + 400000]

        result = await sandbox.exec(["sha256sum"], stdin=source())
        self.assertEqual(result.stdout_text.split()[0], hashlib.sha256(data).hexdigest())


if __name__ == "__main__":
    unittest.main()
