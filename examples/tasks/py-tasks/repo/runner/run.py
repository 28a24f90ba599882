"""Runs tasks in order."""
import subprocess

from .graph import order


def shell(command):
    return subprocess.run(command, shell=True).returncode


def run(tasks, execute=shell):
    """The state of every task by name: "ok" or "failed"."""
    states = {}
    for name in order(tasks):
        states[name] = "ok"
        for command in tasks[name].commands:
            if execute(command) != 0:
                states[name] = "failed"
    return states
