"""`dsec debug bundle` holds what a bug report needs and no secret; completion of names asks the server, briefly."""
import base64
import contextlib
import io
import json
import os
import pathlib
import pty
import select
import socket
import sqlite3
import subprocess
import tarfile
import tempfile
import time

from harness import BUILD, PlatformTest, find_program

SECRETS = {  # where it is planted: what it is
    "env": "hush-env-5bb1", "label": "hush-label-77ac", "argv": "hush-argv-19fe", "argv_piece": "hush-piece-c03d",
    "exec_env": "hush-execenv-8d2e", "shell": "hush-shell-e5a0", "cwd": "hush-cwd-41c7", "key_in_env": "hush-key-90aa",
    "output": "hush-output-2b6f",
}


class CliTest(PlatformTest):
    def dsec(self, *words, program="dsec", timeout=60, **extra):
        env = {k: v for k, v in os.environ.items() if not k.startswith("DSEC_")}
        env = {**env, "DSEC_STATE_DIR": str(self.platform.state), **extra}
        return subprocess.run([find_program(program), *words], capture_output=True, timeout=timeout, env=env)


class Bundle(CliTest):
    def setUp(self):
        keep = tempfile.TemporaryDirectory(prefix="dsec-bundle-")
        self.addCleanup(keep.cleanup)
        self.dir = pathlib.Path(keep.name)

    def bundle(self, program="dsec", state=None, **extra):
        """{name in the archive: bytes}"""
        to = self.dir / f"{program}-{len(list(self.dir.iterdir()))}.tar.gz"
        done = self.dsec("debug", "bundle", "-o", str(to), *(["--state-dir", str(state)] if state else []), program=program,
                         **extra)
        self.assertEqual((done.returncode, done.stdout), (0, f"{to}\n".encode()), done.stderr)
        self.assertEqual(to.stat().st_mode & 0o777, 0o600)
        with tarfile.open(to, "r:gz") as tar:
            self.assertEqual({m.name.split("/")[0][:11] for m in tar}, {"dsec-debug-"})
            return {m.name.split("/", 1)[1]: tar.extractfile(m).read() for m in tar}

    def plant(self):
        """Secrets wherever a user can put one, and, as if a bug had written them, in a log."""
        sb = self.sandbox(labels={"team": SECRETS["label"]}, env={"TOKEN": SECRETS["env"]})
        self.client.run(sb, ["sh", "-c", f"echo {SECRETS['output']}", SECRETS["argv"], f"--pass={SECRETS['argv_piece']}"])
        self.client.call("POST", f"/v1/sandboxes/{sb}/execs?wait=true",
                         {"shell": f"true {SECRETS['shell']}", "env": {"X": SECRETS["exec_env"]}, "cwd": "/tmp"})
        done = self.dsec("exec", sb, "-w", f"/no/{SECRETS['cwd']}", "--", "true")
        self.assertEqual(done.returncode, 125)
        key = (self.platform.state / "api-key").read_text().strip()
        log = self.platform.state / "log" / "zz-planted.log"
        lines = [f"exec argv={SECRETS['argv']} {SECRETS['argv_piece']}", f"label team:{SECRETS['label']}",
                 f'env "TOKEN={SECRETS["env"]}"', f"GET / Authorization: Bearer {SECRETS['key_in_env']}", f"key {key}",
                 f"a key of another time dsk-{SECRETS['exec_env']}", "an ordinary line"]
        log.write_text("\n".join(lines) + "\n")
        self.addCleanup(log.unlink)
        return sb, [key, *SECRETS.values()]

    def leaks(self, parts, secrets):
        forms = [(s, f) for s in secrets for f in (s.encode(), base64.b64encode(s.encode()).rstrip(b"="), s.encode().hex().encode())]
        return {(name, s) for name, data in parts.items() for s, f in forms if f in data}

    def test_no_secret(self):
        sb, secrets = self.plant()
        parts = self.bundle(DSEC_API_KEY="")
        self.assertEqual(self.leaks(parts, secrets), set())
        self.assertIn(b"an ordinary line", parts["log/zz-planted.log"])
        told = {s["id"]: s for s in json.loads(parts["sandboxes.json"])}[sb]
        self.assertEqual((told["state"], told["label_names"], told["env_names"]), ("running", ["team"], ["TOKEN"]))
        self.assertEqual([x["exit_code"] for x in told["execs"] if x["state"] == "finished"], [0, 0])
        self.assertNotIn("argv", told["execs"][0])
        # a wrong key of the environment is as secret as a right one
        parts = self.bundle(DSEC_API_KEY=SECRETS["key_in_env"], DSEC_URL=f"http://127.0.0.1:{self.platform.port}")
        values = {SECRETS[k] for k in ("argv", "argv_piece", "label", "env")}  # that the server did not tell, see README
        self.assertEqual({(n, s) for n, s in self.leaks(parts, secrets) if (n, s in values) != ("log/zz-planted.log", True)},
                         set())
        self.assertIn(b"searched for keys only", parts["README"])

    def test_the_test_can_fail(self):
        _, secrets = self.plant()
        found = self.leaks(self.bundle(program="dsec_unredacted"), secrets)
        self.assertGreaterEqual({s for _, s in found},
                                {secrets[0], *(SECRETS[k] for k in ("env", "label", "argv", "argv_piece", "key_in_env"))})
        self.assertEqual({n for n, _ in found}, {"sandboxes.json", "log/zz-planted.log"})

    def test_what_is_in_it(self):
        self.sandbox()
        parts = self.bundle()
        for name in ("README", "doctor.json", "versions.json", "limits.json", "edges.json", "metrics.txt", "sandboxes.json",
                     "store.json", "kernel.txt", "cgroups.txt", "mounts.txt", "log/edge-e0.log", "log/apiserver.log"):
            self.assertTrue(parts.get(name), name)
        for name in parts:
            if name.endswith(".json"):
                json.loads(parts[name])
        self.assertIn(b"\nnothing\n", parts["README"])
        self.assertIn("works", json.loads(parts["doctor.json"]))
        self.assertGreater(json.loads(parts["store.json"])["schema_version"], 0)
        self.assertEqual(json.loads(parts["store.json"])["schema_version"], self.schema_version())
        self.assertIn(b"dsec_", parts["metrics.txt"])
        self.assertIn(b"/dsec-", parts["cgroups.txt"])
        self.assertIn(str(self.platform.state).encode(), parts["mounts.txt"] + parts["doctor.json"] + parts["kernel.txt"])

    def schema_version(self):
        with contextlib.closing(sqlite3.connect(f"file:{self.platform.state}/store.db?mode=ro", uri=True)) as db:
            return db.execute("PRAGMA user_version").fetchone()[0]

    def test_logs_are_bounded(self):
        log = self.platform.state / "log" / "zz-long.log"
        log.write_text("".join(f"line {i:07}\n" for i in range(100000)))
        self.addCleanup(log.unlink)
        link = self.platform.state / "log" / "zz-link.log"
        link.symlink_to("/etc/shadow")
        self.addCleanup(link.unlink)
        parts = self.bundle()
        tail = parts["log/zz-long.log"]
        self.assertLessEqual(len(tail), 256 << 10)
        self.assertTrue(tail.startswith(b"line ") and tail.endswith(b"line 0099999\n"), tail[:20])
        self.assertNotIn("log/zz-link.log", parts)

    def test_without_a_server(self):
        parts = self.bundle(state=self.dir)
        self.assertIn(b"no server runs", parts["README"])
        self.assertTrue(parts["kernel.txt"])
        self.assertNotIn("sandboxes.json", parts)

    def test_a_file_that_exists_is_kept(self):
        (self.dir / "x").write_text("mine")
        done = self.dsec("debug", "bundle", "-o", str(self.dir / "x"))
        self.assertEqual((done.returncode, (self.dir / "x").read_text()), (1, "mine"))
        self.assertEqual(self.dsec("debug", "bundle", "-o", "/dev/full/x").returncode, 1)
        self.assertEqual(self.dsec("debug", "bundle", "extra").returncode, 2)

    def test_to_standard_output(self):
        done = self.dsec("debug", "bundle", "-o", "-")
        with tarfile.open(fileobj=io.BytesIO(done.stdout), mode="r:gz") as tar:
            self.assertIn("README", [m.name.split("/")[1] for m in tar])


class Completion(CliTest):
    def complete(self, line, **env):
        script = '. "$1"; COMP_LINE=$2 COMP_POINT=${#2}; _dsec "$3"; printf "%s\\n" "${COMPREPLY[@]}"'
        done = subprocess.run(["bash", "--norc", "-c", script, "bash", str(BUILD / "tools/dsec"), line, find_program("dsec")],
                              capture_output=True, text=True, timeout=20, check=True,
                              env={"PATH": os.environ["PATH"], "DSEC_STATE_DIR": str(self.platform.state), **env})
        self.assertEqual(done.stderr, "")
        return done.stdout.split()

    def test_ids_and_layers(self):
        sb = self.sandbox()
        for line in ("dsec exec ", "dsec rm sb", f"dsec inspect {sb[:8]}", "dsec logs -f ", f"dsec rm {sb} {sb[:4]}"):
            self.assertIn(sb, self.complete(line), line)
        self.assertIn(f"{sb}:", self.complete("dsec cp "))
        self.assertIn("busybox@1", self.complete("dsec run --env bus"))
        self.assertEqual(self.complete("dsec layer rm busybox@"), ["1"])  # bash cuts words at @
        self.assertIn(sb, self.complete(f"dsec rm --state-dir {self.platform.state} sb", DSEC_STATE_DIR="/nonexistent"))

    def test_a_server_that_does_not_answer(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            s.listen()
            began = time.monotonic()
            done = self.dsec("completion", "sandboxes", DSEC_URL=f"http://127.0.0.1:{s.getsockname()[1]}", DSEC_API_KEY="x")
            took = time.monotonic() - began
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"", b""))
        self.assertGreater(took, 0.2)
        self.assertLess(took, 2)  # 0.3 and what a busy machine adds

    def test_at_a_terminal(self):
        """The whole way: bash, readline, the script, the server."""
        pid, fd = pty.fork()
        if not pid:
            env = {"PATH": f"{BUILD}/src/cli:{os.environ['PATH']}", "DSEC_STATE_DIR": str(self.platform.state), "PS1": "$ ",
                   "TERM": "dumb", "INPUTRC": "/dev/null"}
            os.execve("/bin/bash", ["bash", "--norc", "--noprofile", "-i"], env)
        self.addCleanup(os.waitpid, pid, 0)
        self.addCleanup(os.close, fd)
        self.said = b""

        def expect(text):
            deadline = time.monotonic() + 20
            while text not in self.said:
                self.assertTrue(select.select([fd], [], [], max(0, deadline - time.monotonic()))[0], self.said)
                self.said += os.read(fd, 4096)
            self.said = self.said.partition(text)[2]

        os.write(fd, f". {BUILD}/tools/dsec; echo rea''dy\n".encode())
        expect(b"ready\r\n")
        os.write(fd, b"dsec lay\tinsp\tbusyb\t")
        expect(b"dsec layer inspect busybox@1 ")
        os.write(fd, b"\n")
        expect(b'"digest"')
        os.write(fd, b"exit\n")


if __name__ == "__main__":
    import unittest
    unittest.main()
