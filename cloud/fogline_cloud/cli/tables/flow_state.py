"""`fogline flow status` and `fogline flow resume`: see what a flow has read, and let it continue after a gap."""

import argparse
import json
import sys
import time
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Console
from rich.table import Table

from fogline.process.console.listing import utc
from fogline.process.console.terminal import escaped, show
from fogline_cloud.cli.common import add_command
from fogline_cloud.settings import CloudSettings, load

if TYPE_CHECKING:
    from fogline_cloud.flows.deployed.parser_set import ParserEntry
    from fogline_cloud.flows.start.flow_state import FlowState
    from fogline_cloud.maintenance.reader_lag import ChangeHistory, ReaderLag


def register(commands: Any) -> None:
    """Add `fogline flow status` and `fogline flow resume`."""
    add_command(
        commands,
        "status",
        _status,
        "show the owner, the last commit, the lag of each partition, and what stops the flow; exit status 1 if something does",
        epilog="example: fogline flow status --config cloud.toml",
    )
    resume = add_command(
        commands,
        "resume",
        _resume,
        "show the records that Kafka deleted before the flow had read them; exit status 1 if there are any",
        epilog="example: fogline flow resume --accept-gap",
    )
    resume.add_argument(
        "--accept-gap",
        action="store_true",
        help="write a row with outcome gap for each partition, so that the flow continues after the deleted records",
    )


def _states(settings: CloudSettings) -> "list[FlowState]":
    from fogline_cloud.flows.start.flow_state import read_states  # noqa: PLC0415 - a bridge needs no Arrow

    return read_states(settings)


def _resume(arguments: argparse.Namespace) -> int:
    from fogline_cloud.flows.start.flow_state import accept_gaps  # noqa: PLC0415 - a bridge needs no Arrow

    stuck = [state for state in _states(load(arguments.config)) if state.gaps]
    gaps = [(state.table, gap) for state in stuck for gap in state.gaps]
    accepted = bool(gaps) and arguments.accept_gap
    if accepted:
        for state in stuck:
            state.require_startable()
        for state in stuck:
            accept_gaps(state)
    if arguments.json:
        show(json.dumps({"accepted": accepted, "gaps": [_gap(*each) for each in gaps]}))
    elif not gaps:
        show("Kafka has every record that the flow has not read")
    else:
        for table, gap in gaps:
            show(f"table {table}: {gap.text}")
        show(
            "the gaps are accepted: start the flow again"
            if accepted
            else "the tables lack these records; `fogline flow resume --accept-gap` lets the flow continue after them"
        )
    return 1 if gaps and not accepted else 0


def _gap(table: str, gap: Any) -> dict[str, Any]:
    place = {"table": table, "topic": gap.topic, "partition": gap.partition}
    return {**place, "first": gap.first, "last": gap.last, "records_at_most": gap.count}


def _status(arguments: argparse.Namespace) -> int:
    from fogline_cloud.flows.deployed.parser_log import ParserLog  # noqa: PLC0415 - a bridge needs no Arrow
    from fogline_cloud.flows.deployed.parser_set import newest_changes  # noqa: PLC0415 - as above
    from fogline_cloud.maintenance.reader_lag import change_histories, reader_lags  # noqa: PLC0415 - as above

    settings = load(arguments.config)
    now_s = time.time()
    states = _states(settings)
    problems = [problem for state in states for problem in state.problems(now_s)]
    queries = [_facts(state, now_s) for state in states]
    readers = reader_lags(settings) if states else []
    histories = change_histories(settings) if states else []
    parsers = newest_changes(ParserLog(settings).history())
    if arguments.json:
        about = {
            "readers": [msgspec.structs.asdict(each) for each in readers],
            "changes": [msgspec.structs.asdict(each) for each in histories],
            "parsers": [*map(_parser_facts, parsers)],
        }
        show(json.dumps({"flow": settings.flow.name, "queries": queries, **about, "problems": problems}))
    else:
        lines = [*map(_history_line, histories), *map(_reader_line, readers), *map(_parser_line, parsers)]
        _show(settings.flow.name, queries, lines, problems)
    return 1 if problems else 0


def _facts(state: "FlowState", now_s: float) -> dict[str, Any]:
    lag, last_s = state.lag, state.last_commit_s
    return {
        "table": state.table,
        "owner": {"epoch": state.owner.epoch, "checkpoint": state.owner.run or None},
        "last_commit": None if last_s is None else utc(last_s),
        "last_commit_age_s": None if last_s is None else round(now_s - last_s, 1),
        "partitions": [
            {
                "topic": topic,
                "partition": number,
                "next": state.positions.get((topic, number)),
                "first": first,
                "end": end,
                "lag": lag[topic, number],
            }
            for (topic, number), (first, end) in sorted(state.bounds.items())
        ],
        "gaps": [_gap(state.table, gap) for gap in state.gaps],
    }


def _history_line(history: "ChangeHistory") -> str:
    line = f"table {history.table}: changes since {utc(history.since_s)} ({history.versions:,} versions)"
    return f"{line}; older ones are kept for readers that note their version" if history.is_cut else line


def _reader_line(reader: "ReaderLag") -> str:
    behind = f"{reader.behind:,} versions behind" if reader.behind else "has read all versions"
    return f"reader {reader.reader} of table {reader.table}: {behind}, noted {utc(reader.noted_s)}"


def _parser_facts(entry: "ParserEntry") -> dict[str, Any]:
    return {
        "parser": entry.name,
        "digest": entry.digest or None,
        "change": entry.change.value,
        "time": utc(entry.at_ms / 1000),
        "who": entry.who,
        "why": entry.why,
    }


def _parser_line(entry: "ParserEntry") -> str:
    wheel = f"wheel {entry.digest[:12]}" if entry.digest else "no wheel"
    why = f": {entry.why}" if entry.why else ""
    return f"parser {entry.name}: {wheel} ({entry.change} by {entry.who}, {utc(entry.at_ms / 1000)}{why})"


def _show(flow: str, queries: list[dict[str, Any]], readers: list[str], problems: list[str]) -> None:
    console = Console(width=max(Console().width, 110), file=sys.stdout)
    lines = [] if queries else [f"flow {flow} has no tables yet"]
    table = Table(box=None)
    for name in ("table", "topic", "partition", "next offset", "end in Kafka", "lag"):
        table.add_column(name, no_wrap=True, justify="left" if name in {"table", "topic"} else "right")
    for query in queries:
        for each in query["partitions"]:
            following = "-" if each["next"] is None else f"{each['next']:,}"
            place = (query["table"], each["topic"], str(each["partition"]))
            table.add_row(*place, following, f"{each['end']:,}", f"{each['lag']:,}")
        age, owner = query["last_commit_age_s"], query["owner"]
        last = "no commit yet" if age is None else f"last commit {age:,.0f} s ago ({query['last_commit']})"
        checkpoint = owner["checkpoint"] or "none"
        lines.append(f"flow {flow}, table {query['table']}: owner {owner['epoch']} (checkpoint {checkpoint}), {last}")
    console.print(table)
    for line in [*lines, *readers, *(problems or ["nothing stops the flow"])]:
        console.print(escaped(line), highlight=False, markup=False, soft_wrap=True)
