"""`fogline parser`: write, test and deploy a parser."""

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fogline.address import printable
from fogline.events.event import Event, rfc3339
from fogline.process.console.terminal import show
from fogline_cloud.cli.common import add_command, add_group
from fogline_cloud.cli.tables import parser_deploy
from fogline_cloud.flows.sandbox.parser_runner import CheckedReading, ParseResult
from fogline_cloud.flows.tables.schema import EventOutcome
from fogline_cloud.parser_kit import sample_events
from fogline_cloud.parser_kit.skeleton import write_skeleton
from fogline_cloud.parser_kit.trial import find_parser, try_parser

EXAMPLE = """\
examples:
  fogline parser new my-sensor
  fogline parser test my-sensor --path my-sensor --events my-sensor/events.jsonl
  fogline parser test tasmota --events sent-by-a-plug.jsonl --json
"""
_FAILED = {EventOutcome.DEAD, EventOutcome.SLOW}
_READING_FIELDS = ("metric", "value", "text", "unit", "time_us")


def register(groups: "argparse._SubParsersAction[Any]") -> None:
    """Add the subcommands."""
    raw: dict[str, Any] = {"epilog": EXAMPLE, "formatter_class": argparse.RawDescriptionHelpFormatter}
    commands = add_group(groups, "parser", "write, test and deploy a parser", description=__doc__, **raw)
    new = add_command(commands, "new", run_new, "write a parser's files into a new folder", as_json=False, config=False, **raw)
    new.add_argument("name", help="name of the parser, for example my-sensor")
    new.add_argument("--into", type=Path, default=Path(), help="folder of the new folder (default: the current one)")
    about = "run a parser on events as the flow does; exit status 1 if an event is dead or slow"
    description = f"Run a parser on events as the flow does. The file of events:\n\n{sample_events.__doc__}"
    test = add_command(commands, "test", run_test, about, config=False, description=description, **raw)
    test.add_argument("name", help="name of the parser")
    test.add_argument("--events", type=Path, required=True, help="file of events, JSON lines")
    test.add_argument("--path", type=Path, help="folder of the parser's pyproject.toml (default: an installed parser)")
    parser_deploy.register(commands)


def run_new(arguments: argparse.Namespace) -> int:
    """Write the files."""
    folder = write_skeleton(arguments.name, arguments.into)
    show(f"{folder} has the parser, its test, sample events and pyproject.toml. Next:")
    show(f"  (cd {folder} && python -m pytest)")
    show(f"  fogline parser test {arguments.name} --path {folder} --events {folder}/events.jsonl")
    show(f"  fogline parser deploy {folder} --name {arguments.name}")
    return 0


def run_test(arguments: argparse.Namespace) -> int:
    """Print the outcome of every event. Return 1 if one is dead or slow."""
    events = sample_events.read_events(arguments.events)
    results = try_parser(find_parser(arguments.name, arguments.path), events, arguments.name)
    outcomes = Counter(result.outcome.value for result in results)
    if arguments.json:
        show(json.dumps({"parser": arguments.name, "outcomes": outcomes, "events": [*map(_as_json, events, results)]}))
    else:
        _show(events, results)
        show(f"{len(events)} events: {', '.join(f'{count} {outcome}' for outcome, count in outcomes.items())}")
    return 1 if _FAILED & {result.outcome for result in results} else 0


def _as_json(event: Event, result: ParseResult) -> dict[str, Any]:
    return {
        "id": event.id,
        "topic": event.subject,
        "outcome": result.outcome.value,
        "reason": result.reason,
        "detail": result.detail,
        "readings": [dict(zip(_READING_FIELDS, reading[1:], strict=True)) for reading in result.readings],
    }


def _show(events: Sequence[Event], results: Sequence[ParseResult]) -> None:
    for event, result in zip(events, results, strict=True):
        reason = f" ({result.reason})" if result.reason else ""
        show(printable(f"{event.id}  {event.subject}: {result.outcome.value}{reason}"))
        for reading in result.readings:
            show(f"  {_reading_text(reading)}")
        for line in (result.detail or "").splitlines():
            show(f"  {printable(line)}")


def _reading_text(reading: CheckedReading) -> str:
    _, metric, value, text, unit, time_us = reading
    time = None if time_us is None else f"at {rfc3339(time_us * 1000)}"
    return printable(" ".join(filter(None, (f"{metric} =", repr(text) if value is None else repr(value), unit, time))))
