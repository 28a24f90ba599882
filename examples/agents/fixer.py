"""The agent that solves its task. It works as a model would, by tools alone: looks
around, runs the tests, edits file by file, and reruns them after every edit. What
it writes is scripted (the task's solution.patch, kept outside of the sandbox);
that it fits, compiles and passes is decided in the sandbox."""
from rollout.tools import Tools, ToolError


async def work(tools: Tools) -> str:
    await tools.run("git log --oneline && ls -la")
    for path in tools.task.look_at:
        await tools.run(f"cat -- {path}")
    await tools.run(f"grep -rn -e '{tools.task.search}' --include='*' . | head -n 20")
    before = await tools.run(tools.task.visible)
    if before.exit_code == 0:
        raise ToolError("the visible tests pass before anything was done")
    for number, patch in enumerate(tools.task.steps(), 1):
        await tools.write(f"/tmp/step-{number}.patch", patch)
        (await tools.run(f"git apply --verbose /tmp/step-{number}.patch")).check()
        after = await tools.run(tools.task.visible)
    if after.exit_code != 0:
        raise ToolError("the visible tests still fail: " + after.stdout_text[-500:] + after.stderr_text[-500:])
    (await tools.run("git add -A && git commit -qm 'Solve the task'")).check()
    return "the visible tests pass"
