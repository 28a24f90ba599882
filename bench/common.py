"""common.py: what the benches share: a platform, a layer, peers' set-up, the report.

The platform is the one of tests/integration/harness.py (private state directory, everything undone). A
Report collects rows and prints the table, the JSON file and the `ratio` / `figure` lines with stable keys.
"""
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "integration"))
sys.path.insert(0, str(ROOT / "sdk" / "python"))
os.environ.setdefault("DSEC_BUILD", str(ROOT / "build"))

import harness  # noqa: E402

BUILD = harness.BUILD
BENCH = BUILD / "bench"


def layer_tar(extra=b""):
    """A root with the tiny payload and busybox; `extra` bytes make a distinct environment."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        def add(name, kind, mode=0o755, data=b"", link=""):
            info = tarfile.TarInfo(name)
            info.type, info.mode, info.linkname, info.size, info.mtime = kind, mode, link, len(data), 1
            tar.addfile(info, io.BytesIO(data))

        for name in ("bin", "dev", "etc", "proc", "root", "run", "sys", "tmp"):
            add(name, tarfile.DIRTYPE)
        add("bin/hello", tarfile.REGTYPE, data=(BENCH / "hello").read_bytes())
        add("bin/busybox", tarfile.REGTYPE, data=pathlib.Path(harness.BUSYBOX).read_bytes())
        for applet in ("sh", "echo", "sleep", "true", "cat"):
            add(f"bin/{applet}", tarfile.SYMTYPE, 0o777, link="busybox")
        add("etc/passwd", tarfile.REGTYPE, 0o644, b"root:x:0:0:root:/root:/bin/sh\n")
        add("etc/group", tarfile.REGTYPE, 0o644, b"root:x:0:\n")
        if extra:
            add("etc/extra", tarfile.REGTYPE, 0o644, extra)
    return out.getvalue()


def platform(*up_args):
    """A ready platform with the layer bench@1; (platform, digest)."""
    p = harness.Platform(up_args=up_args) if up_args else harness.Platform()
    try:
        p.start()
        layer = p.client.put_layer("bench@1", layer_tar(), source="bench")
    except BaseException:
        print(p.log_tail(), file=sys.stderr)
        p.destroy()
        raise
    return p, layer["digest"]


def run_json(argv, **kwargs):
    """Runs a measuring program; its last line of output as JSON."""
    r = subprocess.run([str(a) for a in argv], capture_output=True, text=True, check=False,
                       stdin=subprocess.DEVNULL, **kwargs)
    if r.returncode:
        raise RuntimeError(f"{argv[0]}: exit {r.returncode}\n{r.stderr}")
    return json.loads(r.stdout.splitlines()[-1])


def edge_load(p, digests, *args, payload=("/bin/hello",)):
    argv = [BENCH / "edge_load", "--socket", p.state / "run" / "edge-e0.sock"]
    for d in digests if isinstance(digests, list) else [digests]:
        argv += ["--digest", d]
    return run_json(argv + list(args) + ["--", *payload])


class Bundle:
    """An unpacked root and an OCI bundle for crun and runc, removed at the end."""

    def __init__(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="dsec-bench-", dir="/tmp"))
        self.root = self.dir / "rootfs"
        self.root.mkdir()
        with tarfile.open(fileobj=io.BytesIO(layer_tar())) as t:
            t.extractall(self.root)
        self.own = own_v1_cgroup()
        self.cgroup = f"{self.own.rstrip('/')}/dsec-bench-{os.getpid()}"
        self.had = {top: (pathlib.Path(top) / self.own.strip("/").split("/")[0]).exists() for top in hierarchies()}

    def config(self, runtime, payload):
        """Writes config.json from `runtime spec`: the payload, a read-only root, three limits, no terminal."""
        (self.dir / "config.json").unlink(missing_ok=True)
        subprocess.run([runtime, "spec"], cwd=self.dir, check=True)
        path = self.dir / "config.json"
        c = json.loads(path.read_text())
        c["process"].update(terminal=False, args=list(payload))
        c["root"] = {"path": "rootfs", "readonly": True}
        c["linux"]["cgroupsPath"] = self.cgroup + f"/{runtime}"
        c["linux"]["resources"] = {"memory": {"limit": 64 << 20}, "pids": {"limit": 64},
                                   "cpu": {"quota": 100000, "period": 100000}}
        path.write_text(json.dumps(c))

    def close(self):
        for top, had in self.had.items():
            base = pathlib.Path(top + self.cgroup)
            for path, _, _ in os.walk(base, topdown=False):
                _rmdir(path)
            path = base.parent
            # Parents that only exist because of the absolute cgroupsPath in this hierarchy.
            while not had and str(path) != top and len(str(path)) > len(top):
                _rmdir(path)
                path = path.parent
        shutil.rmtree(self.dir, ignore_errors=True)


def _rmdir(path):
    try:
        os.rmdir(path)
    except OSError:
        pass


def hierarchies():
    """Mount points of the cgroup v1 controllers and cgroup2."""
    tops = []
    for line in open("/proc/self/mountinfo"):
        left, _, right = line.partition(" - ")
        if right.split()[0] in ("cgroup", "cgroup2"):
            tops.append(left.split()[4])
    return tops


def own_v1_cgroup():
    """The cgroup this process is in, by the memory controller (v1) or cgroup2."""
    lines = [line.strip().split(":", 2) for line in open("/proc/self/cgroup")]
    for _, controllers, path in lines:
        if "memory" in controllers.split(","):
            return path
    return lines[-1][2]


class Report:
    def __init__(self, name):
        self.name, self.rows, self.keys = name, [], []

    def row(self, what, **values):
        self.rows.append((what, values))
        print(f"  {what}: " + ", ".join(f"{k} {v}" for k, v in values.items()), flush=True)

    def ratio(self, key, value):
        self.keys.append(("ratio", key, round(value, 3), ""))

    def figure(self, key, value, unit):
        self.keys.append(("figure", key, round(value, 3), unit))

    def end(self):
        columns = []
        for _, values in self.rows:
            columns += [k for k in values if k not in columns]
        width = max((len(w) for w, _ in self.rows), default=10)
        print("\n" + " " * width + "  " + "  ".join(f"{c:>14}" for c in columns))
        for what, values in self.rows:
            print(f"{what:<{width}}  " + "  ".join(f"{values.get(c, ''):>14}" for c in columns))
        print()
        path = BUILD / f"bench-{self.name}.json"
        path.write_text(json.dumps({"rows": [{"what": w, **v} for w, v in self.rows],
                                    "keys": [list(k) for k in self.keys]}, indent=1) + "\n")
        for kind, key, value, unit in self.keys:
            print(f"{kind} {key} {value}{' ' + unit if unit else ''}")
