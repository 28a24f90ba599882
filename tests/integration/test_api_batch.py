"""Creates that may be repeated (idempotency keys), and calls about many sandboxes, on a real platform."""
import json
import os
import subprocess
import threading
import time
import unittest
import uuid

from client import ApiError
from harness import PlatformTest, find_program, wait_until

SANDBOXES = "/v1/sandboxes"


class BatchTest(PlatformTest):
    def post(self, path, body, headers=None):
        """(status, decoded answer)"""
        status, _, data = self.client.raw("POST", path, body, headers)
        return status, json.loads(data)

    def kill(self, role):
        old = set(self.platform.kill9(role))
        wait_until(f"{role} started anew", 30, lambda: len(set(self.platform.pids(role)) - old) >= len(old))
        self.platform.wait_ready()


class IdempotencyKeys(BatchTest):
    def create(self, key, header=False, **fields):
        body = {"environment": "busybox@1", "memory_mb": 64, **fields}
        if not header:
            body["idempotency_key"] = key
        status, answer = self.post(SANDBOXES, body, {"Idempotency-Key": key} if header else None)
        if status == 201:
            self.addCleanup(self._remove, answer["id"])
        return status, answer

    def setUp(self):
        self.key = uuid.uuid4().hex

    def test_same_key_same_sandbox(self):
        status, made = self.create(self.key)
        self.assertEqual(status, 201)
        status, again = self.create(self.key)
        self.assertEqual((status, again["id"], again["state"]), (200, made["id"], "running"))
        status, again = self.create(self.key, header=True)  # the header says the same
        self.assertEqual((status, again["id"]), (200, made["id"]))
        status, other = self.create(self.key + "x")
        self.assertEqual(status, 201)
        self.assertNotEqual(other["id"], made["id"])
        self.client.delete(made["id"])
        status, again = self.create(self.key)  # kept after its end, and said so
        self.assertEqual((status, again["id"], again["state"]), (200, made["id"], "stopped"))

    def test_other_body_is_a_conflict(self):
        _, made = self.create(self.key, labels={"a": "1", "b": "2"})
        self.assertEqual(self.create(self.key, labels={"b": "2", "a": "1"})[0], 200)
        for fields in ({"labels": {"a": "1"}}, {"labels": {"a": "1", "b": "2"}, "pids": 99}):
            status, answer = self.create(self.key, **fields)
            self.assertEqual((status, answer["error"]["code"]), (409, "conflict"))
        self.assertEqual(self.client.get(made["id"])["state"], "running")

    def test_bad_keys(self):
        for key in ("", "a b", "k" * 65, "\u00fc"):
            status, answer = self.create(key)
            self.assertEqual(status, 400, answer)
        status, answer = self.post(SANDBOXES, {"environment": "busybox@1", "idempotency_key": "a"},
                                   {"Idempotency-Key": "b"})
        self.assertEqual((status, answer["error"]["code"]), (400, "bad_field"))

    def test_many_at_once_make_one(self):
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(self.create(self.key))) for _ in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(sorted(s for s, _ in answers), [200] * 7 + [201])
        self.assertEqual(len({a["id"] for _, a in answers}), 1)

    def test_survives_kill_of_apiserver_and_edge(self):
        _, made = self.create(self.key)
        for role in ("apiserver", "edge"):
            self.kill(role)
            status, again = self.create(self.key)
            self.assertEqual((status, again["id"], again["state"]), (200, made["id"], "running"), role)

    def test_newest_version_may_change_in_between(self):
        from harness import busybox_tar
        name = "moving" + self.key[:8]
        self.client.put_layer(f"{name}@1", busybox_tar())
        _, made = self.create(self.key, environment=name)
        self.client.put_layer(f"{name}@2", busybox_tar())
        status, again = self.create(self.key, environment=name)
        self.assertEqual((status, again["id"], again["environment"]), (200, made["id"], f"{name}@1"))

    def test_command_line(self):
        env = {"PATH": os.environ["PATH"], "DSEC_URL": f"http://{self.client.host}:{self.client.port}",
               "DSEC_API_KEY": self.client.key}
        command = [find_program("dsec"), "create", "--env", "busybox@1", "--idempotency-key", self.key]
        ids = {subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout for _ in range(2)}
        self.assertEqual(len(ids), 1)
        self._remove(ids.pop().strip())

    def test_client_that_left_finds_its_sandbox(self):
        """Without a key it would be deleted; with one it waits for the client to come back."""
        import socket
        body = json.dumps({"environment": "busybox@1", "memory_mb": 64, "idempotency_key": self.key}).encode()
        with socket.create_connection((self.client.host, self.client.port)) as s:
            s.sendall((f"POST {SANDBOXES} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self.client.key}\r\n"
                       f"Content-Length: {len(body)}\r\n\r\n").encode() + body)
        status, answer = self.create(self.key)
        self.addCleanup(self._remove, answer["id"])
        self.assertIn(status, (200, 201))
        self.assertEqual(self.client.get(answer["id"])["state"], "running")


class Many(BatchTest):
    def setUp(self):
        self.mark = uuid.uuid4().hex[:12]
        self.addCleanup(self.client.call, "DELETE", f"{SANDBOXES}?label=mark%3D{self.mark}&wait=true")

    def body(self, count, **fields):
        return {"environment": "busybox@1", "memory_mb": 32, "disk_mb": 32, "labels": {"mark": self.mark},
                "count": count, **fields}

    def batch(self, count, **fields):
        status, headers, data = self.client.raw("POST", SANDBOXES + "/batch", self.body(count, **fields))
        self.assertEqual(status, 200, data)
        self.assertEqual(headers["Content-Type"], "application/x-ndjson")
        return [json.loads(line) for line in data.splitlines()]

    def live(self):
        return {s["id"] for s in self.client.list(f"?label=mark%3D{self.mark}") if s["state"] != "stopping"}

    def test_create_status_delete(self):
        lines = self.batch(40)
        self.assertEqual(sorted(line["index"] for line in lines), list(range(40)))
        ids = [line["sandbox"]["id"] for line in lines]
        self.assertEqual(self.live(), set(ids))
        self.assertEqual({line["sandbox"]["state"] for line in lines}, {"running"})
        other = self.sandbox(labels={"mark": "other"})
        absent = ids[0][:-26] + "a" * 26
        status, got = self.post(SANDBOXES + "/status", {"ids": [*ids, absent, "no-id", "sb-nowhere-" + "a" * 26]})
        self.assertEqual(status, 200)
        self.assertEqual([s["id"] for s in got["sandboxes"]], ids)
        self.assertEqual(got["unknown"], [absent, "no-id", "sb-nowhere-" + "a" * 26])
        gone = self.client.call("DELETE", f"{SANDBOXES}?label=mark%3D{self.mark}&wait=true")
        self.assertEqual((set(gone["ids"]), gone["failed"]), (set(ids), []))
        _, got = self.post(SANDBOXES + "/status", {"ids": ids[:3]})
        self.assertEqual({(s["state"], s["reason"]) for s in got["sandboxes"]}, {("stopped", "requested")})
        self.assertEqual(self.client.get(other)["state"], "running")
        self.assertEqual(self.client.call("DELETE", f"{SANDBOXES}?label=mark%3D{self.mark}")["ids"], [])

    def test_bounds(self):
        limits = self.client.call("GET", "/v1/limits")["limits"]
        self.assertEqual((limits["batch_count"], limits["status_ids"]), (1000, 1000))
        for count in (0, 1001, -1, "3", None, 1.5):
            with self.assertRaises(ApiError) as caught:
                self.client.call("POST", SANDBOXES + "/batch", self.body(count))
            self.assertEqual(caught.exception.code, "bad_field", count)
        body = self.body(1)
        del body["count"]
        self.assertApiError("bad_field", self.client.call, "POST", SANDBOXES + "/batch", body)
        self.assertApiError("unknown_field", self.client.call, "POST", SANDBOXES + "/batch", self.body(1, x=1))
        self.assertApiError("environment_not_found", self.client.call, "POST", SANDBOXES + "/batch",
                            self.body(1, environment="none"))
        status = SANDBOXES + "/status"
        self.assertEqual(self.client.call("POST", status, {"ids": []}), {"sandboxes": [], "unknown": []})
        self.assertEqual(len(self.client.call("POST", status, {"ids": ["x"] * 1000})["unknown"]), 1000)
        for ids in (["x"] * 1001, "x", [1], None, ["x" * 47]):
            self.assertApiError("bad_field", self.client.call, "POST", status, {"ids": ids})
        self.assertApiError("bad_field", self.client.call, "DELETE", SANDBOXES)
        self.assertApiError("bad_field", self.client.call, "DELETE", SANDBOXES + "?label=x")
        self.assertEqual(self.live(), set())

    def test_batch_with_a_key_again(self):
        first = self.batch(5, idempotency_key=self.mark)
        again = self.batch(7, idempotency_key=self.mark)  # more of the same
        by_index = {line["index"]: line["sandbox"]["id"] for line in again}
        self.assertEqual({line["index"]: line["sandbox"]["id"] for line in first},
                         {i: by_index[i] for i in range(5)})
        self.assertEqual(len(self.live()), 7)
        errors = self.batch(2, idempotency_key=self.mark, pids=99)
        self.assertEqual([line["error"]["code"] for line in errors], ["conflict"] * 2)

    def test_client_that_leaves(self):
        """What was read stays; the rest is not started, or deleted."""
        before = self.client.call("GET", "/v1/edges")["edges"][0]["creates_total"]
        conn, response = self.client.open("POST", SANDBOXES + "/batch", self.body(300))
        read = [json.loads(response.readline())["sandbox"]["id"] for _ in range(3)]
        response.close()
        conn.close()
        time.sleep(2.5)  # creations under way end; the edge's figures are a second old
        after = self.client.call("GET", "/v1/edges")["edges"][0]["creates_total"]
        self.assertLess(after - before, 250)
        live = self.live()
        self.assertLessEqual(set(read), live)
        self.assertLess(len(live), after - before)  # some were made and deleted again
        listed = self.client.list(f"?label=mark%3D{self.mark}&include_stopped=true")
        self.assertEqual({s["reason"] for s in listed if s["id"] not in live}, {"requested"})


class Changes(BatchTest):
    def setUp(self):
        self.mark = uuid.uuid4().hex[:12]
        self.addCleanup(self.client.call, "DELETE", f"{SANDBOXES}?label=mark%3D{self.mark}&wait=true")

    def wait(self, sandbox, query):
        started = time.monotonic()
        state = self.client.call("GET", f"{SANDBOXES}/{sandbox}?{query}")["state"]
        return state, time.monotonic() - started

    def test_long_poll(self):
        sb = self.sandbox()
        for query, least, most in (("wait_seconds=1", 0.9, 3), ("wait_seconds=0&until=stopped", 0, 0.8),
                                   ("wait_seconds=30&until=running", 0, 0.8)):
            state, took = self.wait(sb, query)
            self.assertEqual(state, "running")
            self.assertTrue(least <= took <= most, (query, took))
        timer = threading.Timer(0.5, self.client.delete, [sb])
        timer.start()
        state, took = self.wait(sb, "wait_seconds=30&until=stopped")
        timer.join()
        self.assertEqual(state, "stopped")
        self.assertTrue(0.4 <= took < 5, took)
        state, took = self.wait(sb, "wait_seconds=30&until=running")  # it never will again
        self.assertEqual((state, took < 0.8), ("stopped", True))
        for query in ("wait_seconds=61", "wait_seconds=1&until=paused", "wait_seconds=x"):
            self.assertApiError("bad_field", self.wait, sb, query)
        self.assertApiError("sandbox_not_found", self.wait, sb[:-26] + "a" * 26, "wait_seconds=5")

    def watch(self, **options):
        conn, response = self.client.open("GET", f"{SANDBOXES}/events?label=mark%3D{self.mark}", **options)
        self.addCleanup(conn.close)
        self.addCleanup(response.close)
        self.assertEqual((response.status, response.headers["Content-Type"]), (200, "application/x-ndjson"))
        return response

    def read(self, response):
        event = json.loads(response.readline())
        return event["event"], event.get("sandbox")

    def test_events(self):
        old = self.sandbox(labels={"mark": self.mark})
        self.sandbox(labels={"mark": "other"})
        events = self.watch()
        event, sandbox = self.read(events)
        self.assertEqual((event, sandbox["id"], sandbox["state"]), ("sandbox", old, "running"))
        self.assertEqual(self.read(events), ("listed", None))
        new = self.sandbox(labels={"mark": self.mark})
        self.client.delete(old)
        seen = {old: [], new: []}
        while "stopped" not in seen[old]:
            event, sandbox = self.read(events)
            self.assertEqual(event, "state")
            seen[sandbox["id"]].append(sandbox["state"])
        self.assertEqual(seen[new], ["pending", "preparing", "running"])
        self.assertEqual(seen[old], ["stopping", "stopped"])
        self.assertEqual((sandbox["reason"], sandbox["stopped_at"] is not None), ("requested", True))
        self.assertEqual(self.read(events), ("keepalive", None))  # nothing else came in 10 s

    def test_ends_with_an_error_when_the_edge_goes(self):
        self.sandbox(labels={"mark": self.mark})
        events = self.watch()
        self.assertEqual([self.read(events)[0] for _ in range(2)], ["sandbox", "listed"])
        self.kill("edge")
        last = json.loads(events.readline())
        self.assertEqual((last["event"], last["error"]["code"]), ("error", "edge_unavailable"))
        self.assertEqual(events.read(), b"")
        again = self.watch()
        self.assertEqual([self.read(again)[0] for _ in range(2)], ["sandbox", "listed"])

    def test_overflow_is_reported_and_lists_anew(self):
        events = self.watch()
        self.assertEqual(self.read(events), ("listed", None))
        fields = {"environment": "busybox@1", "memory_mb": 32, "disk_mb": 32, "labels": {"mark": self.mark},
                  "env": {"BIG": "x" * 30000}, "count": 40}
        for _ in range(2):  # 80 sandboxes, five changes of 31 KB each: more than sockets hold
            _, _, data = self.client.raw("POST", SANDBOXES + "/batch", fields)
            self.assertEqual(data.count(b'"sandbox"'), 40)
            self.client.call("DELETE", f"{SANDBOXES}?label=mark%3D{self.mark}&wait=true")
        last = self.sandbox(labels={"mark": self.mark})
        kinds, known = [], {}
        while known.get(last) != "running" or kinds[-1] == "sandbox":  # all that came before it has come
            event, sandbox = self.read(events)
            kinds.append(event)
            if event == "overflow":
                known = {}
            elif sandbox:
                known[sandbox["id"]] = sandbox["state"]
        self.assertIn("overflow", kinds)
        self.assertIn("listed", kinds[kinds.index("overflow"):])
        self.assertEqual({i for i, state in known.items() if state != "stopped"}, {last})
        self.client.delete(last)
        self.assertEqual(self.read(events)[0], "state")


if __name__ == "__main__":
    unittest.main()
