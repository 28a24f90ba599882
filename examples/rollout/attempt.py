"""One attempt: a sandbox for the agent, then a fresh one for the grader.

The grader's sandbox gets a copy of the repository's tree, streamed from the agent's
sandbox, and only then the hidden tests. Nothing else of the agent's sandbox comes
along: no process, no tool it may have replaced, no cache.
"""
import asyncio
import dataclasses
from typing import Optional

from dsec import CommandFailed, DSecClient, DSecContainerRunArgs, DSecError, Sandbox

from agents import AGENTS

from .tasks import Task
from .tools import REPO, Meter, ToolError, Tools

CREATE_TIMEOUT_S = 120.0
GRADE_TIMEOUT_S = 120.0
GRADE_DIR = "/grade"


@dataclasses.dataclass
class Outcome:
    task: Task
    agent: str
    attempt: int
    reward: Optional[float] = None  # None: the platform failed, there is none
    said: str = ""
    tool_calls: int = 0
    grader_output: str = ""
    error: str = ""


class Gate:
    """Opens when `count` have arrived: all sandboxes are alive before any works.
    One that fails on its way must say so, else the others wait for ever."""

    def __init__(self, count: int) -> None:
        self._missing = count
        self._open = asyncio.Event()

    def arrive(self) -> None:
        self._missing -= 1
        if self._missing <= 0:
            self._open.set()

    async def wait(self) -> None:
        await self._open.wait()


class Attempts:
    """What all attempts of a run share."""

    def __init__(self, client: DSecClient, environment: str, run_label: str, count: int, graders: int) -> None:
        self.client = client
        self.meter = Meter()
        self.gate = Gate(count)
        self.start = asyncio.Event()  # set by the demo once it has counted the living
        self.finished = 0
        self._environment = environment
        self._run_label = run_label
        self._graders = asyncio.Semaphore(graders)

    def _args(self, role: str, task: Task) -> DSecContainerRunArgs:
        return DSecContainerRunArgs(
            container_image=self._environment,
            memory_limit_mb=512,
            cpu_cores_limit=1,
            ttl_running_stop=300,
            ttl_seconds=900,
            network_rules={"pypi": False},
            init_user="root",
            labels={"demo": self._run_label, "role": role, "task": task.name},
        )

    async def _create(self, role: str, task: Task) -> Sandbox:
        call = self.client.run_container(self._args(role, task), timeout=CREATE_TIMEOUT_S)
        return await self.meter.timed("create", call)

    async def run(self, outcome: Outcome) -> Outcome:
        arrived = False
        try:
            async with await self._create("agent", outcome.task) as sandbox:
                await self.meter.timed("exec, true", sandbox.exec(["true"]))
                self.gate.arrive()
                arrived = True
                await self.start.wait()
                await self._work(sandbox, outcome)
                async with self._graders:
                    await self._grade(sandbox, outcome)
        except DSecError as e:
            outcome.error = f"{type(e).__name__}: {e}"
        finally:
            self.finished += 1
            if not arrived:
                self.gate.arrive()
        return outcome

    async def _work(self, sandbox: Sandbox, outcome: Outcome) -> None:
        await self.meter.timed("upload of the repository", sandbox.files.upload_dir(outcome.task.repo, REPO))
        await sandbox.files.write("/work/task.md", outcome.task.text)
        tools = Tools(sandbox, outcome.task, self.meter)
        (await tools.run(
            "git init -q -b main . && git config user.name agent && git config user.email agent@localhost"
            " && git add -A && git commit -qm 'The state of things'"
        )).check()
        try:
            outcome.said = await AGENTS[outcome.agent](tools)
        except (ToolError, CommandFailed) as e:
            outcome.said = f"failed: {e}"
        outcome.tool_calls = tools.calls

    async def _grade(self, agents: Sandbox, outcome: Outcome) -> None:
        async with await self._create("grader", outcome.task) as fresh:
            copy = f"{GRADE_DIR}/repo"
            await self.meter.timed(
                "copy to the grader", fresh.files.write_archive(copy, agents.files.read_archive(REPO)))
            await fresh.files.upload_dir(outcome.task.hidden, f"{GRADE_DIR}/hidden")
            result = await fresh.exec(
                ["sh", f"{GRADE_DIR}/hidden/grade.sh", copy], cwd="/", timeout=GRADE_TIMEOUT_S)
            outcome.reward = 1.0 if result.exit_code == 0 else 0.0
            outcome.grader_output = (result.stdout_text + result.stderr_text)[-1000:]
