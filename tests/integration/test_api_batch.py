"""Creates that may be repeated (idempotency keys), on a real platform."""
import threading
import unittest
import uuid

from harness import PlatformTest, wait_until

SANDBOXES = "/v1/sandboxes"


class BatchTest(PlatformTest):
    def post(self, path, body, headers=None):
        """(status, decoded answer)"""
        import json
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

    def test_client_that_left_finds_its_sandbox(self):
        """Without a key it would be deleted; with one it waits for the client to come back."""
        import json
        import socket
        body = json.dumps({"environment": "busybox@1", "memory_mb": 64, "idempotency_key": self.key}).encode()
        with socket.create_connection((self.client.host, self.client.port)) as s:
            s.sendall((f"POST {SANDBOXES} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self.client.key}\r\n"
                       f"Content-Length: {len(body)}\r\n\r\n").encode() + body)
        status, answer = self.create(self.key)
        self.addCleanup(self._remove, answer["id"])
        self.assertIn(status, (200, 201))
        self.assertEqual(self.client.get(answer["id"])["state"], "running")


if __name__ == "__main__":
    unittest.main()
