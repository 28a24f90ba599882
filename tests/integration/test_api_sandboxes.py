"""Sandboxes and layers through the apiserver: placement, refusals, edges that break, what is in use."""
import json
import os
import threading
import time
import unittest

from api_help import Api, ApiTest, code_of, read_answer, tiny_tar
from harness import wait_until


class Sandboxes(ApiTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.api.layer()

    def test_create_echoes_defaults(self):
        s = self.api.sandbox(labels={"job": "7"}, env={"A": "\u00fc"}, hostname="box")
        self.addCleanup(self.client.call, "DELETE", f"/v1/sandboxes/{s['id']}")
        self.assertRegex(s["id"], r"^sb-e0-[a-z2-7]{26}$")
        want = {"state": "running", "backend": "container", "environment": "base@1", "cpu": 1.0, "memory_mb": 512,
                "disk_mb": 1024, "pids": 256, "user": "root", "cwd": "", "labels": {"job": "7"},
                "env": {"A": "\u00fc"}, "hostname": "box", "no_new_privileges": False, "stopped_at": None}
        self.assertEqual({k: s[k] for k in want}, want)
        self.assertAlmostEqual(s["end_at"] - s["created_at"], 3600, delta=1)
        self.assertEqual(self.client.call("GET", f"/v1/sandboxes/{s['id']}")["id"], s["id"])

    def test_fractions_are_kept(self):
        s = self.api.sandbox(cpu=0.05, ttl_seconds=1.5, idle_ttl_seconds=0.25)
        self.assertEqual((s["cpu"], s["idle_ttl_seconds"]), (0.05, 0.25))
        self.assertAlmostEqual(s["end_at"] - s["created_at"], 1.5, places=3)

    def test_list_and_delete(self):
        ids = [self.api.sandbox(labels={"n": str(i)})["id"] for i in range(3)]
        listed = [s["id"] for s in self.client.call("GET", "/v1/sandboxes")["sandboxes"]]
        self.assertTrue(set(ids) <= set(listed))
        self.assertEqual(self.client.call("GET", "/v1/sandboxes?state=paused"), {"sandboxes": []})
        for _ in range(2):  # idempotent
            self.assertEqual(self.client.call("DELETE", f"/v1/sandboxes/{ids[0]}?wait=true")["state"], "stopped")
        listed = [s["id"] for s in self.client.call("GET", "/v1/sandboxes")["sandboxes"]]
        self.assertNotIn(ids[0], listed)

    def test_ttl_body(self):
        path = f"/v1/sandboxes/{self.api.sandbox()['id']}/ttl"
        self.assertEqual(self.client.call("POST", path, {"ttl_seconds": 60})["state"], "running")
        self.client.call("POST", path, {"idle_ttl_seconds": 0})
        self.fails(400, "bad_field", "POST", path, {})
        self.fails(400, "bad_field", "POST", path, {"ttl_seconds": 0})
        self.fails(400, "bad_field", "POST", path, {"ttl_seconds": 604801})
        self.fails(400, "unknown_field", "POST", path, {"ttl": 5})

    def test_more_than_any_edge_has(self):
        self.assertIn("4 cores", self.fails(400, "bad_field", "POST", "/v1/sandboxes",
                                            {"environment": "base", "cpu": 4.001})["message"])
        self.fails(400, "bad_field", "POST", "/v1/sandboxes", {"environment": "base", "memory_mb": 8193})
        self.api.sandbox(cpu=4, memory_mb=8192)

    def test_newest_version_and_tag(self):
        self.api.layer("vers@9", tiny_tar(b"nine"))
        self.api.layer("vers@10", tiny_tar(b"ten"))
        for name, want in (("vers", "vers@10"), ("vers:9", "vers@9"), ("vers@10", "vers@10")):
            self.assertEqual(self.api.sandbox(environment=name)["environment"], want)


class Layers(ApiTest):
    def test_life_of_a_layer(self):
        layer = self.api.layer("one@1", tiny_tar(b"one"))
        self.assertEqual((layer["name"], layer["version"]), ("one", "1"))
        self.assertRegex(layer["digest"], r"^sha256:[0-9a-f]{64}$")
        self.assertEqual(set(layer["config"]), {"env", "cwd", "user"})
        self.assertEqual(self.api.layer("one@1", tiny_tar(b"one")), layer)  # the same again
        self.assertEqual(self.api.layer("alias@1", tiny_tar(b"one"))["digest"], layer["digest"])
        before = sorted(os.listdir(self.api.dir / "layers"))
        self.assertIn(layer["digest"].replace(":", "-"), before)
        self.fails(409, "conflict", "PUT", "/v1/layers/one@1", tiny_tar(b"other"))
        self.assertEqual(sorted(os.listdir(self.api.dir / "layers")), before)  # what it made is gone again
        self.client.call("DELETE", "/v1/layers/one@1")
        self.assertTrue((self.api.dir / "layers" / layer["digest"].replace(":", "-")).exists())  # alias has it
        self.client.call("DELETE", "/v1/layers/alias@1")
        self.assertFalse((self.api.dir / "layers" / layer["digest"].replace(":", "-")).exists())
        self.fails(404, "layer_not_found", "GET", "/v1/layers/one@1")
        self.fails(404, "layer_not_found", "DELETE", "/v1/layers/one@1")

    def test_source_and_compressed_bodies(self):
        import gzip
        plain = self.api.layer("plain@1", tiny_tar(b"same"))
        packed = self.client.call("PUT", "/v1/layers/packed@1?source=from+a+test", gzip.compress(tiny_tar(b"same")))
        self.assertEqual(packed["digest"], plain["digest"])
        self.assertEqual(packed["source"], "from a test")

    def test_bad_names_and_bodies(self):
        for ref, code in (("noversion", "bad_field"), ("@1", "bad_field"), ("a@", "bad_field"), ("A@1", "bad_field"),
                          ("a" * 64 + "@1", "name_too_long"), ("a@" + "1" * 64, "name_too_long")):
            self.fails(400, code, "PUT", f"/v1/layers/{ref}", tiny_tar())
        self.api.layer("a" * 63 + "@" + "1" * 63)  # at the limit
        self.fails(400, "name_too_long", "PUT", "/v1/layers/x@1?source=" + "s" * 1025, tiny_tar())
        for junk in (b"this is not a tar" * 100, b"\x1f\x8b\x08" + b"z" * 500, b""):
            status, _, body = self.client.raw("PUT", "/v1/layers/junk@1", junk)
            self.assertGreaterEqual(status, 400, junk[:10])
            self.assertNotEqual(code_of(body), "internal", body)
        self.assertNotIn("junk", json.dumps(self.client.call("GET", "/v1/layers")))

    def test_cut_upload_leaves_nothing(self):
        before = set(os.listdir(self.api.dir / "layers"))
        data = tiny_tar(b"x" * 1000000)
        with self.api.connect() as s:
            s.sendall(self.api.head("PUT", "/v1/layers/cut@1", f"Content-Length: {len(data)}") + data[:500000])
            time.sleep(0.3)
        wait_until("child gone and nothing left", 10, lambda: set(os.listdir(self.api.dir / "layers")) == before)
        self.fails(404, "layer_not_found", "GET", "/v1/layers/cut@1")

    def test_in_use(self):
        self.api.layer("used@1", tiny_tar(b"used"))
        sandbox = self.api.sandbox(environment="used@1")["id"]
        self.assertIn(sandbox, self.fails(409, "layer_in_use", "DELETE", "/v1/layers/used@1")["message"])
        self.client.call("DELETE", f"/v1/sandboxes/{sandbox}")
        self.client.call("DELETE", "/v1/layers/used@1")

    def test_imports_at_once_are_bounded(self):
        limit = self.client.call("GET", "/v1/limits")["limits"]["layer_imports_at_once"]
        held = []
        self.api.settled()
        try:
            for i in range(limit):
                s = self.api.connect()
                held.append(s)
                s.sendall(self.api.head("PUT", f"/v1/layers/slow{i}@1", "Content-Length: 1000000") + b"x")
            wait_until("all have begun", 10, lambda: self.api.active() > limit)  # and the one that asks
            self.fails(429, "overloaded", "PUT", "/v1/layers/more@1", tiny_tar())
        finally:
            for s in held:
                s.close()
        wait_until("room again", 10, lambda: self.client.raw("PUT", "/v1/layers/more@1", tiny_tar())[0] == 201)

    def test_large_body_is_read_as_fast_as_it_is_used(self):
        before = self.api.rss_kib()
        self.api.layer("large@1", tiny_tar(os.urandom(64 << 20)))
        self.assertLess(self.api.rss_kib() - before, 8192)


class Placement(unittest.TestCase):
    def api(self, edges):
        api = Api(edges)
        self.addCleanup(api.close)
        api.layer()
        return api

    def test_a_refusing_edge_leads_to_the_next(self):
        api = self.api({"a": ["--refuse", "100000"], "b": []})
        for _ in range(8):
            self.assertEqual(api.sandbox()["edge"], "b")

    def test_all_refuse(self):
        api = self.api({"a": ["--refuse", "100000"], "b": ["--refuse", "100000"]})
        status, headers, body = api.client.raw("POST", "/v1/sandboxes", {"environment": "base"})
        self.assertEqual((status, code_of(body)), (503, "capacity_exhausted"))
        self.assertEqual(headers["Retry-After"], "3")  # what the edges said

    def test_spreads_over_edges(self):
        api = self.api({"a": [], "b": [], "c": []})
        edges = {api.sandbox()["edge"] for _ in range(30)}
        self.assertEqual(edges, {"a", "b", "c"})
        self.assertEqual(len(api.client.call("GET", "/v1/sandboxes")["sandboxes"]), 30)

    def test_down_edge_is_passed_over_and_lists_say_so(self):
        api = self.api({"a": [], "b": []})
        api.end_edge("a")
        wait_until("loss seen", 5, lambda: not api.client.call("GET", "/v1/edges")["edges"][0]["connected"])
        self.assertEqual(api.sandbox()["edge"], "b")
        start = time.monotonic()
        status, headers, body = api.client.raw("GET", "/v1/sandboxes")
        self.assertEqual((status, code_of(body), headers["Retry-After"]), (503, "edge_unavailable", "1"))
        self.assertGreater(time.monotonic() - start, 1.8)  # it waited first

    def test_reads_wait_for_an_edge_that_comes_back(self):
        api = self.api({"e0": []})
        api.end_edge("e0")
        threading.Timer(0.7, api.start_edge, ("e0",)).start()
        self.assertEqual(api.client.call("GET", "/v1/sandboxes"), {"sandboxes": []})

    def test_create_without_an_edge_fails_at_once(self):
        api = self.api({"e0": []})
        api.end_edge("e0")
        start = time.monotonic()
        status, _, body = api.client.raw("POST", "/v1/sandboxes", {"environment": "base"})
        self.assertEqual((status, code_of(body)), (503, "edge_unavailable"))
        self.assertLess(time.monotonic() - start, 1)

    def test_create_is_asked_again_with_the_same_id(self):
        """The edge made the sandbox and broke before it answered: one sandbox, not two."""
        api = self.api({"e0": ["--cut-create", "2"]})
        made = api.sandbox()
        listed = api.client.call("GET", "/v1/sandboxes")["sandboxes"]
        self.assertEqual([s["id"] for s in listed], [made["id"]])

    def test_client_that_leaves_a_create_leaves_no_sandbox(self):
        api = self.api({"e0": []})
        os.kill(api.edges["e0"].pid, 19)  # SIGSTOP: the answer will come late
        body = b'{"environment": "base"}'
        with api.connect() as s:
            s.sendall(api.head("POST", "/v1/sandboxes", f"Content-Length: {len(body)}") + body)
            time.sleep(0.3)
        time.sleep(0.2)
        os.kill(api.edges["e0"].pid, 18)

        def made_and_removed():
            all_of_them = api.client.call("GET", "/v1/sandboxes?include_stopped=true")["sandboxes"]
            return len(all_of_them) == 1 and not api.client.call("GET", "/v1/sandboxes")["sandboxes"]
        wait_until("made and removed", 10, made_and_removed)


if __name__ == "__main__":
    unittest.main()
