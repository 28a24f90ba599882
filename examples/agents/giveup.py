"""The agent that does not solve its task: it looks, runs the tests, writes a note
and stops. Its reward must be 0, whatever the note claims."""
from rollout.tools import Tools


async def work(tools: Tools) -> str:
    await tools.run("ls -la")
    await tools.run(f"cat -- {tools.task.look_at[0]}")
    failed = await tools.run(tools.task.visible)
    await tools.write("/work/repo/NOTES.md", f"All tests pass now (exit code {failed.exit_code}).\n")
    await tools.run("git add -A && git commit -qm 'All tests pass'")
    return "gave up"
