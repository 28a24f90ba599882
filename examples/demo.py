#!/usr/bin/env python3
"""The demo: scripted agents solve small tasks in real sandboxes and are graded.

    python3 examples/demo.py --build-dir build

Starts a platform with a state directory of its own, builds a Debian base once,
lets every agent try every task several times, all sandboxes alive and working at
once, grades each attempt in a fresh sandbox, prints rewards and latencies, and
stops everything. Exit status 0 only when every reward is what the agent deserves,
no call to the platform failed and nothing is left behind. Needs root.
"""
import argparse
import asyncio
import os
import pathlib
import secrets
import signal
import sys
import time
from typing import List

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "sdk" / "python")]

from dsec import DSecClient, DSecError, LayerNotFound  # noqa: E402

from rollout import report, tasks  # noqa: E402
from rollout.attempt import Attempts, Outcome  # noqa: E402
from rollout.platform import BASE, Platform, PlatformFailed, default_state_dir  # noqa: E402

ATTEMPTS = 4  # 8 tasks x 2 agents x 4 = 64 at once
GRADERS = 8  # at once: two cores run the hidden tests of so many without a queue of starts
PROGRESS_S = 5.0


def say(text: str) -> None:
    print(text, flush=True)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--build-dir", type=pathlib.Path, default=HERE.parent / "build")
    parser.add_argument("--state-dir", type=pathlib.Path, help="default: demo-state in the build directory")
    parser.add_argument("--attempts", type=int, default=ATTEMPTS, help="of each agent at each task (default %(default)s)")
    parser.add_argument("--task", action="append", help="only this task (may repeat)")
    return parser.parse_args()


def plan(args: argparse.Namespace) -> List[Outcome]:
    chosen = [t for t in tasks.load() if not args.task or t.name in args.task]
    if not chosen:
        raise SystemExit("demo: no such task; there are: " + ", ".join(t.name for t in tasks.load()))
    return [Outcome(task, agent, n) for n in range(args.attempts) for task in chosen for agent in report.EXPECTED]


async def ensure_base(client: DSecClient, platform: Platform) -> None:
    try:
        layer = await client.layers.get(BASE)
        say(f"base environment {BASE} is there, {layer.size_bytes >> 20} MiB")
    except LayerNotFound:
        say("building the base environment (once) ...")
        seconds = await asyncio.to_thread(platform.build_base)
        layer = await client.layers.get(BASE)
        say(f"base environment {BASE}: {layer.size_bytes >> 20} MiB, {layer.files} files, {seconds:.1f} s")


async def progress(attempts: Attempts, count: int) -> None:
    while True:
        await asyncio.sleep(PROGRESS_S)
        say(f"  {attempts.finished} of {count} attempts are graded")


async def roll_out(client: DSecClient, platform: Platform, outcomes: List[Outcome]) -> Attempts:
    label = secrets.token_hex(4)
    attempts = Attempts(client, BASE, label, len(outcomes), GRADERS)
    began = time.monotonic()
    running = [asyncio.ensure_future(attempts.run(o)) for o in outcomes]
    try:
        await attempts.gate.wait()
        alive = await client.list(labels={"demo": label}, state="running")
        say(f"{len(alive)} sandboxes are alive at once, {time.monotonic() - began:.2f} s after the first create")
        if len(alive) != len(outcomes):
            say(f"  ({len(outcomes)} were asked for)")
        platform.note_cgroups()
        attempts.start.set()
        shown = asyncio.ensure_future(progress(attempts, len(outcomes)))
        await asyncio.gather(*running)
        shown.cancel()
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    say(f"all attempts are graded, {time.monotonic() - began:.1f} s")
    return attempts


async def session(args: argparse.Namespace, platform: Platform) -> List[str]:
    outcomes = plan(args)
    async with DSecClient(state_dir=str(platform.state)) as client:
        await ensure_base(client, platform)
        attempts = await roll_out(client, platform, outcomes)
        say("\n" + report.rewards(outcomes) + "\n\n" + report.latencies(attempts.meter.seconds) + "\n")
        return report.failures(outcomes)


def main() -> int:
    args = parse()
    if os.geteuid() != 0:
        raise SystemExit("demo: sandboxes need root: sudo make demo")
    build = args.build_dir.resolve()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # stops the platform too
    began = time.monotonic()
    platform = Platform(build, (args.state_dir or default_state_dir(build)).resolve())
    failures: List[str] = []
    left: List[str] = []
    try:
        platform.up()
        try:
            say(f"the platform is up, state in {platform.state}")
            failures = asyncio.run(session(args, platform))
        finally:
            left = platform.down()
    except (DSecError, PlatformFailed) as e:
        failures = [f"the demo itself: {e}"]
    say("stopped; nothing is left" if not left else "stopped, but this is left:\n  " + "\n  ".join(left))
    for failure in failures:
        say(f"FAILED {failure}")
    say(f"demo: {'FAILED' if failures or left else 'ok'} in {time.monotonic() - began:.0f} s")
    return 1 if failures or left else 0


if __name__ == "__main__":
    sys.exit(main())
