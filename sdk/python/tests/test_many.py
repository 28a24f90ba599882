"""Calls about many sandboxes: batches as they come, statuses, deletes by labels."""
import asyncio
import json
import unittest

from scripted import ScriptedTest, dsec, sandbox_json


class ManyTest(ScriptedTest):
    async def serve_many(self, lines, end=True):
        async def script(request, wire):
            if request.path == "/v1/sandboxes/batch":
                self.asked = await request.json()
                await wire.start_frames()
                data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
                await wire.chunk(data[:20])
                await wire.chunk(data[20:])
                await (wire.end_chunks() if end else asyncio.sleep(0))
                if not end:
                    wire.cut()
            elif request.path == "/v1/sandboxes/events":
                self.target = request.target
                await wire.start_frames()
                await wire.chunk(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
                await wire.end_chunks()
            elif request.method == "GET":
                self.waits.append(request.query)
                await wire.json(sandbox_json(state="stopped" if len(self.waits) == 2 else "running"))
            elif request.method == "DELETE":
                error = {"code": "edge_unavailable", "message": "m", "fault": "platform", "retry": True}
                await wire.json({"ids": [request.target], "failed": [{"id": "sb-e0-b", "error": error}]})
            else:
                await wire.json({"sandboxes": [sandbox_json(i) for i in (await request.json())["ids"]], "unknown": ["u"]})

        return await self.serve(script)


class Many(ManyTest):
    LINES = [{"index": 1, "sandbox": sandbox_json("sb-e0-one")},
             {"index": 0, "error": {"code": "capacity_exhausted", "message": "m", "fault": "platform", "retry": True}}]

    async def test_batch(self):
        client = await self.serve_many(self.LINES)
        seen = [item async for item in client.run_containers(dsec.DSecContainerRunArgs("b"), 2)]
        self.assertEqual(self.asked, {"environment": "b", "count": 2})
        self.assertEqual((seen[0][0], seen[0][1].id), (1, "sb-e0-one"))
        self.assertEqual(seen[1][0], 0)
        self.assertIsInstance(seen[1][1], dsec.CapacityExhausted)

    async def test_batch_that_is_not_whole(self):
        for end, error in ((True, dsec.BadResponse), (False, dsec.ConnectionLost)):
            client = await self.serve_many(self.LINES, end)
            seen = []
            with self.assertRaises(error):
                async for item in client.run_containers(dsec.DSecContainerRunArgs("b"), 3):
                    seen.append(item)
            self.assertEqual(len(seen), 2)

    async def test_status_and_delete(self):
        client = await self.serve_many([])
        got = await client.statuses(["sb-e0-a"])
        self.assertEqual(([s.id for s in got.sandboxes], got.unknown), (["sb-e0-a"], ("u",)))
        gone = await client.delete_labelled({"a": "1"}, wait=False)
        self.assertEqual(gone.ids, ("/v1/sandboxes?label=a%3D1&wait=false",))
        self.assertIsInstance(gone.failed["sb-e0-b"], dsec.EdgeUnavailable)


class Changes(ManyTest):
    async def test_events(self):
        error = {"code": "edge_unavailable", "message": "m", "fault": "platform", "retry": True}
        client = await self.serve_many([
            {"event": "sandbox", "sandbox": sandbox_json("sb-e0-a")}, {"event": "listed"}, {"event": "keepalive"},
            {"event": "state", "sandbox": sandbox_json("sb-e0-a", "stopped")}, {"event": "error", "error": error}])
        seen = []
        with self.assertRaises(dsec.EdgeUnavailable):
            async for event in client.watch({"a": "1"}):
                seen.append((event.event, event.sandbox and event.sandbox.state))
        self.assertEqual(seen, [("sandbox", "running"), ("listed", None), ("state", "stopped")])
        self.assertEqual(self.target, "/v1/sandboxes/events?label=a%3D1")

    async def test_wait_until(self):
        self.waits = []
        client = await self.serve_many([])
        box = dsec.Sandbox(client._api, "sb-e0-a")
        self.assertEqual((await box.wait_until("stopped", timeout=100)).state, "stopped")
        self.assertEqual(self.waits, [{"wait_seconds": "60", "until": "stopped"}] * 2)


if __name__ == "__main__":
    unittest.main()
