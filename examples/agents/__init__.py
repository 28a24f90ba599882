"""Scripted agents: no model, the same tool calls every time. `AGENTS` by name."""
from . import fixer, giveup

AGENTS = {"fixer": fixer.work, "giveup": giveup.work}
