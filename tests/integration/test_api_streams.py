"""Streams through the apiserver: frames and lines, back-pressure both ways, clients and edges that leave."""
import json
import struct
import threading
import time
import unittest

from api_help import Api, ApiTest, code_of, read_answer
from harness import STDERR, STDOUT, EVENT, wait_until

MIB = 1 << 20
WINDOW = 256 * 1024


def frames(data):
    """[(type, payload)] of a whole frame stream."""
    out = []
    while data:
        kind, n = struct.unpack(">BI", data[:5])
        out.append((kind, data[5:5 + n]))
        assert len(data) >= 5 + n, "cut frame"
        data = data[5 + n:]
    return out


class Streams(ApiTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.api.layer()
        cls.sandbox = cls.api.sandbox()["id"]
        cls.base = f"/v1/sandboxes/{cls.sandbox}"

    def stream(self, argv, **headers):
        return self.client.raw("POST", f"{self.base}/execs?stream=true", {"argv": argv}, **headers)

    # -- formats --------------------------------------------------------------------------------------

    def test_frames(self):
        status, headers, data = self.stream(["both"])
        self.assertEqual((status, headers["Content-Type"]), (200, "application/vnd.dsec.frames"))
        got = frames(data)
        self.assertEqual([k for k, _ in got], [EVENT, STDOUT, STDERR, EVENT])
        self.assertEqual((got[1][1], got[2][1]), (b"out", b"err"))
        first, last = json.loads(got[0][1]), json.loads(got[-1][1])
        self.assertEqual((first["event"], first["exec"]["state"]), ("started", "running"))
        self.assertEqual((last["event"], last["exec"]["exit_code"]), ("exit", 3))

    def test_lines(self):
        status, headers, data = self.stream(["gap"], headers={"Accept": "application/x-ndjson"})
        self.assertEqual((status, headers["Content-Type"]), (200, "application/x-ndjson"))
        lines = [json.loads(l) for l in data.splitlines()]
        self.assertEqual(lines[1:-1], [
            {"stream": "stdout", "offset": 0, "b64": "aGVhZA=="},
            {"event": "gap", "stream": "stdout", "from": 4, "to": 1000},
            {"stream": "stdout", "offset": 1000, "b64": "dGFpbA=="}])
        self.assertEqual(lines[-1]["event"], "exit")

    def test_wait_collects(self):
        done = self.client.call("POST", f"{self.base}/execs?wait=true", {"argv": ["both"]})
        self.assertEqual((done["state"], done["exit_code"], done["stdout_b64"], done["stderr_b64"]),
                         ("finished", 3, "b3V0", "ZXJy"))
        big = self.client.call("POST", f"{self.base}/execs?wait=true", {"argv": ["emit", str(5 * MIB + 1)]})
        self.assertEqual(len(big["stdout_b64"]), (5 * MIB + 1 + 2) // 3 * 4)

    def test_plain_start_and_look(self):
        x = self.client.call("POST", f"{self.base}/execs", {"argv": ["hang"], "id": "mine-1"})
        self.assertEqual((x["id"], x["state"], x["exit_code"]), ("mine-1", "running", None))
        self.assertEqual(self.client.call("GET", f"{self.base}/execs/mine-1")["id"], "mine-1")
        self.fails(404, "exec_not_found", "GET", f"{self.base}/execs/other")
        self.fails(400, "bad_field", "GET", f"{self.base}/execs/mine-1?wait_seconds=61")
        self.fails(400, "bad_field", "POST", f"{self.base}/execs/mine-1/signal", {"signal": "NOPE"})
        self.fails(400, "bad_field", "POST", f"{self.base}/execs/mine-1/resize", {"rows": 1})

    def test_start_errors_are_http_errors(self):
        for code, status in (("command_not_found", 422), ("bad_user", 422), ("bad_cwd", 422), ("exec_format", 422),
                             ("permission_denied", 422), ("sandbox_stopped", 409), ("pids_limit", 429)):
            for how in ("", "?wait=true", "?stream=true"):
                self.fails(status, code, "POST", f"{self.base}/execs{how}", {"argv": ["fail", code]})
        self.fails(400, "bad_field", "POST", f"{self.base}/execs?wait=true&stream=true", {"argv": ["both"]})
        self.fails(400, "bad_argv", "POST", f"{self.base}/execs", {"argv": []})

    def test_large_requests_arrive_whole(self):
        """Beyond one aether payload the request goes in pieces."""
        import base64
        stdin = base64.b64encode(b"s" * MIB).decode()
        status, _, data = self.client.raw("POST", f"{self.base}/execs?stream=true",
                                          {"argv": ["size", "a" * 131000], "stdin_b64": stdin})
        self.assertEqual(status, 200, data)
        self.assertEqual([p for k, p in frames(data) if k == STDOUT], [b"131004 1048576"])

    # -- the edge breaks ------------------------------------------------------------------------------

    def test_cut_stream_ends_with_an_error_event(self):
        for headers in ({}, {"Accept": "application/x-ndjson"}):
            _, _, data = self.stream(["cut"], headers=headers)
            last = json.loads(data.splitlines()[-1]) if headers else json.loads(frames(data)[-1][1])
            self.assertEqual((last["event"], last["error"]["code"]), ("error", "edge_unavailable"))
            self.api.wait_edges()
        self.fails(503, "edge_unavailable", "POST", f"{self.base}/execs?wait=true", {"argv": ["cut"]})
        self.api.wait_edges()

    def test_cut_file_is_seen_as_cut(self):
        import http.client
        with self.assertRaises(http.client.IncompleteRead):
            self.client.raw("GET", f"{self.base}/files?path=/cut/100000")
        self.api.wait_edges()

    # -- back-pressure --------------------------------------------------------------------------------

    def test_large_output_in_constant_memory(self):
        before = self.api.rss_kib()
        conn, response = self.client.open("POST", f"{self.base}/execs?stream=true", {"argv": ["emit", str(512 * MIB)]})
        total = 0
        while True:
            data = response.read(MIB)
            if not data:
                break
            total += len(data)
        conn.close()
        self.assertGreater(total, 512 * MIB)
        self.assertLess(self.api.rss_kib() - before, 8192)

    def test_a_reader_that_stops_stops_the_program(self):
        before = self.api.rss_kib()
        conn, response = self.client.open("POST", f"{self.base}/execs?stream=true",
                                          {"argv": ["emit", str(512 * MIB)], "id": "stopped-reader"})
        try:
            self.assertEqual(response.read(5)[0], EVENT)
            time.sleep(1.0)
            sent = self.client.call("GET", f"{self.base}/execs/stopped-reader")["stdout_bytes"]
            time.sleep(0.7)
            again = self.client.call("GET", f"{self.base}/execs/stopped-reader")["stdout_bytes"]
            self.assertEqual(sent, again)  # it stands still
            self.assertLess(sent, 32 * MIB)  # our buffers and the kernel's, no more
            self.assertLess(self.api.rss_kib() - before, 8192)
        finally:
            conn.close()

    def test_an_upload_nobody_reads_stops_the_client(self):
        before = self.api.rss_kib()
        sent = 0
        with self.api.connect(1.0) as s:
            s.sendall(self.api.head("PUT", f"{self.base}/files?path=/hold", f"Content-Length: {1 << 30}"))
            try:
                while sent < 256 * MIB:
                    sent += s.send(b"x" * 65536)
            except TimeoutError:
                pass
        self.assertLess(sent, 32 * MIB)
        self.assertGreaterEqual(sent, WINDOW)
        self.assertLess(self.api.rss_kib() - before, 4096)

    def test_uploads_by_length_and_chunked(self):
        data = bytes(range(256)) * 4096 * 20
        done = self.client.call("PUT", f"{self.base}/files?path=/x", data)
        self.assertEqual((done["path"], done["size"]), ("/x", len(data)))

        def pieces():
            for at in range(0, len(data), 70001):
                yield data[at:at + 70001]
        status, _, body = self.client.raw("PUT", f"{self.base}/archive?path=/d", pieces())  # chunked
        self.assertEqual((status, json.loads(body)["bytes"]), (200, len(data)))
        self.assertEqual(self.client.call("PUT", f"{self.base}/files?path=/empty", b"")["size"], 0)

    def test_downloads(self):
        status, headers, data = self.client.raw("GET", f"{self.base}/files?path=/zeros/{3 * MIB + 7}")
        self.assertEqual((status, len(data)), (200, 3 * MIB + 7))
        self.assertEqual((headers["X-Dsec-Size"], headers["X-Dsec-Mode"]), (str(3 * MIB + 7), "0640"))
        status, headers, data = self.client.raw("HEAD", f"{self.base}/files?path=/zeros/100")
        self.assertEqual((status, headers["X-Dsec-Size"], data), (200, "100", b""))
        self.assertEqual(self.client.raw("GET", f"{self.base}/files?path=/zeros/0")[2], b"")

    def test_file_queries(self):
        self.fails(400, "bad_field", "GET", f"{self.base}/files")
        self.fails(400, "name_too_long", "GET", f"{self.base}/files?path=/" + "a" * 4095)
        for what in ("", "/stat", "/list"):
            self.fails(404, "file_not_found", "GET", f"{self.base}/files/stat?path=/x&user=" + "u" * 64)
            self.fails(400, "name_too_long", "GET", f"{self.base}/files{what}?path=/x&user=" + "u" * 65)
        self.fails(400, "bad_field", "PUT", f"{self.base}/files?path=/x&mode=999", b"")
        self.fails(400, "bad_field", "PUT", f"{self.base}/files?path=/x&sha256=abc", b"")
        self.fails(400, "bad_field", "GET", f"{self.base}/files?path=/x&offset=-1")
        self.fails(404, "file_not_found", "GET", f"{self.base}/files/stat?path=/" + "a" * 4094)

    def test_refused_upload_tells_before_the_body_is_through(self):
        with self.api.connect() as s:
            s.sendall(self.api.head("PUT", f"{self.base}/files?path=/refused", "Content-Length: 100000000"))
            s.sendall(b"x" * 100000)
            status, body = read_answer(s)
        self.assertEqual((status, code_of(body)), (404, "file_not_found"))
        # a client that sends all first gets it as well
        self.fails(404, "file_not_found", "PUT", f"{self.base}/files?path=/refused", b"x" * 30 * MIB)

    def test_refused_upload_that_stays_is_cut(self):
        """The answer is out; a client that neither sends nor leaves is given five seconds."""
        base = self.api.settled()
        for path, size in (("/files?path=/refused", 100000000), ("/files?path=/x&mode=bad", 100000000)):
            with self.api.connect() as s:
                s.sendall(self.api.head("PUT", f"{self.base}{path}", f"Content-Length: {size}") + b"x")
                self.assertGreaterEqual(read_answer(s)[0], 400)
                self.assertEqual(s.recv(1), b"")
                self.assertGreater(self.api.active(), base)
                wait_until("it is cut", 8, lambda: self.api.active() <= base, 0.2)

    # -- stdin ----------------------------------------------------------------------------------------

    def test_stdin_goes_on_where_it_was(self):
        self.client.call("POST", f"{self.base}/execs", {"argv": ["count-stdin"], "stdin": "open", "id": "in-1"})
        path = f"{self.base}/execs/in-1/stdin"
        self.assertEqual(self.client.call("POST", path, b"x" * 10), {"offset": 10, "closed": False})
        self.assertEqual(self.client.call("POST", f"{path}?offset=10", b"x" * MIB)["offset"], MIB + 10)

        def pieces():
            for _ in range(5):
                yield b"abc"
                time.sleep(0.05)
        status, _, body = self.client.raw("POST", path, pieces())  # chunked
        self.assertEqual((status, json.loads(body)["offset"]), (200, MIB + 25))
        self.fails(404, "exec_not_found", "POST", f"{self.base}/execs/none/stdin", b"x")
        self.fails(400, "bad_field", "POST", f"{path}?offset=x", b"x")

    # -- clients that leave ---------------------------------------------------------------------------

    def test_left_streams_are_noticed(self):
        """Also half-closed ones: nothing else would ever wake a suspended connection."""
        base = self.api.settled()
        for leave in ("close", "reset", "half"):
            held = []
            body = json.dumps({"argv": ["hang"]}).encode()
            for _ in range(50):
                s = self.api.connect()
                s.sendall(self.api.head("POST", f"{self.base}/execs?stream=true", f"Content-Length: {len(body)}") + body)
                held.append(s)
            wait_until("all are open", 10, lambda: self.api.active() >= base + 50)
            for s in held:
                if leave == "reset":
                    s.setsockopt(1, 13, struct.pack("ii", 1, 0))  # SO_LINGER 0: RST
                if leave == "half":
                    s.shutdown(1)
                else:
                    s.close()
            wait_until(f"all are gone after {leave}", 10, lambda: self.api.active() <= base)
            for s in held:
                s.close()

    def test_left_uploads_are_noticed(self):
        """Bytes behind a full window: once they have reached the server's side, leaving is seen. (Before that
        TCP itself holds the end of the stream back behind them.)"""
        base = self.api.settled()
        with self.api.connect() as s:
            s.sendall(self.api.head("PUT", f"{self.base}/files?path=/hold", f"Content-Length: {1 << 30}"))
            s.sendall(b"x" * (WINDOW + 48 * 1024))
            wait_until("it is open", 5, lambda: self.api.active() > base)
            time.sleep(0.3)
        wait_until("it is gone", 10, lambda: self.api.active() <= base)

    def test_keepalive_frames(self):
        conn, response = self.client.open("POST", f"{self.base}/execs?stream=true", {"argv": ["hang"]})
        try:
            n = struct.unpack(">BI", response.read(5))[1]
            response.read(n)
            start = time.monotonic()
            self.assertEqual(response.read(5), struct.pack(">BI", 4, 0))
            self.assertLess(abs(time.monotonic() - start - 10.5), 2)
        finally:
            conn.close()

    def test_many_streams_at_once(self):
        results = []

        def one():
            _, _, data = self.stream(["emit", str(MIB)])
            results.append(sum(len(p) for k, p in frames(data) if k == STDOUT))
        threads = [threading.Thread(target=one) for _ in range(64)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(60)
        self.assertEqual(results, [MIB] * 64)


class Idle(unittest.TestCase):
    def test_no_work_when_nothing_happens(self):
        """Suspended streams and idle connections must not spin the loop."""
        api = Api()
        self.addCleanup(api.close)
        api.layer()
        sandbox = api.sandbox()["id"]
        held = [api.client.open("POST", f"/v1/sandboxes/{sandbox}/execs?stream=true", {"argv": ["hang"]})[0]
                for _ in range(20)] + [api.connect() for _ in range(20)]

        def ticks():
            with open(f"/proc/{api.server.pid}/stat") as f:
                fields = f.read().rsplit(")", 1)[1].split()
            return int(fields[11]) + int(fields[12])
        time.sleep(0.5)
        before = ticks()
        time.sleep(3)
        self.assertLess(ticks() - before, 30)  # of 300
        for c in held:
            c.close()


if __name__ == "__main__":
    unittest.main()
