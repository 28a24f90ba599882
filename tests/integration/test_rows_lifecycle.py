"""Rows of "Timeouts and lifecycle" of the public reports, and 98, 99, 104. ROWS.md says where the others are shown."""
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
import unittest

import leaks
from client import Client
from harness import EVENT, ROOT, ApiError, PlatformTest, wait_until
from rows_help import in_threads

SLACK_S = 0.05  # end_at travels as a number with fractions


class Rows(PlatformTest):
    def ttl(self, sb, **fields):
        return self.client.call("POST", f"/v1/sandboxes/{sb}/ttl", fields)

    def stopped(self, sb, timeout_s=10):
        return wait_until(f"{sb} stopped", timeout_s, lambda: (g := self.client.get(sb))["state"] == "stopped" and g)

    def test_row_37_using_it_never_shortens_its_life(self):
        sb = self.sandbox(ttl_seconds=500)
        end = self.client.get(sb)["end_at"]
        ex = self.client.start(sb, "sleep 7370", timeout_seconds=30)
        other = Client(self.client.host, self.client.port, self.client.key)  # someone else connects
        other.read_output(sb, other.run(sb, "echo x")["id"])
        self.assertEqual(next(other.output(sb, ex["id"]))[0], EVENT)
        other.read_file(sb, "/etc/hostname")
        other.list()
        self.assertAlmostEqual(other.get(sb)["end_at"], end, delta=SLACK_S)
        # An explicit call may, both ways, and is exact.
        for seconds in (900, 100):
            now = time.time()
            self.assertAlmostEqual(self.ttl(sb, ttl_seconds=seconds)["end_at"], now + seconds, delta=2)
            self.assertAlmostEqual(self.client.get(sb)["end_at"], now + seconds, delta=2)

    def test_row_38_what_a_call_does_not_name_stays(self):
        fields = {"ttl_seconds": 500, "idle_ttl_seconds": 300, "labels": {"a": "b"}, "env": {"X": "y"}, "cwd": "/tmp",
                  "user": "user", "hostname": "h38", "no_new_privileges": True}
        sb = self.sandbox(**fields)
        first = self.client.get(sb)
        got = self.ttl(sb, ttl_seconds=600)
        self.assertEqual(got["idle_ttl_seconds"], 300)
        got = self.ttl(sb, idle_ttl_seconds=200)
        self.assertAlmostEqual(got["end_at"], first["created_at"] + 600, delta=3)
        self.assertEqual(got["idle_ttl_seconds"], 200)
        self.client.run(sb, "true", env={"X": "other"}, cwd="/", user="root")
        self.platform.kill9("edge")  # nor does a restart bring defaults back
        self.platform.wait_ready()
        got = self.client.get(sb)
        changed = {"ttl_seconds": None, "idle_ttl_seconds": 200}
        for name in fields:
            if name != "ttl_seconds":
                self.assertEqual(got[name], changed.get(name, fields[name]), name)
        self.assertAlmostEqual(got["end_at"], first["created_at"] + 600, delta=3)
        self.assertEqual(self.client.run(sb, "echo $X; pwd; id -un")["stdout"].split(), [b"y", b"/tmp", b"user"])

    def test_row_39_the_two_kinds_of_time_do_not_meet(self):
        """A command's timeout ends a command, the ttl a sandbox; both ends are in the answers."""
        sb = self.sandbox(ttl_seconds=400)
        before = self.client.get(sb)
        done = self.client.run(sb, "sleep 60", timeout_seconds=0.5)
        after = self.client.get(sb)
        self.assertTrue(done["timed_out"])
        self.assertEqual((after["state"], after["execs_running"]), ("running", 0))
        self.assertAlmostEqual(after["end_at"], before["created_at"] + 400, delta=2)
        for call in (self.client.start, lambda *a, **k: self.client.create(**k)):
            name = "ttl_seconds" if call == self.client.start else "timeout_seconds"  # each only where it belongs
            self.assertApiError("unknown_field", call, sb, ["true"], **{name: 5})
        short = self.sandbox(ttl_seconds=2)
        ex = self.client.start(short, "sleep 60", timeout_seconds=50)
        self.stopped(short)
        done = self.client.exec(short, ex["id"])
        self.assertEqual((done["timed_out"], done["killed_by"]), (False, "sandbox"))

    def test_row_41_a_create_whose_caller_leaves_or_deletes_is_not_orphaned(self):
        """Whatever is alive was asked for and has an end; no way to ask for none."""
        for bad in (0, -1, 1e9, None):
            self.assertApiError("bad_field", self.client.create, ttl_seconds=bad)
        before = {s["id"] for s in self.client.list()}
        body = json.dumps({"environment": "busybox@1", "labels": {"row": "41"}}).encode()
        head = (f"POST /v1/sandboxes HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self.client.key}\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n").encode()
        answered, left = {self.sandbox()}, 0  # those whose callers stay are not taken with them
        for pause in (0, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.008, 0.012, 0.02, 0.05) * 2:  # leave at every stage
            with socket.create_connection((self.client.host, self.client.port), 30) as s:
                s.sendall(head + body)
                time.sleep(pause)
                s.shutdown(socket.SHUT_WR)  # counts as gone; what was answered before can still be read
                data = b""
                while more := s.recv(65536):
                    data += more
            if found := re.search(rb'"id": ?"(sb-[^"]+)"', data):
                answered.add(found[1].decode())
            else:
                left += 1
        self.assertGreater(left, 0, "all were answered before their callers left: nothing was tested")
        def live():
            return {s["id"] for s in self.client.list()} - before
        try:
            wait_until("only what was answered", 15, lambda: live() == answered)
        except TimeoutError:
            self.fail(f"orphans: {live() - answered}; answered, but gone: {answered - live()}")
        tried = [s["id"] for s in self.client.list("?include_stopped=true&label=row%3D41")]
        self.assertGreaterEqual(len(tried) + 1, len(answered))
        self.assertTrue(all(s["end_at"] for s in self.client.list()))
        for sb in answered:
            self._remove(sb)

    def test_row_42_processes_without_an_owner_are_removed(self):
        """The edge dies between two of its steps: a restart holds the kernel against its journal."""
        keep, gone = self.sandbox(), self.client.create()["id"]
        self.client.start(keep, "sleep 7420")
        self.client.start(gone, "sleep 7421")

        def sleeping(n):
            return sum(leaks.cmdline(p) == ["sleep", str(n)] for p in leaks.all_pids())
        wait_until("both", 5, lambda: (sleeping(7420), sleeping(7421)) == (1, 1))
        try:
            self.client.call("DELETE", f"/v1/sandboxes/{gone}?wait=false")
        finally:
            self.platform.kill9("edge")
        began = time.monotonic()
        self.platform.wait_ready()
        self.stopped(gone)
        wait_until("the orphan to be gone", 5, lambda: sleeping(7421) == 0)
        self.assertEqual((sleeping(7420), self.client.get(keep)["state"]), (1, "running"))
        self.assertEqual(self.client.run(self.sandbox(), ["true"])["exit_code"], 0)  # new ones at once
        self.assertLess(time.monotonic() - began, 15)

    def test_row_44_a_live_background_job_is_not_idle(self):
        """Work without a caller: CPU counts. The same sandbox without work goes."""
        busy, quiet = self.sandbox(idle_ttl_seconds=2), self.sandbox(idle_ttl_seconds=2)
        self.client.run(busy, "(timeout 5 sh -c 'while :; do :; done' >/dev/null 2>&1 &)")
        self.client.run(quiet, "true")
        gone = self.stopped(quiet, 8)
        self.assertEqual(gone["reason"], "idle")
        self.assertEqual(self.client.get(busy)["state"], "running")
        self.assertEqual(self.stopped(busy, 12)["reason"], "idle")

    def test_row_45_defaults_are_stated_and_the_end_says_why(self):
        made = self.client.create()
        self.addCleanup(self._remove, made["id"])
        stated = {k: made[k] for k in ("cpu", "memory_mb", "disk_mb", "pids", "idle_ttl_seconds", "backend", "user",
                                       "no_new_privileges")}
        self.assertEqual(stated, {"cpu": 1.0, "memory_mb": 512, "disk_mb": 1024, "pids": 256, "idle_ttl_seconds": 0,
                                  "backend": "container", "user": "root", "no_new_privileges": False})
        self.assertAlmostEqual(made["end_at"] - made["created_at"], 3600, delta=2)
        for fields, reason in (({"ttl_seconds": 1}, "ttl"), ({"idle_ttl_seconds": 1}, "idle")):
            gone = self.stopped(self.sandbox(**fields))
            self.assertEqual(gone["reason"], reason)
            self.assertRegex(gone["message"], r"\w+ \w+")
            self.assertGreaterEqual(gone["stopped_at"], gone["running_at"])
        asked = self.sandbox()
        self.assertEqual(self.client.delete(asked)["reason"], "requested")

    def test_row_48_a_create_ends_in_ready_or_failed(self):
        """Causes that show late: each is a typed error within its deadline, and nothing stays in between."""
        for code, fields in (("environment_not_found", {"environment": "none@1"}), ("bad_field", {"memory_mb": 16000000}),
                             ("unsupported", {"network_rules": {"npm": True}})):
            began = time.monotonic()
            error = self.assertApiError(code, self.client.create, **fields)
            self.assertLess(time.monotonic() - began, 5)
            self.assertIn(error.fault, ("caller", "platform"))
            self.assertGreater(len(error.message), 10)
        # The helper that makes them is stopped for a while: nobody is answered, then everybody is.
        mounter, = self.platform.pids("mounter")
        resume = threading.Timer(1.5, os.kill, (mounter, signal.SIGCONT))
        os.kill(mounter, signal.SIGSTOP)
        resume.start()
        began = time.monotonic()
        try:
            made = in_threads([self.try_create] * 80)  # more than stand ready
        finally:
            resume.join()
        self.assertGreater(time.monotonic() - began, 1, "the helper was not needed: nothing was tested")
        self.assertTrue(any(made))
        self.assertEqual({s["id"] for s in self.client.list() if s["state"] != "running"}, set())
        self.assertEqual({s["id"] for s in self.client.list("?label=row%3D48")}, set(filter(None, made)))

    def try_create(self):
        try:
            return self.sandbox(labels={"row": "48"}, memory_mb=32)
        except ApiError as e:
            self.assertTrue(e.retry, e)


class Access(PlatformTest):
    def test_row_98_every_path_asks_for_the_key(self):
        """Of a live sandbox, over the paths the OpenAPI file lists; and nothing of the host can be mounted."""
        sb = self.sandbox()
        ex = self.client.run(sb, "echo mine")
        spec = (ROOT / "api" / "openapi.yaml").read_text()
        routes, path = [], None
        for line in spec.splitlines():
            if m := re.match(r"^  (/\S*):$", line):
                path = m[1]
            elif path and (m := re.match(r"^    (get|put|post|delete):$", line)):
                routes.append((m[1].upper(), path))
            elif re.match(r"^\S", line) and line != "paths:":
                path = None
        self.assertGreater(len(routes), 20)
        for key in (None, "wrong"):
            other = Client(self.client.host, self.client.port, key)
            for method, path in routes:
                if path in ("/healthz", "/readyz"):
                    continue
                real = path.replace("{id}", sb).replace("{sandbox}", sb).replace("{eid}", ex["id"]).replace("{exec}", ex["id"])
                status, _, body = other.raw(method, re.sub(r"\{\w+\}", "busybox@1", real), b"" if method != "GET" else None)
                self.assertEqual(status, 401, f"{method} {path}")
                self.assertNotIn(b"mine", body)
        self.assertEqual(self.client.get(sb)["state"], "running")
        self.assertEqual(self.client.exec(sb, ex["id"])["exit_code"], 0)  # with the key the same ids answer
        for field in ("mounts", "volumes", "binds", "privileged", "devices"):
            self.assertApiError("unknown_field", self.client.create, **{field: ["/:/host"]})
        # Ids of others cannot be told from ids of nobody: the same error, and no id can be guessed from one's own.
        near = sb[:-1] + ("a" if sb[-1] != "a" else "b")
        self.assertEqual(self.assertApiError("sandbox_not_found", self.client.get, near).status, 404)

    def test_row_99_the_guest_cannot_reach_the_control_calls(self):
        """Neither by address nor by socket nor by file; the host itself can, so the port is right."""
        sb = self.sandbox()
        port = self.client.port
        with socket.create_connection(("127.0.0.1", port), 5):
            pass
        hosts = {"127.0.0.1", "localhost", "0.0.0.0", socket.gethostname(), "169.254.169.254"}
        out = subprocess.run(["hostname", "-I"], capture_output=True, text=True, check=False).stdout
        for host in sorted(hosts | set(out.split())):
            done = self.client.run(sb, ["timeout", "3", "nc", "-w", "2", host, str(port)], timeout_seconds=10)
            self.assertNotEqual((done["exit_code"], done["signal"]), (0, None), host)
            self.assertEqual(done["stdout"], b"")
        # nc does connect where something listens.
        done = self.client.run(sb, "(echo hi | nc -l -p 99 >/dev/null &) ; sleep 0.3; nc -w 2 127.0.0.1 99 </dev/null",
                               timeout_seconds=10)
        self.assertEqual(done["stdout"], b"hi\n", done["stderr"])
        done = self.client.run(sb, "cat /proc/net/unix | tail -n +2; find / -xdev -type s; env; ls -l /proc/self/fd")
        self.assertNotIn(b"dsec", done["stdout"].lower())
        self.assertNotIn(b"socket:", done["stdout"])
        self.assertNotIn(self.client.key.encode(), done["stdout"])

    def test_row_104_lists_by_labels(self):
        """Given at create, all must match; a deletion by labels takes those and no other."""
        one = self.sandbox(labels={"run": "r1", "kind": "a=b,c"})
        two = self.sandbox(labels={"run": "r1", "kind": "x"})
        three = self.sandbox(labels={"run": "r2"})

        def found(query):
            return {s["id"] for s in self.client.list(query)}
        self.assertEqual(found("?label=run%3Dr1"), {one, two})
        self.assertEqual(found("?label=run%3Dr1&label=kind%3Da%3Db%2Cc"), {one})
        self.assertEqual(found("?label=run%3Dr1&label=run%3Dr2"), set())
        self.assertEqual(found("?label=run%3Dnone"), set())
        self.assertEqual(found("") & {one, two, three}, {one, two, three})
        self.assertEqual(self.client.get(one)["labels"], {"run": "r1", "kind": "a=b,c"})
        gone = self.client.call("DELETE", "/v1/sandboxes?label=run%3Dr1&label=kind%3Da%3Db%2Cc&wait=true")
        self.assertEqual((gone["ids"], gone["failed"]), ([one], []))
        self.assertEqual(found("?label=run%3Dr1"), {two})
        for query in ("", "?wait=true", "?label=norun"):  # nothing named: never all of them
            with self.assertRaises(ApiError):
                self.client.call("DELETE", "/v1/sandboxes" + query)
        self.assertLessEqual({two, three}, found(""))


if __name__ == "__main__":
    unittest.main()
