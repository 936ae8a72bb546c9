"""`fogline-edge rules`: checks rules, and tries them before the gateway runs them."""

import argparse
import json
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from fogline.errors import Misconfigured
from fogline.events.event import TimeQuality, parse_rfc3339
from fogline.events.large_body import MAX_INLINE_BYTES
from fogline.installed import settings_folder
from fogline.process.console.command_line import Parser
from fogline.process.console.listing import show_rows, utc
from fogline.process.console.terminal import show, tell
from fogline_edge.operate.first_settings import FILE
from fogline_edge.operate.settings_check import check
from fogline_edge.operate.status import read_since
from fogline_edge.rule_settings import RuleSettings, RuleTable
from fogline_edge.rule_trial.events import ExpectedEvent, read_expected
from fogline_edge.rule_trial.trial import RuleTrialResult, TrialEvent, arrival_of, open_trial
from fogline_edge.settings import EdgeSettings, load

QUIET = "quiet"
"""The expected outcome of a rule that does nothing with an event."""
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
EXAMPLE = """\
examples:
  fogline-edge rules check                            check and list the rules of edge.toml
  fogline-edge rules test --events events.jsonl       what they do with recorded events; 1 if an `expect` is not met
  fogline-edge rules dry-run --since 1h               what they would do with the events that wait in the outbox
"""


def add_rules(commands: Any) -> None:
    """Add the commands to the parser."""
    raw = argparse.RawDescriptionHelpFormatter
    rules = commands.add_parser("rules", help="check rules, and try them without acting", epilog=EXAMPLE, formatter_class=raw)
    actions = rules.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=Parser)
    for name, run, text in (
        ("check", run_check, "check the rules, and list them"),
        ("test", run_test, "show what the rules do with the events of a file; exit status 1 if an `expect` is not met"),
        (
            "dry-run",
            run_dry_run,
            "show what the rules would do with the events that wait in the outbox",
        ),
    ):
        command = actions.add_parser(name, help=text, epilog=EXAMPLE, formatter_class=raw)
        which = "the settings file (default: edge.toml, here or in /etc/fogline)"
        command.add_argument("--config", type=Path, default=settings_folder(FILE) / FILE, help=which)
        command.add_argument("--json", action="store_true", help="print JSON")
        if name == "test":
            command.add_argument("--events", type=Path, required=True, help="file with one JSON object a line (docs/rules.md)")
        if name == "dry-run":
            command.add_argument("--since", type=seconds_of, default=3600, help="how far back, such as 30m or 2d (default: 1h)")
        command.set_defaults(run=run)


def seconds_of(text: str) -> int:
    """Return a duration such as `30m` in seconds. Raises `argparse.ArgumentTypeError`."""
    if text[-1:] in _UNITS and text[:-1].isascii() and text[:-1].isdecimal():
        return int(text[:-1]) * _UNITS[text[-1]]
    raise argparse.ArgumentTypeError(f"{text!r} is no duration: expected a number and s, m, h or d, such as 1h")


def run_check(arguments: argparse.Namespace) -> int:
    """Check the rules. Raises `Misconfigured`."""
    settings = _load(arguments.config)
    rows = [(kind, each.name, _selects(each), getattr(each, "when", None)) for kind, each in _rules(settings.rules)]
    if arguments.json:
        show(json.dumps([dict(zip(("kind", "rule", "events", "when"), row, strict=True)) for row in rows]))
    else:
        show_rows(("kind", "rule", "events", "when"), rows, "the settings have no rules")
        if private := [each.name for each in settings.rules.private]:
            refused = f"refused for events of {', '.join(private)}"
            show(f"bodies of more than {MAX_INLINE_BYTES:,} bytes: {refused}; no other rule reads them")
    return 0


class _Tried(NamedTuple):
    where: str
    event: TrialEvent
    result: RuleTrialResult
    wrong: dict[str, str]


def run_test(arguments: argparse.Namespace) -> int:
    """Try the rules on the events of a file. Raises `Misconfigured`."""
    settings = _load(arguments.config)
    tried = list(_try(settings, read_expected(arguments.events)))
    _show(tried, as_json=arguments.json)
    wrong = [f"{each.where}: {rule} {text}" for each in tried for rule, text in each.wrong.items()]
    for line in wrong:
        tell(line)
    return 1 if wrong else 0


def run_dry_run(arguments: argparse.Namespace) -> int:
    """Try the rules on the events in the outbox. Raises `Misconfigured`."""
    settings = _load(arguments.config)
    found = read_since(Path(settings.data), time.time() - arguments.since)
    events = (
        ExpectedEvent(
            utc(at_ns / 1e9),
            TrialEvent(arrival_of(event), at_ns, event.timequality is not TimeQuality.UNSYNCED),
            {},
        )
        for event in found
        if (at_ns := parse_rfc3339(event.recordedtime))
    )
    _show(list(_try(settings, events)), as_json=arguments.json)
    return 0


def _load(config: Path) -> EdgeSettings:
    settings = load(config)
    check(settings, config)
    return settings


def _try(settings: EdgeSettings, events: Iterable[ExpectedEvent]) -> Iterator[_Tried]:
    names = {each.name for each in settings.rules.all}
    with open_trial(settings) as trial:
        for where, event, expect in events:
            if unknown := expect.keys() - names:
                raise Misconfigured(f"{where}: expect: there is no rule {min(unknown)}")
            result = trial.take(event)
            wrong = {
                rule: f"is {found}, expected {outcome}"
                for rule, outcome in expect.items()
                if (found := result.outcomes.get(rule, QUIET)) != outcome
            }
            yield _Tried(where, event, result, wrong)


def _show(tried: list[_Tried], *, as_json: bool) -> None:
    totals: dict[str, dict[str, int]] = {}
    rows = []
    for where, event, result, _ in tried:
        for rule, outcome in result.outcomes.items():
            counts = totals.setdefault(rule, {})
            counts[outcome] = counts.get(outcome, 0) + 1
            effect = "; ".join(result.actions) if outcome == "fired" else result.problems.get(rule, "")
            rows.append((where, event.arrival.device, event.arrival.channel, result.receipt.value, rule, outcome, effect))
    columns = ("event", "device", "channel", "receipt", "rule", "outcome", "effect")
    if as_json:
        wrong = [{"event": each.where, "rule": rule, "why": why} for each in tried for rule, why in each.wrong.items()]
        steps = [dict(zip(columns, row, strict=True)) for row in rows]
        show(json.dumps({"events": len(tried), "rules": totals, "steps": steps, "wrong": wrong}))
        return
    show_rows(columns, rows, "no rule does anything with these events")
    show(f"{len(tried):,} events" + "".join(f"; {rule}: {_counted(counts)}" for rule, counts in totals.items()))


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{events:,} {outcome}" for outcome, events in counts.items())


def _rules(settings: RuleSettings) -> Iterator[tuple[str, RuleTable]]:
    for field in msgspec.structs.fields(settings):
        found = getattr(settings, field.name)
        if isinstance(found, list):
            yield from ((field.name, each) for each in found if isinstance(each, RuleTable))


def _selects(table: RuleTable) -> str:
    default = RuleTable(name=table.name)
    keys = [key for key in ("device", "channel", "type", "adapter") if getattr(table, key) != getattr(default, key)]
    return ", ".join(f"{key} {getattr(table, key)}" for key in keys) or "all"
