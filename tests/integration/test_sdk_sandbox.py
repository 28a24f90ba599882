"""Sandboxes through the Python SDK on a real platform: create, limits, time, lists,
typed errors, the synchronous facade, and 64 at once."""
import asyncio
import time
import unittest

from harness import busybox_tar
from sdk import SdkTest, args, dsec, in_sandbox, with_client

AT_ONCE = 64


class Lifecycle(SdkTest):
    @with_client
    async def test_arguments_are_kept_and_echoed(self, client):
        made = await client.run_container(args(
            memory_limit_mb=256, cpu_cores_limit=0.5, ttl_running_stop=300, network_rules={"npm": False},
            init_user="user", ttl_seconds=600, disk_limit_mb=200, pids_limit=99, env={"GREETING": "hi there"},
            labels={"job": "j1"}, cwd="/tmp", hostname="box"))
        async with made as sandbox:
            info = await sandbox.info()
            self.assertEqual(
                (info.state, info.memory_mb, info.cpu, info.disk_mb, info.pids, info.idle_ttl_seconds, info.labels,
                 info.user, info.hostname, info.cwd, info.environment),
                ("running", 256, 0.5, 200, 99, 300, {"job": "j1"}, "user", "box", "/tmp", "busybox@1"))
            result = await sandbox.run_shell('echo "$GREETING $(pwd) $(id -un) $(hostname)"')
            self.assertEqual(result.stdout_text, "hi there /tmp user box\n")
        with self.assertRaises((dsec.SandboxNotFound, dsec.SandboxStopped)):
            await sandbox.run_shell("true")

    @in_sandbox(ttl_seconds=600)
    async def test_set_ttl(self, client, sandbox):
        info = await sandbox.set_ttl(100, idle_ttl_seconds=50)
        self.assertAlmostEqual(info.end_at, time.time() + 100, delta=5)
        self.assertEqual(info.idle_ttl_seconds, 50)
        info = await sandbox.set_ttl(200)
        self.assertEqual(info.idle_ttl_seconds, 50)

    @with_client
    async def test_ttl_ends_it(self, client):
        sandbox = await client.run_container(args(ttl_seconds=1))
        for _ in range(100):
            await asyncio.sleep(0.1)
            found = await client.list(include_stopped=True)
            mine = [i for i in found if i.id == sandbox.id]
            if not mine or mine[0].state == "stopped":
                break
        self.assertTrue(not mine or mine[0].reason == "ttl", mine)

    @with_client
    async def test_list_get_delete(self, client):
        one = await client.run_container(args(labels={"a": "1", "b": "x"}))
        two = await client.run_container(args(labels={"a": "2"}))
        try:
            self.assertEqual([i.id for i in await client.list(labels={"a": "1"})], [one.id])
            self.assertEqual(await client.list(labels={"a": "1", "b": "y"}), [])
            found = {i.id for i in await client.list(state="running")}
            self.assertLessEqual({one.id, two.id}, found)
            again = await client.get(one.id)
            self.assertEqual((await again.run_shell("echo same")).stdout, b"same\n")
        finally:
            await client.delete(one.id)
            await two.stop()
        await one.stop()  # twice is fine
        self.assertEqual(await client.list(labels={"a": "1"}), [])

    @with_client
    async def test_cancelled_creates_leave_no_sandbox(self, client):
        hasty = self.sdk_client()
        made = []
        for step in range(24):
            task = asyncio.ensure_future(hasty.run_container(args(labels={"hasty": "yes"})))
            await asyncio.sleep(step * 0.001)
            task.cancel()
            try:
                made.append(await task)
            except asyncio.CancelledError:
                pass
        await hasty.close()  # waits for what looks after the cut calls
        for sandbox in made:
            await client.delete(sandbox.id)
        self.assertLess(len(made), 24)
        for _ in range(100):
            left = await client.list(labels={"hasty": "yes"})
            if not left:
                return
            await asyncio.sleep(0.1)
        self.fail("left over: %r" % left)

    @with_client
    async def test_layers(self, client):
        layer = await client.layers.import_tar("other@7", busybox_tar(), origin="a test")
        self.assertEqual((layer.reference, layer.source), ("other@7", "a test"))
        self.assertTrue(layer.digest.startswith("sha256:"))
        self.assertIn("other@7", [entry.reference for entry in await client.layers.list()])
        async with await client.run_container(args(container_image=None, environment="other@7")) as sandbox:
            self.assertEqual((await sandbox.exec(["true"])).exit_code, 0)
            with self.assertRaises(dsec.LayerInUse):
                await client.layers.delete("other@7")
        await client.layers.delete("other@7")
        with self.assertRaises(dsec.LayerNotFound):
            await client.layers.get("other@7")

    @with_client
    async def test_server(self, client):
        self.assertIn("version", await client.version())
        self.assertTrue(await client.limits())
        self.assertTrue(await client.edges())


class Errors(SdkTest):
    @with_client
    async def test_create(self, client):
        for error, fields in (
            (dsec.EnvironmentNotFound, {"container_image": "nope:1"}),
            (dsec.Unsupported, {"network_rules": {"npm": True}}),
            (dsec.BadField, {"memory_limit_mb": -1}),
            (dsec.BadField, {"cpu_cores_limit": 0}),
            ((dsec.NameTooLong, dsec.BadField), {"hostname": "h" * 300}),
        ):
            with self.assertRaises(error) as caught:
                await client.run_container(args(**fields))
            self.assertIsInstance(caught.exception, dsec.CallerError)
            self.assertGreater(len(caught.exception.message), 10)
            self.assertTrue(caught.exception.request_id)

    @in_sandbox()
    async def test_exec(self, client, sandbox):
        await sandbox.run_shell("echo junk > /tmp/junk; chmod +x /tmp/junk; echo '#!/bin/sh' > /tmp/plain")
        for error, call in (
            (dsec.CommandNotFound, sandbox.exec(["no-such-program"])),
            (dsec.BadArgv, sandbox.exec([])),
            (dsec.BadUser, sandbox.exec(["true"], user="ghost")),
            (dsec.BadCwd, sandbox.exec(["true"], cwd="/no/such/place")),
            (dsec.PermissionDenied, sandbox.exec(["/tmp/plain"])),
            (dsec.ExecFormat, sandbox.exec(["/tmp/junk"])),
            (dsec.ExecNotFound, sandbox.attach("never-started")),
        ):
            with self.assertRaises(error):
                await call

    def test_key_and_sandbox(self):
        async def body():
            with self.assertRaises(dsec.Unauthenticated):
                await dsec.DSecClient(f"http://127.0.0.1:{self.platform.port}", "wrong").open()
            async with self.sdk_client() as client:
                with self.assertRaises(dsec.SandboxNotFound):
                    await client.get("sb-e0-aaaaaaaaaaaaaaaaaaaaaaaaaa")

        asyncio.run(body())


class Many(SdkTest):
    @with_client
    async def test_64_at_once_by_one_client(self, client):
        alive = asyncio.Event()
        ready = 0

        async def one(number):
            nonlocal ready
            async with await client.run_container(args(memory_limit_mb=128, labels={"many": "yes"})) as sandbox:
                ready += 1
                if ready == AT_ONCE:
                    alive.set()
                await asyncio.wait_for(alive.wait(), 100)
                await sandbox.files.write("/n", str(number))
                got = []
                for _ in range(5):
                    result = await sandbox.run_shell("cat /n; cat", stdin=b"+%d" % number)
                    got.append(result.check().stdout_text)
                self.assertEqual(got, ["%d+%d" % (number, number)] * 5)
            return sandbox.id

        ids = await asyncio.gather(*[one(n) for n in range(AT_ONCE)])
        self.assertEqual(len(set(ids)), AT_ONCE)
        self.assertEqual(await client.list(labels={"many": "yes"}), [])

    @in_sandbox()
    async def test_64_commands_in_one_sandbox(self, client, sandbox):
        results = await asyncio.gather(*[sandbox.run_shell("sleep 0.2; echo %d" % n) for n in range(64)])
        self.assertEqual([r.stdout_text for r in results], ["%d\n" % n for n in range(64)])


class Synchronous(SdkTest):
    def test_session(self):
        from dsec.sync import DSecSyncClient
        with DSecSyncClient(f"http://127.0.0.1:{self.platform.port}", self.platform.client.key) as client:
            with client.run_container(args()) as sandbox:
                self.assertEqual(sandbox.run_shell("echo hi").stdout, b"hi\n")
                sandbox.files.write("/tmp/x", b"abc")
                self.assertEqual(b"".join(sandbox.files.read_stream("/tmp/x")), b"abc")
                with sandbox.start(shell="cat", stdin=True) as process:
                    process.write("typed")
                    process.close_stdin()
                    self.assertEqual("".join(e.text for e in process), "typed")
                    self.assertEqual(process.wait().exit_code, 0)
            self.assertEqual([i for i in client.list() if i.id == sandbox.id], [])


if __name__ == "__main__":
    unittest.main()
