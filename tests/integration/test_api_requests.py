"""The apiserver's HTTP: keys, errors, strict bodies, bounds, methods, request ids, odd clients."""
import json
import resource
import time
import unittest

from api_help import Api, ApiTest, code_of, read_answer
from harness import Client, wait_until


class Requests(ApiTest):
    def test_key_is_needed_everywhere_but_health(self):
        for key in (None, "wrong-key-0123456789", "x", self.api.key + "x", self.api.key.upper()):
            other = Client("127.0.0.1", self.api.port, key)
            status, headers, body = other.raw("GET", "/v1/sandboxes")
            self.assertEqual((status, code_of(body)), (401, "unauthenticated"))
            self.assertEqual(headers["WWW-Authenticate"], "Bearer")
            self.assertEqual(other.raw("GET", "/no/such/path")[0], 401)
            self.assertEqual(other.raw("GET", "/metrics")[0], 401)
            self.assertEqual(other.raw("GET", "/healthz")[0], 200)
            self.assertEqual(other.raw("GET", "/readyz")[0], 200)
        status, body = self.api.talk(self.api.head("GET", "/v1/limits", "Authorization: Basic abc", key=False))
        self.assertEqual(status, 401)

    def test_key_file_is_private_and_stable(self):
        key_file = self.api.dir / "api-key"
        self.assertEqual(key_file.stat().st_mode & 0o777, 0o600)
        self.assertEqual((self.api.run / "url").stat().st_mode & 0o777, 0o600)
        self.assertNotIn(self.api.key.encode(), (self.api.dir / "store.db").read_bytes())

    def test_request_ids(self):
        _, headers, _ = self.client.raw("GET", "/v1/version", headers={"X-Request-Id": "my-id_1.x"})
        self.assertEqual(headers["X-Request-Id"], "my-id_1.x")
        for length, kept in ((63, True), (64, True), (65, False)):
            _, headers, _ = self.client.raw("GET", "/v1/version", headers={"X-Request-Id": "a" * length})
            self.assertEqual(headers["X-Request-Id"] == "a" * length, kept)
        for bad in ("a b", "a/b", "\u00e4".encode("utf-8").decode("latin-1")):
            _, headers, _ = self.client.raw("GET", "/v1/version", headers={"X-Request-Id": bad})
            self.assertTrue(headers["X-Request-Id"].startswith("rq-"))

    def test_paths_and_methods(self):
        self.fails(404, "not_found", "GET", "/")
        self.fails(404, "not_found", "GET", "/v1/sandboxes/")
        self.fails(404, "not_found", "GET", "/v1//sandboxes")
        self.fails(405, "method_not_allowed", "PATCH", "/v1/sandboxes", b"")
        _, headers, _ = self.client.raw("PUT", "/v1/sandboxes", b"x")
        self.assertEqual(headers["Allow"], "POST, GET, HEAD, DELETE")
        status, headers, body = self.client.raw("OPTIONS", "/v1/sandboxes")
        self.assertEqual((status, headers["Allow"], body), (204, "POST, GET, HEAD, DELETE", b""))
        status, headers, body = self.client.raw("HEAD", "/v1/limits")
        self.assertEqual((status, body), (200, b""))
        self.assertGreater(int(headers["Content-Length"]), 100)

    def test_strict_queries(self):
        self.fails(400, "unknown_field", "GET", "/v1/sandboxes?lable=a=b")
        self.fails(400, "unknown_field", "GET", "/v1/version?x")
        self.fails(400, "bad_field", "GET", "/v1/sandboxes?include_stopped=yes")
        self.fails(400, "bad_field", "GET", "/v1/sandboxes?include_stopped=true&include_stopped=true")
        self.fails(400, "bad_field", "GET", "/v1/sandboxes?state=nothing")
        self.fails(400, "bad_field", "GET", "/v1/sandboxes?label=x")
        self.fails(400, "bad_field", "GET", "/v1/sandboxes?state=running%00x")
        self.client.call("GET", "/v1/sandboxes?label=a=b&label=c=d&state=running")

    def test_strict_bodies(self):
        post = "/v1/sandboxes"
        self.fails(400, "bad_json", "POST", post, b"{")
        self.fails(400, "bad_json", "POST", post, b"[]")
        self.fails(400, "bad_json", "POST", post, b"{\"environment\":\"\xff\"}")
        self.fails(400, "bad_json", "POST", post, b"[" * 100000)
        self.fails(400, "bad_field", "POST", post, {})
        self.fails(400, "unknown_field", "POST", post, {"environment": "base", "memory": 1})
        self.fails(400, "name_too_long", "POST", post, {"environment": "a" * 500})
        self.fails(404, "environment_not_found", "POST", post, {"environment": "none"})
        self.fails(422, "unsupported", "POST", post, {"environment": "base", "network_rules": {"pypi": True}})
        self.fails(422, "unsupported", "POST", post, {"environment": "base", "backend": "fullvm"})
        self.fails(400, "bad_request", "GET", "/v1/version", b"body")
        self.fails(404, "sandbox_not_found", "GET", "/v1/sandboxes/sb-e0-" + "a" * 26)
        self.fails(404, "sandbox_not_found", "GET", "/v1/sandboxes/sb-zz-" + "a" * 26)
        self.fails(404, "not_found", "GET", "/v1/sandboxes/..%2f..%2fx")

    def test_json_body_at_its_limit(self):
        limit = self.client.call("GET", "/v1/limits")["limits"]["json_body_bytes"]
        for length, code in ((limit - 1, "bad_json"), (limit, "bad_json"), (limit + 1, "body_too_large")):
            status, _, body = self.client.raw("POST", "/v1/sandboxes", b" " * length)
            self.assertEqual(code_of(body), code, length)
        # chunked: the length is not known before
        head = self.api.head("POST", "/v1/sandboxes", "Transfer-Encoding: chunked")
        chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
        status, body = self.api.talk(head + chunk * 33 + b"0\r\n\r\n")
        self.assertEqual((status, code_of(body)), (413, "body_too_large"))

    def test_refused_upload_can_be_read_before_it_is_sent(self):
        """A large body whose answer is known at once: the answer arrives, the rest is not needed."""
        with self.api.connect() as s:
            s.sendall(self.api.head("POST", "/v1/sandboxes", "Content-Length: 9000000000"))
            status, body = read_answer(s)
            self.assertEqual((status, code_of(body)), (413, "body_too_large"))
        with self.api.connect() as s:
            s.sendall(self.api.head("POST", "/v1/sandboxes", "Content-Length: 9000000000", "Expect: 100-continue"))
            status, body = read_answer(s)
            self.assertEqual((status, code_of(body)), (413, "body_too_large"))

    def test_headers_at_their_limit(self):
        limit = self.client.call("GET", "/v1/limits")["limits"]["header_bytes"]
        base = len("/v1/version") + len("Host") + len("x") + 4 + len("Authorization") + len("Bearer ") + len(
            self.api.key) + 4 + len("X-A") + 4
        for extra, want in ((-1, 200), (0, 200), (1, 431)):
            status, body = self.api.talk(self.api.head("GET", "/v1/version", "X-A: " + "a" * (limit - base + extra)))
            self.assertEqual(status, want)
        self.assertEqual(code_of(body), "headers_too_large")
        status, _ = self.api.talk(self.api.head("GET", "/v1/version", "X-A: " + "a" * 100000))
        self.assertEqual(status, 431)

    def test_not_http(self):
        for noise in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 100, b"GET\r\n\r\n", b"\r\n" * 50,
                      b"GET / HTTP/9.9\r\n\r\n"):
            with self.api.connect(5) as s:
                s.sendall(noise)
                s.shutdown(1)
                try:
                    while s.recv(65536):
                        pass
                except OSError:
                    pass
        self.assertEqual(self.client.raw("GET", "/healthz")[0], 200)

    def test_keepalive_and_pipelining(self):
        one = self.api.head("GET", "/v1/version")
        with self.api.connect() as s:
            for _ in range(3):
                s.sendall(one)
                self.assertEqual(read_answer(s)[0], 200)
            # an error keeps the connection too, its body read to the end
            bad = self.api.head("POST", "/v1/sandboxes", "Content-Length: 3") + b"{x}"
            s.sendall(bad)
            self.assertEqual(read_answer(s)[0], 400)
            s.sendall(self.api.head("DELETE", "/v1/version", "Content-Length: 5") + b"12345")
            self.assertEqual(read_answer(s)[0], 405)
            s.sendall(one)
            self.assertEqual(read_answer(s)[0], 200)

    def test_body_a_byte_at_a_time(self):
        body = b"{\"environment\": \"none\"}"
        with self.api.connect() as s:
            s.sendall(self.api.head("POST", "/v1/sandboxes", f"Content-Length: {len(body)}"))
            for i in range(len(body)):
                s.sendall(body[i:i + 1])
                time.sleep(0.002)
            status, answer = read_answer(s)
        self.assertEqual((status, code_of(answer)), (404, "environment_not_found"))

    def test_clients_that_never_finish_do_not_block_others(self):
        held = [self.api.connect() for _ in range(300)]
        try:
            for s in held:
                s.sendall(b"POST /v1/sandboxes HTTP/1.1\r\nHost: x\r\nContent-Le")
            start = time.monotonic()
            for _ in range(20):
                self.assertEqual(self.client.raw("GET", "/v1/version")[0], 200)
            self.assertLess(time.monotonic() - start, 5)
            text = self.client.raw("GET", "/metrics")[2].decode()
            open_now = int(next(l for l in text.splitlines() if l.startswith("dsec_http_connections ")).split()[1])
            self.assertGreaterEqual(open_now, 300)
        finally:
            for s in held:
                s.close()

    def test_metrics_text(self):
        self.client.raw("GET", "/v1/version")
        status, headers, body = self.client.raw("GET", "/metrics")
        text = body.decode()
        self.assertEqual(status, 200)
        self.assertTrue(headers["Content-Type"].startswith("text/plain"))
        self.assertIn('dsec_http_requests_total{method="GET",route="/v1/version",status="200"}', text)
        self.assertIn('dsec_http_request_seconds_bucket{method="GET",route="/v1/version",le="+Inf"}', text)
        self.assertIn('dsec_edge_connected{edge="e0"} 1', text)
        self.assertIn('dsec_edge_cpus{edge="e0"} 4', text)
        for line in text.splitlines():
            if not line.startswith("#"):
                float(line.rsplit(" ", 1)[1])

    def test_limits_are_named(self):
        limits = self.client.call("GET", "/v1/limits")["limits"]
        self.assertEqual(limits["json_body_bytes"], 2 * 1024 * 1024)
        self.assertEqual(limits["connections"], 10000)
        self.assertTrue(all(isinstance(v, int) for v in limits.values()))


class ManyConnections(unittest.TestCase):
    def test_idle_thousands(self):
        api = Api()
        self.addCleanup(api.close)
        before = api.rss_kib()
        held = []
        try:
            for _ in range(4000):
                held.append(api.connect())
            api.client.call("GET", "/v1/version")
            grown = api.rss_kib() - before
            self.assertLess(grown / 4000, 48, "KiB a connection")
        finally:
            for s in held:
                s.close()
        wait_until("descriptors closed", 20, lambda: api.files_open() < 100)

    def test_at_the_limit(self):
        """Served up to it; beyond, a typed refusal instead of a stall."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard != resource.RLIM_INFINITY and hard < 11000:
            self.skipTest("needs 11,000 open files")
        resource.setrlimit(resource.RLIMIT_NOFILE, (11000, hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        api = Api()
        self.addCleanup(api.close)
        limit = api.client.call("GET", "/v1/limits")["limits"]["connections"]
        held = []
        try:
            while len(held) < limit - 1:
                held.append(api.connect())
            self.assertEqual(api.client.raw("GET", "/v1/version")[0], 200)  # the last one
            held.append(api.connect())
            status, headers, body = api.client.raw("GET", "/v1/version")
            self.assertEqual((status, code_of(body), headers["Retry-After"]), (429, "overloaded", "1"))
            self.assertEqual(json.loads(body)["error"]["request_id"], headers["X-Request-Id"])
        finally:
            for s in held:
                s.close()
        wait_until("served again", 20, lambda: api.client.raw("GET", "/v1/version")[0] == 200)


class Ending(unittest.TestCase):
    def test_sigterm_lets_answers_finish(self):
        api = Api()
        self.addCleanup(api.close)
        api.layer()
        sandbox = api.sandbox()["id"]
        conn, response = api.client.open("POST", f"/v1/sandboxes/{sandbox}/execs?stream=true", {"argv": ["hang"]})
        self.addCleanup(conn.close)
        start = time.monotonic()
        self.assertEqual(api.stop(), 0)
        self.assertGreater(time.monotonic() - start, 1.5)  # the stream got its two seconds
        self.assertLess(time.monotonic() - start, 5)

    def test_sigterm_idle_is_quick(self):
        api = Api()
        self.addCleanup(api.close)
        held = api.connect()
        self.addCleanup(held.close)
        start = time.monotonic()
        self.assertEqual(api.stop(), 0)
        self.assertLess(time.monotonic() - start, 1.5)

    def test_restart_keeps_key_and_layers(self):
        api = Api()
        self.addCleanup(api.close)
        api.layer()
        key = api.key
        api.server.kill()
        api.server.wait(10)
        api.log.close()
        api.start()
        self.assertEqual(api.key, key)
        self.assertEqual([l["name"] for l in api.client.call("GET", "/v1/layers")["layers"]], ["base"])

    def test_readiness_without_an_edge(self):
        api = Api()
        self.addCleanup(api.close)
        api.end_edge("e0")
        status, headers, body = api.client.raw("GET", "/readyz")
        self.assertEqual((status, code_of(body)), (503, "edge_unavailable"))
        self.assertEqual(json.loads(api.client.raw("GET", "/healthz")[2]), {"status": "ok"})
        api.start_edge("e0")
        wait_until("ready again", 10, lambda: api.client.raw("GET", "/readyz")[0] == 200)


if __name__ == "__main__":
    unittest.main()
