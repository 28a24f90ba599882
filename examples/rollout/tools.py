"""The tools of an agent: a shell and a file editor in its sandbox, every call timed.

`Meter` gathers durations by kind for the report; one for all attempts, one loop.
"""
import time
from typing import Awaitable, Dict, List, TypeVar

from dsec import ExecResult, Sandbox

from .tasks import Task

REPO = "/work/repo"
TOOL_TIMEOUT_S = 120.0
T = TypeVar("T")


class ToolError(Exception):
    """The agent's own failure: the attempt counts, with reward 0."""


class Meter:
    def __init__(self) -> None:
        self.seconds: Dict[str, List[float]] = {}

    async def timed(self, kind: str, call: Awaitable[T]) -> T:
        began = time.monotonic()
        result = await call
        self.add(kind, time.monotonic() - began)
        return result

    def add(self, kind: str, seconds: float) -> None:
        self.seconds.setdefault(kind, []).append(seconds)


class Tools:
    def __init__(self, sandbox: Sandbox, task: Task, meter: Meter) -> None:
        self.sandbox = sandbox
        self.task = task
        self._meter = meter
        self.calls = 0

    async def run(self, command: str) -> ExecResult:
        """A shell command in the repository."""
        self.calls += 1
        began = time.monotonic()
        result = await self.sandbox.run_shell(command, cwd=REPO, timeout=TOOL_TIMEOUT_S)
        seconds = time.monotonic() - began
        self._meter.add("exec, agents' commands", seconds)
        self._meter.add("  beyond the command's own", max(0.0, seconds - result.wall_seconds))
        if result.timed_out:
            raise ToolError(f"{command!r} ran longer than {TOOL_TIMEOUT_S:g} s")
        return result

    async def write(self, path: str, text: str) -> None:
        self.calls += 1
        await self._meter.timed("file write", self.sandbox.files.write(path, text))
