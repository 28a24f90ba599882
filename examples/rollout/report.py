"""The tables that the demo prints, and what counts as a failure."""
import collections
from typing import Dict, Iterable, List

from .attempt import Outcome

EXPECTED = {"fixer": 1.0, "giveup": 0.0}
# What is measured, in the order of the table. Commands share the machine's cores with
# all others; the second line is what the platform and the client add to one.
KINDS = (
    "create",
    "exec, true",
    "exec, agents' commands",
    "  beyond the command's own",
    "upload of the repository",
    "file write",
    "copy to the grader",
)


def percentile(sorted_values: List[float], share: float) -> float:
    """Nearest rank: a value that was measured, never one in between."""
    rank = max(1, -(-len(sorted_values) * share // 1))
    return sorted_values[int(rank) - 1]


def rewards(outcomes: Iterable[Outcome]) -> str:
    cells: Dict[str, Dict[str, List[Outcome]]] = collections.defaultdict(lambda: collections.defaultdict(list))
    for outcome in outcomes:
        cells[outcome.task.name][outcome.agent].append(outcome)
    lines = [f"{'task':<12} {'language':<9} " + " ".join(f"{agent + ' (mean of n)':>20}" for agent in EXPECTED) + "  what"]
    for name, row in sorted(cells.items()):
        task = next(iter(row.values()))[0].task
        line = f"{name:<12} {task.language:<9}"
        for agent in EXPECTED:
            known = [o.reward for o in row[agent] if o.reward is not None]
            mean = f"{sum(known) / len(known):.2f} ({len(known)})" if known else "-"
            line += f" {mean:>20}"
        lines.append(line + f"  {task.title}")
    return "\n".join(lines)


def latencies(seconds: Dict[str, List[float]]) -> str:
    lines = [f"{'milliseconds':<26} {'n':>5} {'p50':>8} {'p90':>8} {'p99':>8} {'max':>8}"]
    for kind in KINDS:
        values = seconds.get(kind)
        if not values:
            continue
        ordered = sorted(v * 1000 for v in values)
        cells = " ".join(f"{percentile(ordered, s):>8.1f}" for s in (0.5, 0.9, 0.99, 1.0))
        lines.append(f"{kind:<26} {len(ordered):>5} {cells}")
    return "\n".join(lines)


def failures(outcomes: Iterable[Outcome]) -> List[str]:
    """Platform errors, and rewards that are not what the agent deserves."""
    found = []
    for o in outcomes:
        where = f"{o.task.name}/{o.agent}/{o.attempt}"
        if o.error:
            found.append(f"{where}: platform error: {o.error}")
        elif o.reward != EXPECTED[o.agent]:
            found.append(f"{where}: reward {o.reward}, expected {EXPECTED[o.agent]}; the agent {o.said}\n"
                         f"    the grader said: {o.grader_output.strip()}")
    return found
