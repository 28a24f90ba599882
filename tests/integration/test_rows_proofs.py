"""Row 105 of the public reports: a check that cannot fail is none. Tests of test_rows_*.py run once more against a
server that is broken in the way their row tells of, played by a client that spoils requests or answers; each must fail."""
import base64
import copy
import unittest

import test_rows_exec
import test_rows_files
import test_rows_lifecycle
from client import EVENT, STDOUT, Client
from harness import PlatformTest


class Broken(Client):
    """`spoil(method, path, body, reply)` gives the reply that is seen; `before` the body that is sent."""

    def __init__(self, good, spoil=None, before=None, frames=None):
        super().__init__(good.host, good.port, good.key, 15)
        self.spoil, self.before, self.frames = spoil, before, frames

    def open(self, method, path, body=None, headers=None, timeout=None):
        if self.before:
            method, path, body = self.before(method, path, copy.deepcopy(body))
        return super().open(method, path, body, headers, timeout)

    def call(self, method, path, body=None, headers=None, timeout=None):
        reply = super().call(method, path, body, headers, timeout)
        return self.spoil(method, path, body, reply) if self.spoil else reply

    def read_file(self, sandbox, path, **query):
        data = super().read_file(sandbox, path, **query)
        return self.spoil("GET", path, None, data) if self.spoil else data

    def exec_stream(self, *args, **fields):
        for frame in super().exec_stream(*args, **fields):
            yield self.frames(*frame) if self.frames else frame

    def output(self, *args, **fields):
        for frame in super().output(*args, **fields):
            yield self.frames(*frame) if self.frames else frame


def changed(**fields):
    """Answers that have the field get this value, or the value made of the old one."""
    def spoil(method, path, body, reply):
        if isinstance(reply, dict):
            for k, v in fields.items():
                if k in reply:
                    reply[k] = v(reply) if callable(v) else v
        return reply
    return spoil


def without(*names):
    """The server ignores these fields of a body."""
    def before(method, path, body):
        if isinstance(body, dict):
            body = {k: v for k, v in body.items() if k not in names}
        return method, path, body
    return before


def as_text(method, path, body, reply):
    if isinstance(reply, bytes):
        return reply.decode(errors="replace").encode()
    return reply


def flattened(reply):
    return 137 if reply["signal"] == "KILL" else reply["exit_code"]


def text_frames(kind, payload):
    return kind, payload.decode(errors="replace").encode() if kind == STDOUT else payload


def no_gap_frames(kind, payload):
    return (kind, {"event": "other"}) if kind == EVENT and payload["event"] == "gap" else (kind, payload)


def discarded_tail(method, path, body):
    cut = isinstance(body, bytes) and method == "PUT" and len(body) > 18 * 1024
    return method, path, body[:18 * 1024] if cut else body


def labels_ignored(method, path, body):
    return method, path.split("?")[0] if path.startswith("/v1/sandboxes?label") else path, body


def renewed_by_looking(client):
    def before(method, path, body):
        if method == "GET" and path.count("/") == 3 and path.startswith("/v1/sandboxes/"):
            Client(client.host, client.port, client.key).call("POST", path + "/ttl", {"ttl_seconds": 60})
        return method, path, body
    return before


def named_ttl_resets(method, path, body):
    if path.endswith("/ttl") and "idle_ttl_seconds" not in body:
        body = {**body, "idle_ttl_seconds": 0}
    return method, path, body


class Proofs(PlatformTest):
    def must_fail(self, suite, test, **broken):
        """The test passes a server as it is (its own file shows that) and fails this one."""
        good = self.client

        class Case(suite):
            platform = type(self).platform
            client = Broken(good, **broken)

            def assertLess(self, a, b, msg=None):  # bounds of time are the loaded machine's, not the proof's
                pass

        if issubclass(suite, test_rows_exec.Rows):
            Case.sb = self.sandbox()
        result = unittest.TestResult()
        case = Case(test)
        case.run(result)
        self.assertEqual(result.skipped, [])
        failures = [text for _, text in result.failures + result.errors]
        self.assertEqual(len(failures), 1, f"{test} does not notice")
        self.assertRegex(failures[0], "AssertionError|TimeoutError", failures[0])  # noticed, not broken itself

    def test_row_105_exec_checks_can_fail(self):
        rows = test_rows_exec.Rows
        empty = base64.b64encode(b"").decode()
        for test, broken in (
            ("test_row_02_background_child_holds_neither_result_nor_timeout", {"spoil": changed(background_alive=False)}),
            ("test_row_05_bytes_split_anywhere_and_invalid", {"frames": text_frames}),
            ("test_row_06_timeout_keeps_both_streams", {"spoil": changed(stdout_b64=empty)}),
            ("test_row_06_timeout_keeps_both_streams", {"spoil": changed(stderr_b64=lambda r: r["stdout_b64"])}),
            ("test_row_07_cut_output_says_so", {"spoil": changed(stdout_truncated=False)}),
            ("test_row_07_cut_output_says_so", {"frames": no_gap_frames}),
            ("test_row_17_the_asked_timeout_is_the_one_enforced", {"spoil": changed(wall_seconds=lambda r: r["wall_seconds"] / 2)}),
            ("test_row_25_causes_of_death_are_told_apart", {"spoil": changed(exit_code=flattened)}),
            ("test_row_25_causes_of_death_are_told_apart", {"spoil": changed(oom_killed=False)}),
        ):
            with self.subTest(test):
                self.must_fail(rows, test, **broken)

    def test_row_105_a_tree_that_outlives_its_timeout_is_noticed(self):
        """A process with the name looked for, of an exec without a timeout: as one that was missed."""
        case = self

        class Outlived(test_rows_exec.Rows):
            def setUp(self):
                case.client.start(self.sb, "sleep 7100")
        self.must_fail(Outlived, "test_row_01_timeout_kills_the_whole_tree")

    def test_row_105_file_checks_can_fail(self):
        rows = test_rows_files.Rows
        for test, broken in (
            ("test_row_26_an_answered_write_is_there", {"before": discarded_tail}),
            ("test_row_27_many_files_with_odd_names", {"spoil": lambda m, p, b, r: b"0" if isinstance(r, bytes) else r}),
            ("test_row_30_all_byte_values_everywhere", {"spoil": as_text}),
            ("test_row_32_a_full_disk_is_its_owners_alone", {"before": without("disk_mb")}),
        ):
            with self.subTest(test):
                self.must_fail(rows, test, **broken)

    def test_row_105_lifecycle_checks_can_fail(self):
        rows, access = test_rows_lifecycle.Rows, test_rows_lifecycle.Access
        for suite, test, broken in (
            (rows, "test_row_37_using_it_never_shortens_its_life", {"before": renewed_by_looking(self.client)}),
            (rows, "test_row_38_what_a_call_does_not_name_stays", {"before": named_ttl_resets}),
            (rows, "test_row_45_defaults_are_stated_and_the_end_says_why", {"spoil": changed(reason="")}),
            (access, "test_row_104_lists_by_labels", {"before": labels_ignored}),
            (access, "test_row_99_the_guest_cannot_reach_the_control_calls",
             {"spoil": changed(stdout_b64=base64.b64encode(b"HTTP/1.1 401").decode())}),
        ):
            with self.subTest(test):
                self.must_fail(suite, test, **broken)


if __name__ == "__main__":
    unittest.main()
