"""The tasks under examples/tasks/: what an agent gets, and what only graders see."""
import dataclasses
import json
import pathlib
from typing import List

TASKS_DIR = pathlib.Path(__file__).resolve().parents[1] / "tasks"


@dataclasses.dataclass(frozen=True)
class Task:
    name: str
    directory: pathlib.Path
    title: str
    language: str
    visible: str  # the command that runs the tests an agent may see
    look_at: List[str]  # files that the fixer reads
    search: str  # what it greps for

    @property
    def repo(self) -> pathlib.Path:
        return self.directory / "repo"

    @property
    def hidden(self) -> pathlib.Path:
        """Tests that appear only in the grading sandbox."""
        return self.directory / "hidden"

    @property
    def text(self) -> str:
        return (self.directory / "task.md").read_text()

    def steps(self) -> List[str]:
        """The solution as one patch a file, in order."""
        whole = (self.directory / "solution.patch").read_text()
        parts = whole.split("diff --git ")
        return ["diff --git " + part for part in parts[1:]]


def load() -> List[Task]:
    tasks = []
    for meta in sorted(TASKS_DIR.glob("*/task.json")):
        tasks.append(Task(name=meta.parent.name, directory=meta.parent, **json.loads(meta.read_text())))
    return tasks
