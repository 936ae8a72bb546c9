"""`fogline parser deploy`, `list` and `rollback`: what runs in the flow, changed by the team that writes the parser."""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fogline.process.console.command_line import add_limit
from fogline.process.console.listing import show_rows
from fogline.process.console.terminal import show
from fogline_cloud.cli.common import add_command
from fogline_cloud.cli.operators.http_link import request
from fogline_cloud.settings import load

EXAMPLE = """\
examples:
  fogline parser deploy my-sensor --name my-sensor --content-type application/vnd.my-sensor
  fogline parser deploy dist/my_sensor-2.0-py3-none-any.whl --name my-sensor
  fogline parser list
  fogline parser rollback my-sensor
"""


def register(commands: Any) -> None:
    """Add the subcommands."""
    raw: dict[str, Any] = {"epilog": EXAMPLE, "formatter_class": argparse.RawDescriptionHelpFormatter}
    deploy = add_command(
        commands,
        "deploy",
        run_deploy,
        "give a parser to the running flow, over the HTTP API",
        description="Give a parser to the running flow, which takes it at its next micro-batch. It is checked first: it is "
        "imported, runs on the sample events in it (events.jsonl), and on the last events of its kind, beside the former "
        "parser. Needs the role deployer (docs/access.md), and operator.api.",
        **raw,
    )
    deploy.add_argument("path", type=Path, metavar="FOLDER|WHEEL", help="folder with pyproject.toml, or a wheel")
    deploy.add_argument("--name", required=True, help="name of the parser: one of the wheel's entry points")
    deploy.add_argument(
        "--content-type",
        action="append",
        default=[],
        metavar="TYPE",
        help="choose it for this content type, unless the flow's settings choose another; may be repeated "
        "(default: those of the former deployment)",
    )
    deploy.add_argument(
        "--accept-dead", action="store_true", help="it may refuse events that the former parser reads: that is meant"
    )
    listing = add_command(commands, "list", run_list, "show the deployed parsers, and their newest changes", **raw)
    add_limit(listing, 10, "the newest changes")
    back = add_command(commands, "rollback", run_rollback, "take the parser that was in use before the present one", **raw)
    back.add_argument("name", help="name of the parser")


def run_deploy(arguments: argparse.Namespace) -> int:
    """Deploy a parser. Raises `Misconfigured` if the check fails."""
    from fogline_cloud.parser_kit.packing import wheel_of  # noqa: PLC0415 - a list needs no Arrow

    settings = load(arguments.config, kafka=False)
    data = wheel_of(arguments.path)
    query = {"content_types": ",".join(arguments.content_type)} if arguments.content_type else {}
    query |= {"accept_dead": "true"} if arguments.accept_dead else {}
    answer = request(settings, "PUT", f"/v1/parsers/{arguments.name}", query=query, body=data)
    if arguments.json:
        show(json.dumps(answer))
        return 0
    for line in check_lines(answer["check"]):
        show(line)
    show(f"{_change_line(answer)}. A running flow takes it at its next micro-batch")
    return 0


def run_list(arguments: argparse.Namespace) -> int:
    """Show what is deployed."""
    answer = request(load(arguments.config, kafka=False), "GET", "/v1/parsers")
    changes = answer["changes"][: arguments.limit]
    if arguments.json:
        show(json.dumps({**answer, "changes": changes}))
        return 0
    parsers = [(each["name"], each["digest"] or "-", " ".join(each["content_types"]) or "-") for each in answer["parsers"]]
    show_rows(("parser", "wheel", "content types"), parsers, "no parser is deployed that you may deploy")
    for change in changes:
        show(_change_line(change))
    return 0


def run_rollback(arguments: argparse.Namespace) -> int:
    """Take the former parser again."""
    answer = request(load(arguments.config, kafka=False), "POST", f"/v1/parsers/{arguments.name}/rollback")
    show(json.dumps(answer) if arguments.json else f"{_change_line(answer)}. A running flow takes it at its next micro-batch")
    return 0


def check_lines(check: Mapping[str, Any]) -> list[str]:
    """Return what a check has found, for people."""
    lines = [f"sample events of the wheel: {_counts(check['tests'])}"] if check["tests"] else []
    if check["recent"]:
        lines.append(f"last events in table raw: {_counts(check['recent'])}")
    if check["former"]:
        lines.append(f"the same, by the former parser: {_counts(check['former'])}")
    lines += [f"{each['values']:>8,} values of {each['metric']} {each['change']}" for each in check["changes"]]
    return lines + list(check["notes"])


def _counts(outcomes: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {outcome}" for outcome, count in outcomes.items())


def _change_line(change: Mapping[str, Any]) -> str:
    why = f": {change['why']}" if change["why"] else ""
    return f"{change['time'][:19]}Z {change['change']} {change['name']} to {_wheel(change['digest'])} by {change['who']}{why}"


def _wheel(digest: str | None) -> str:
    return f"wheel {digest[:12]}" if digest else "the installed parser, if there is one"
