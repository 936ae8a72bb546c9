"""Prints the gateway's rows, a line for each system, and the outcomes of their goals: the worst row and goal first."""

import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gateway_rows import GATEWAY, GATEWAY_ROWS

COLUMNS = {
    "events": ("events/s", 0),
    "acknowledged": ("acked/s", 0),
    "ratio": ("ratio", 2),
    "cpu": ("CPU s/1000", 3),
    "written": ("B written", 0),
    "device": ("B device", 0),
    "writes": ("writes", 3),
    "syncs": ("syncs", 3),
    "syncs_s": ("syncs/s", 1),
    "p50": ("p50 ms", 1),
    "p99": ("p99 ms", 1),
    "ack_p50": ("ack p50", 1),
    "ack_p99": ("ack p99", 1),
    "wire": ("B wire", 1),
    "rss": ("RSS MiB", 0),
    "helpers": ("helpers", 3),
}
"""The columns with their headings and digits. Bytes, writes and syncs without a unit of time are per event.

`helpers`: CPU seconds per 1000 events of the load and of everything behind the measured system.
"""


def is_gateway_key(key: str) -> bool:
    """Return True if a key of the results belongs to this table."""
    return "/" in key


def gateway_table(runs: Mapping[str, Sequence[float]]) -> str:
    """The medians of all rows that were measured, then each goal with what became of it, the worst first."""
    medians = {tuple(key.split("/")): statistics.median(values) for key, values in runs.items()}
    worst: dict[str, float] = {}
    for each in _goals(runs):
        worst[each.row] = max(worst.get(each.row, 0.0), each.over)
    names = sorted(dict.fromkeys(key[:2] for key in medians), key=lambda name: -worst.get(name[0], 0.0))
    shown = [column for column in COLUMNS if any(key[2] == column for key in medians)]
    lines = [["", "", *(COLUMNS[column][0] for column in shown)]]
    for name, system in names:
        cells = [_word(column, medians.get((name, system, column))) for column in shown]
        lines.append([name, system, *cells])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    table = []
    for line in lines:
        padded = [cell.ljust(width) for cell, width in zip(line[:2], widths[:2], strict=True)]
        padded += [cell.rjust(width) for cell, width in zip(line[2:], widths[2:], strict=True)]
        table.append("  ".join(padded).rstrip())
    return "\n".join([*table, "", *goal_lines(runs)])


def _word(column: str, value: float | None) -> str:
    return "" if value is None else f"{value:,.{COLUMNS[column][1]}f}"


def goal_lines(runs: Mapping[str, Sequence[float]]) -> list[str]:
    """One line for each goal, the worst first."""
    return [each.text for each in sorted(_goals(runs), key=lambda each: -each.over)]


def missed(runs: Mapping[str, Sequence[float]]) -> list[str]:
    """The lines of the goals that were missed."""
    return [each.text for each in _goals(runs) if not each.met]


class _Outcome(NamedTuple):
    """The outcome of one goal of a row. `over`: how many times its figure is worse than the goal."""

    row: str
    over: float
    met: bool
    text: str


def _goals(runs: Mapping[str, Sequence[float]]) -> list[_Outcome]:
    """The outcomes of the goals of the rows that were measured."""
    found = []
    for row in GATEWAY_ROWS.values():
        for column, goal in row.goals.items():
            if not (values := runs.get(f"{row.name}/{GATEWAY}/{column}")):
                continue
            value, heading = statistics.median(values), COLUMNS[column][0]
            over = value / goal.value if goal.at_most else goal.value / value if value else float("inf")
            worst = max(values) if goal.at_most else min(values)
            several = f" (median of {len(values)}; worst {_word(column, worst)})" if len(values) > 1 else ""
            verdict = "met" if goal.met(value) else "SHORT"
            sign = "<=" if goal.at_most else ">="
            text = f"{row.name}: {heading} {_word(column, value)}{several} {sign} {goal.value:g}  {verdict}"
            found.append(_Outcome(row.name, over, goal.met(value), text))
    return found
