"""Create and its failures, listing, configuration, the error table, the mirror of
the synchronous facade, and the oldest Python we promise."""
import ast
import asyncio
import importlib.util
import inspect
import os
import pathlib
import re
import sysconfig
import tempfile
import unittest
from unittest import mock

from scripted import ScriptedTest, dsec, event, exec_json, finished_json, out, sandbox_json
from dsec import _config, client as client_module, errors, process, sandbox, sync, types, version

ROOT = pathlib.Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "sdk" / "python"


class Create(ScriptedTest):
    async def test_published_names_reach_the_wire(self):
        async def script(request, wire):
            self.body = await request.json()
            await wire.json(sandbox_json(labels=self.body["labels"]), 201)

        client = await self.serve(script)
        args = dsec.DSecContainerRunArgs(
            container_image="base:official", memory_limit_mb=4096, cpu_cores_limit=4, ttl_running_stop=300,
            network_rules={"npm": False}, init_user="root", ttl_seconds=60, disk_limit_mb=100, pids_limit=10,
            env={"A": "1"}, labels={"job": "x"}, cwd="/w", hostname="h", no_new_privileges=True)
        made = await client.run_container(args)
        labels = self.body.pop("labels")
        self.assertEqual(self.body, {
            "environment": "base:official", "memory_mb": 4096, "cpu": 4, "idle_ttl_seconds": 300,
            "network_rules": {"npm": False}, "user": "root", "ttl_seconds": 60, "disk_mb": 100, "pids": 10,
            "env": {"A": "1"}, "cwd": "/w", "hostname": "h", "no_new_privileges": True})
        self.assertEqual(labels["job"], "x")
        self.assertEqual(made.last_info.labels, {"job": "x"})  # our own label stays ours
        self.assertEqual(self.requests[0].headers["authorization"], "Bearer k")

    def test_arguments(self):
        self.assertEqual(dsec.DSecContainerRunArgs(environment="base@1").to_body(), {"environment": "base@1"})
        with self.assertRaises(ValueError):
            dsec.DSecContainerRunArgs().to_body()
        with self.assertRaises(ValueError):
            dsec.DSecContainerRunArgs("a:1", environment="b@1").to_body()

    async def test_no_room_is_waited_out_within_the_timeout(self):
        async def script(request, wire):
            await request.body()
            if len(self.requests) <= self.refusals:
                await wire.error("capacity_exhausted", 503, fault="platform", retry=True, retry_after="0")
            else:
                await wire.json(sandbox_json(), 201)

        self.refusals = 3
        client = await self.serve(script)
        self.assertEqual((await client.run_container(dsec.DSecContainerRunArgs("b"))).id, "sb-e0-x")
        self.refusals = 10000
        with self.assertRaises(dsec.CapacityExhausted):
            await asyncio.wait_for(client.run_container(dsec.DSecContainerRunArgs("b"), timeout=0.5), 5)

    async def test_lost_create_is_not_sent_again_and_its_sandbox_is_removed(self):
        async def script(request, wire):
            if request.method == "POST":
                self.label = (await request.json())["labels"][types.CREATE_LABEL]
                wire.cut()
            elif request.method == "GET":
                self.assertEqual(request.query["label"], "%s=%s" % (types.CREATE_LABEL, self.label))
                await wire.json({"sandboxes": [sandbox_json("sb-e0-orphan")]})
            else:
                self.deleted.add(request.path)
                await wire.json(sandbox_json("sb-e0-orphan", "stopping"))

        self.deleted = set()
        client = await self.serve(script)
        with self.assertRaises(dsec.ConnectionLost):
            await client.run_container(dsec.DSecContainerRunArgs("b"))
        await asyncio.sleep(0.5)
        self.assertEqual(sum(r.method == "POST" for r in self.requests), 1)
        self.assertEqual(self.deleted, {"/v1/sandboxes/sb-e0-orphan"})

    async def test_lost_create_with_a_key_is_sent_again(self):
        async def script(request, wire):
            self.bodies.append(await request.json())
            if len(self.bodies) == 1:
                wire.cut()
            else:
                await wire.json(sandbox_json("sb-e0-same"), 200)

        self.bodies = []
        client = await self.serve(script)
        made = await client.run_container(dsec.DSecContainerRunArgs("b", idempotency_key="k-1"))
        self.assertEqual(made.id, "sb-e0-same")
        self.assertEqual(self.bodies, [{"environment": "b", "idempotency_key": "k-1"}] * 2)

    async def test_timeout_and_errors(self):
        async def script(request, wire):
            await request.body()
            if request.query or request.method != "POST":
                await wire.json({"sandboxes": []})
            elif self.slow:
                await asyncio.sleep(10)
            else:
                await wire.error("environment_not_found", 404)

        client = await self.serve(script)
        self.slow = False
        with self.assertRaises(dsec.EnvironmentNotFound) as caught:
            await client.run_container(dsec.DSecContainerRunArgs("none"))
        self.assertIsInstance(caught.exception, dsec.NotFound)
        self.slow = True
        with self.assertRaises(dsec.RequestTimeout):
            await client.run_container(dsec.DSecContainerRunArgs("b"), timeout=0.2)


class Lists(ScriptedTest):
    async def test_queries(self):
        async def script(request, wire):
            self.target = request.target
            await wire.json({"sandboxes": [sandbox_json(usage={"memory_bytes": 5, "cpu_seconds": 1.5})]})

        client = await self.serve(script)
        found = await client.list(labels={"a": "b c", "d": "e"}, state="running")
        self.assertEqual(self.target, "/v1/sandboxes?label=a%3Db%20c&label=d%3De&state=running")
        self.assertEqual((found[0].usage.memory_bytes, found[0].usage.cpu_seconds), (5, 1.5))

    async def test_layers(self):
        async def script(request, wire):
            body = await request.body()
            layer = {"name": "base", "version": "1", "digest": "sha256:x", "size_bytes": len(body)}
            self.target = request.target
            await wire.json({"layers": [layer]} if request.path == "/v1/layers" else layer)

        client = await self.serve(script)
        made = await client.layers.import_tar("base@1", b"tar" * 1000, origin="a test")
        self.assertEqual((made.reference, made.size_bytes, self.target), ("base@1", 3000, "/v1/layers/base@1?source=a%20test"))
        self.assertEqual((await client.layers.list())[0].reference, "base@1")
        with self.assertRaises(ValueError):
            await client.layers.get("base")


class Configuration(unittest.TestCase):
    def test_order(self):
        with tempfile.TemporaryDirectory() as d:
            os.mkdir(os.path.join(d, "run"))
            pathlib.Path(d, "api-key").write_text("file-key\n")
            pathlib.Path(d, "run", "url").write_text("http://127.0.0.1:7777\n")
            file = ("http://127.0.0.1:7777", "file-key")
            env = {"DSEC_URL": "http://h:1", "DSEC_API_KEY": "env-key"}
            with mock.patch.dict(os.environ, env):
                self.assertEqual(_config.discover(None, None, None), ("http://h:1", "env-key"))
                self.assertEqual(_config.discover(None, None, d), file)
                self.assertEqual(_config.discover("h:2", "arg", d), ("http://h:2", "arg"))
            with mock.patch.dict(os.environ, {"DSEC_STATE_DIR": d}):
                for name in env:
                    os.environ.pop(name, None)
                self.assertEqual(_config.discover(None, None, None), file)
            self.assertEqual(_config.discover(None, None, d + "/none"), (_config.DEFAULT_URL, None))

    def test_the_machines_key_is_for_its_own_server(self):
        with tempfile.TemporaryDirectory() as d:
            pathlib.Path(d, "api-key").write_text("file-key\n")
            with mock.patch.dict(os.environ, {"DSEC_URL": "http://elsewhere:1", "DSEC_STATE_DIR": d}):
                os.environ.pop("DSEC_API_KEY", None)
                self.assertEqual(_config.discover(None, None, None), ("http://elsewhere:1", None))
                self.assertEqual(_config.discover("http://h:2", None, None), ("http://h:2", None))
                self.assertEqual(_config.discover("http://h:2", None, d), ("http://h:2", "file-key"))

    def test_a_directory_of_root(self):
        with mock.patch("builtins.open", side_effect=PermissionError):
            with self.assertRaises(dsec.NotConfigured) as caught:
                _config.discover(None, None, "/d")
        self.assertIn("DSEC_API_KEY", caught.exception.message)

    def test_url_must_be_one(self):
        for bad in ("ftp://x", "http://"):
            with self.assertRaises(ValueError):
                dsec.DSecClient(bad)


class Table(unittest.TestCase):
    def test_codes_are_those_of_the_platform(self):
        text = (ROOT / "src" / "base" / "errcodes.h").read_text()
        rows = re.findall(r'X\(\w+,\s*"(\w+)",\s*(\w+),\s*(\w+),\s*(\d+)\)', text)
        self.assertGreater(len(rows), 30)
        for code, fault, retry, _ in rows:
            cls = errors.BY_CODE[code]
            self.assertEqual((cls.FAULT, cls.RETRY), (fault.lower(), retry == "true"), code)
            made = errors.from_body({"code": code, "fault": fault.lower(), "message": "m", "retry": retry == "true"})
            self.assertIs(type(made), cls)
        ours = set(errors.BY_CODE) - {code for code, *_ in rows}
        self.assertEqual(ours, set(errors.CLIENT_SIDE))

    def test_version_is_one(self):
        self.assertIn('version = "%s"' % version.__version__, (PACKAGE / "pyproject.toml").read_text())


class Mirror(unittest.TestCase):
    PAIRS = [(client_module.DSecClient, sync.DSecSyncClient), (client_module.Layers, sync.SyncLayers),
             (sandbox.Sandbox, sync.SyncSandbox), (dsec.Files, sync.SyncFiles), (process.Process, sync.SyncProcess)]

    @staticmethod
    def public(cls):
        return {n: inspect.getattr_static(cls, n) for n in dir(cls) if not n.startswith("_")}

    def test_every_public_method_has_its_twin(self):
        for asynchronous, synchronous in self.PAIRS:
            theirs, ours = self.public(asynchronous), self.public(synchronous)
            self.assertGreater(len(theirs), 3)
            self.assertEqual(set(theirs) - set(ours), set(), asynchronous)
            for name, method in theirs.items():
                if not inspect.isfunction(method):
                    continue
                with self.subTest("%s.%s" % (asynchronous.__name__, name)):
                    a, b = inspect.signature(method), inspect.signature(ours[name])
                    self.assertEqual(list(a.parameters.values()), list(b.parameters.values()))
                    self.assertFalse(inspect.iscoroutinefunction(ours[name]))
            constructors = [inspect.signature(c.__init__) for c in (asynchronous, synchronous)]
            if asynchronous is client_module.DSecClient:
                self.assertEqual(constructors[0].parameters, constructors[1].parameters)


class Facade(ScriptedTest):
    async def test_the_same_session_without_asyncio(self):
        async def script(request, wire):
            await request.body()
            if request.path == "/v1/sandboxes":
                await wire.json(sandbox_json(), 201)
            elif request.method == "DELETE":
                await wire.json(sandbox_json(state="stopped"))
            else:
                await wire.start_frames()
                await wire.chunk(event("started", exec=exec_json()) + out(b"one\n") + out(b"two\n"))
                await wire.chunk(event("exit", exec=finished_json(code=5)))
                await wire.end_chunks()

        await self.serve(script)

        def session():
            seen = []
            with sync.DSecSyncClient("http://127.0.0.1:%d" % self.port, "k") as client:
                with client.run_container(dsec.DSecContainerRunArgs("b")) as box:
                    seen.append(box.run_shell("x").exit_code)
                    handle = box.start(shell="x")
                    seen.append([e.text for e in handle])
                    seen.append(handle.wait().exit_code)
            client.close()  # twice is fine
            return seen

        self.assertEqual(await asyncio.to_thread(session), [5, ["one\n", "two\n"], 5])
        self.assertEqual(self.requests[-1].method, "DELETE")


class OldestPython(unittest.TestCase):
    def test_syntax_and_annotations_of_3_9(self):
        files = sorted((PACKAGE / "dsec").glob("*.py"))
        self.assertGreater(len(files), 10)
        for path in files:
            tree = ast.parse(path.read_text(), feature_version=(3, 9))
            for node in ast.walk(tree):
                if isinstance(node, (ast.AnnAssign, ast.arg)) and node.annotation is not None:
                    unions = [n for n in ast.walk(node.annotation) if isinstance(n, ast.BinOp)]
                    self.assertEqual(unions, [], "%s uses X | Y, which 3.9 cannot evaluate" % path.name)
        self.assertTrue((PACKAGE / "dsec" / "py.typed").exists())

    def test_only_the_standard_library(self):
        roots = tuple(sysconfig.get_paths()[k] for k in ("stdlib", "platstdlib"))
        for path in (PACKAGE / "dsec").glob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                names = []
                if isinstance(node, ast.Import):
                    names = [a.name for a in node.names]
                elif isinstance(node, ast.ImportFrom) and not node.level:
                    names = [node.module]
                for name in names:
                    origin = importlib.util.find_spec(name.split(".")[0]).origin
                    standard = origin in ("built-in", "frozen") or origin.startswith(roots)
                    self.assertTrue(standard and "site-packages" not in origin, "%s imports %s" % (path.name, name))


if __name__ == "__main__":
    unittest.main()
