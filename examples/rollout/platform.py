"""Starts and stops a platform of the demo's own with the programs of a build
directory, makes the base environment once, and looks afterwards whether anything
was left. Root only."""
import os
import pathlib
import socket
import subprocess
import sys
import time
from typing import List, Set

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "integration"))
import leaks  # noqa: E402  the same search that the test suite uses

SOCKET_PATH_MAX = 80  # a unix socket's path has 107 bytes; ours add "/run/spawner-NNN.sock"
BASE_PACKAGES = "python3,git,gcc,make,libc6-dev"
BASE = "base@1"


class PlatformFailed(Exception):
    """The platform did not start, or its base was not built."""


def default_state_dir(build: pathlib.Path) -> pathlib.Path:
    """Beside the build, so that `make clean` takes the cached base along."""
    state = build / "demo-state"
    if len(str(state)) > SOCKET_PATH_MAX:
        state = pathlib.Path.home() / ".cache" / "dsec" / "demo-state"
    return state


def find_program(build: pathlib.Path, name: str) -> str:
    hits = sorted(p for p in (build / "src").rglob(name) if p.is_file() and os.access(p, os.X_OK))
    if not hits:
        raise SystemExit(f"demo: there is no {name} in {build}; build first (make)")
    return str(hits[0])


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


class Platform:
    def __init__(self, build: pathlib.Path, state: pathlib.Path) -> None:
        self.state = state
        self._dsec = find_program(build, "dsec")
        self._cgroups: Set[str] = set()

    def _run(self, *words: str, quiet: bool = True) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [self._dsec, *words], text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if quiet else None, stderr=subprocess.STDOUT if quiet else None,
            env={**os.environ, "DSEC_STATE_DIR": str(self.state)})

    def up(self) -> None:
        self.state.mkdir(parents=True, exist_ok=True)
        done = self._run(
            "up", "--detach", "--state-dir", str(self.state), "--listen", f"127.0.0.1:{free_port()}")
        if done.returncode != 0:
            raise PlatformFailed(f"the platform did not start:\n{done.stdout}")

    def build_base(self) -> float:
        """Seconds it took."""
        began = time.monotonic()
        done = self._run("layer", "build", "--debian", "bookworm", "--include", BASE_PACKAGES, BASE)
        if done.returncode != 0:
            raise PlatformFailed(f"the base environment was not built:\n{done.stdout[-3000:]}")
        return time.monotonic() - began

    def note_cgroups(self) -> None:
        """To be called while sandboxes live: their cgroups are looked for afterwards."""
        self._cgroups |= leaks.cgroup_names(self.state)

    def down(self) -> List[str]:
        """Stops everything; what is left of this platform, one line each."""
        self.note_cgroups()
        done = self._run("down", "--state-dir", str(self.state))
        if done.returncode != 0:
            return [f"dsec down failed: {done.stdout}"]
        return leaks.found(self.state, self._cgroups)
