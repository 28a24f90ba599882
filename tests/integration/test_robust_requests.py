"""Requests that two readers could take for different ones, and codings the server does not speak: each gets
a typed refusal at once and the connection ends, so nothing of it is read as a second request."""
import unittest

from api_help import ApiTest, code_of, read_answer

BODY = b"{\"environment\":\"none\"}"
CHUNKED = b"16\r\n" + BODY + b"\r\n0\r\n\r\n"


class Framing(ApiTest):
    def refused(self, headers, body):
        """400 bad_request, then the end of the connection, whatever comes behind the request."""
        with self.api.connect(10) as s:
            s.sendall(self.api.head("POST", "/v1/sandboxes", *headers) + body + self.api.head("GET", "/v1/version"))
            status, answer = read_answer(s)
            self.assertEqual((status, code_of(answer)), (400, "bad_request"), headers)
            rest = b""
            try:
                while more := s.recv(65536):
                    rest += more
            except ConnectionResetError:
                pass
            self.assertNotIn(b"HTTP/1.1", rest, headers)

    def test_two_lengths(self):
        self.refused(["Content-Length: 22", "Content-Length: 5"], BODY)
        self.refused(["Content-Length: 5", "Content-Length: 22"], BODY)

    def test_length_and_coding(self):
        self.refused(["Content-Length: 5", "Transfer-Encoding: chunked"], CHUNKED)
        self.refused(["Transfer-Encoding: chunked", "Content-Length: 5"], CHUNKED)

    def test_codings_that_are_not_spoken(self):
        self.refused(["Transfer-Encoding: gzip, chunked"], CHUNKED)
        self.refused(["Transfer-Encoding: xchunked"], BODY)
        self.refused(["Transfer-Encoding: identity", "Content-Length: 22"], BODY)
        self.refused(["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"], CHUNKED)

    def test_two_keys_or_hosts(self):
        self.refused(["Authorization: Bearer other-key-0123456789", "Content-Length: 22"], BODY)
        self.refused(["Host: y", "Content-Length: 22"], BODY)

    def test_what_is_sound_stays(self):
        for headers, body in ((["Content-Length: 22"], BODY), (["Transfer-Encoding: chunked"], CHUNKED),
                              (["Transfer-Encoding: Chunked"], CHUNKED)):
            status, answer = self.api.talk(self.api.head("POST", "/v1/sandboxes", *headers) + body)
            self.assertEqual((status, code_of(answer)), (404, "environment_not_found"), headers)


class Paths(ApiTest):
    def test_zero_bytes_and_slashes_in_names(self):
        """A path ends where it ends: not at %00, and %2f is no separator."""
        self.api.layer()
        sandbox = self.api.sandbox()["id"]
        for path in ("/v1/version%00", "/v1/version%00x", f"/v1/sandboxes/{sandbox}%00", "/v1%2fversion", "/v1%2Fversion",
                     f"/v1/sandboxes/{sandbox}%2fexecs", f"/v1/sandboxes/{sandbox}%00?wait=true"):
            self.fails(404, "not_found", "GET", path)
            self.fails(404, "not_found", "DELETE", path)
        self.client.call("GET", f"/v1/sandboxes/{sandbox}")
        self.client.call("GET", "/v1/sandboxes?label=a=%2f")
        self.client.call("GET", f"/v1/sandboxes/{sandbox.replace('-', '%2d')}")
        self.assertEqual(self.client.raw("GET", "/v1/version%00", headers={"Authorization": "Bearer no"})[0], 401)

    def test_zero_bytes_in_strings(self):
        error = self.fails(400, "bad_json", "POST", "/v1/sandboxes", b"{\"environment\": \"a\\u0000b\"}")
        self.assertIn("zero byte", error["message"])
        self.assertNotIn("JSON_ALLOW_NUL", error["message"])


if __name__ == "__main__":
    unittest.main()
