"""Answers at the edges of what may be asked, on a whole platform: a retry of the last input, timeouts below a
millisecond, offsets no file has, a layer file that lost its end."""
import base64
import threading
import time
import unittest

from harness import ApiError, PlatformTest


class Results(PlatformTest):
    def post_stdin(self, sandbox, exec_id, data, query):
        return self.client.call("POST", f"/v1/sandboxes/{sandbox}/execs/{exec_id}/stdin?{query}", data)

    def test_the_last_input_may_be_given_again(self):
        """A client that lost the answer to its last piece repeats it: the same answer, not "closed"."""
        sb = self.sandbox()
        ex = self.client.start(sb, "cat; sleep 1", stdin="open")["id"]
        self.post_stdin(sb, ex, b"first ", "offset=0")
        whole = {"offset": 11, "closed": True}
        self.assertEqual(self.post_stdin(sb, ex, b"input", "offset=6&eof=true"), whole)
        self.assertEqual(self.post_stdin(sb, ex, b"input", "offset=6&eof=true"), whole)
        self.assertEqual(self.post_stdin(sb, ex, b"", "offset=11&eof=true"), whole)
        self.assertEqual(self.post_stdin(sb, ex, b"", "eof=true"), whole)
        self.assertApiError("conflict", self.post_stdin, sb, ex, b"input!", "offset=6&eof=true")
        self.assertApiError("conflict", self.post_stdin, sb, ex, b"more", "offset=20")
        self.client.wait(sb, ex)
        self.assertEqual(self.post_stdin(sb, ex, b"input", "offset=6&eof=true"), whole)
        self.assertApiError("conflict", self.post_stdin, sb, ex, b"!", "offset=11")
        self.assertEqual(self.client.read_output(sb, ex)[0], b"first input")

    def test_input_of_an_edge_that_was_killed_may_be_given_again(self):
        sb = self.sandbox()
        ex = self.client.start(sb, "cat; sleep 3", stdin="open")["id"]
        self.post_stdin(sb, ex, b"input", "offset=0&eof=true")
        self.platform.kill9("edge")
        self.platform.wait_ready()
        self.assertEqual(self.post_stdin(sb, ex, b"input", "offset=0&eof=true"), {"offset": 5, "closed": True})
        self.client.wait(sb, ex)
        self.assertEqual(self.client.read_output(sb, ex)[0], b"input")

    def give(self, sandbox, exec_id, data):
        """As a client does: on a broken connection on from the command's stdin_offset, until all is taken."""
        deadline, at = time.monotonic() + 30, 0
        while time.monotonic() < deadline:
            try:
                answer = self.post_stdin(sandbox, exec_id, data[at:], f"offset={at}&eof=true")
                self.assertEqual(answer, {"offset": len(data), "closed": True})
                return
            except (ApiError, OSError) as e:
                if isinstance(e, ApiError) and not e.retry:
                    raise
                time.sleep(0.1)
                self.platform.wait_ready()
                at = self.client.exec(sandbox, exec_id)["stdin_offset"]
        raise TimeoutError("input was not taken")

    def test_acknowledged_input_survives_the_edge(self):
        """More than a pipe holds, to a program that reads late: what the edge has alone is not acknowledged."""
        sb = self.sandbox()
        data = b"0123456789abcdef" * 9000
        ex = self.client.start(sb, "sleep 3; cat", stdin="open", timeout_seconds=20)["id"]
        given = threading.Thread(target=self.give, args=(sb, ex, data))
        given.start()
        time.sleep(0.5)
        self.platform.kill9("edge")
        self.platform.wait_ready()
        given.join(40)
        done = self.client.wait(sb, ex)
        self.assertEqual((done["exit_code"], done["stdout_bytes"], done["timed_out"]), (0, len(data), False))
        self.assertEqual(self.client.read_output(sb, ex)[0], data)

    def test_input_given_whole_survives_the_edge(self):
        sb = self.sandbox()
        data = b"0123456789abcdef" * 9000
        ex = self.client.start(sb, "sleep 2; cat", stdin_b64=base64.b64encode(data).decode())["id"]
        time.sleep(0.5)
        self.platform.kill9("edge")
        self.platform.wait_ready()
        self.client.wait(sb, ex)
        self.assertEqual(len(self.client.read_output(sb, ex)[0]), len(data))
        self.assertEqual(self.client.read_output(sb, ex)[0], data)

    def test_a_command_that_takes_no_input_takes_none(self):
        sb = self.sandbox()
        ex = self.client.start(sb, ["sleep", "5"])["id"]
        self.assertApiError("conflict", self.post_stdin, sb, ex, b"x", "offset=0")
        self.assertApiError("conflict", self.post_stdin, sb, ex, b"", "offset=0&eof=true")

    def test_input_that_the_program_did_not_take_is_not_confirmed(self):
        sb = self.sandbox()
        ex = self.client.start(sb, "exec <&-; sleep 1", stdin="open")["id"]
        self.client.wait(sb, ex)
        self.assertApiError("conflict", self.post_stdin, sb, ex, b"lost", "offset=0&eof=true")

    def test_a_tiny_timeout_is_not_none(self):
        sb = self.sandbox()
        for seconds in (0.0004, 1e-9, 1e-300):
            done = self.client.run(sb, ["sleep", "20"], timeout_seconds=seconds)
            self.assertTrue(done["timed_out"], seconds)
            self.assertLess(done["wall_seconds"], 5)

    def test_offsets_behind_every_file(self):
        sb = self.sandbox()
        self.client.write_file(sb, "/tmp/f", b"0123456789")
        self.client.write_file(sb, "/tmp/empty", b"")
        for path in ("/tmp/f", "/tmp/empty", "/proc/meminfo", "/etc/passwd"):
            for offset in (10**9, 2**62, 2**63 - 65536, 2**63 - 2, 2**63 - 1):
                for length in (0, 1, 2**63 - 1):
                    with self.subTest(path=path, offset=offset, length=length):
                        self.assertEqual(self.client.read_file(sb, path, offset=offset, length=length), b"")
        self.assertEqual(self.client.read_file(sb, "/tmp/f", offset=9, length=2**63 - 1), b"9")


if __name__ == "__main__":
    unittest.main()
