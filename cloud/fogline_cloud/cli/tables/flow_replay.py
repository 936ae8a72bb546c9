"""`fogline flow replay`, and what it has in common with `fogline dead redrive`: stored events are parsed again."""

import argparse
import json
from datetime import date
from typing import TYPE_CHECKING, Any

import msgspec

from fogline.errors import Misconfigured
from fogline.process.console.terminal import show, tell
from fogline_cloud.cli.common import add_command
from fogline_cloud.cli.tables.flow_cluster import with_master
from fogline_cloud.settings import load

if TYPE_CHECKING:
    from fogline_cloud.flows.replay.selection import Selection
    from fogline_cloud.flows.replay.table_replay import Replayed

MOST_LINES = 100
"""Largest number of differences that are printed. JSON has all."""


EXAMPLE = """\
examples:
  fogline flow replay --from 2026-11-01 --to 2026-11-08 --parser my-sensor --dry-run   what is different now
  fogline flow replay --from 2026-11-01 --to 2026-11-08 --parser my-sensor             replace the rows
"""


def add_replay(commands: Any) -> None:
    """Add `fogline flow replay`."""
    replay = add_command(
        commands,
        "replay",
        _replay,
        "parse the events of past days again, from the table `raw`, and replace their rows",
        description="Parse the events of past days again, from the table `raw`, and print what is different. Then one commit "
        "per table replaces the rows. The flow goes on meanwhile.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    replay.add_argument("--from", dest="first", metavar="DAY", required=True, type=_day, help="first day (UTC, as ingested)")
    replay.add_argument("--to", dest="last", metavar="DAY", required=True, type=_day, help="last day")
    replay.add_argument("--parser", metavar="NAME", help="only events that had this parser, or have it now")
    replay.add_argument("--into", metavar="FOLDER", help="write the new rows to tables in this folder, and replace nothing")
    replay.add_argument("--master", metavar="URL", help="Spark master, instead of [flow] master")
    replay.add_argument("--dry-run", action="store_true", help="compare only")


def _day(text: str) -> date:
    return date.fromisoformat(text)


def _replay(arguments: argparse.Namespace) -> int:
    from fogline_cloud.flows.replay.selection import Selection  # noqa: PLC0415 - a bridge needs no Arrow

    if arguments.last < arguments.first:
        raise Misconfigured(f"--to {arguments.last}: it is before --from {arguments.first}")
    selection = Selection(days=(arguments.first, arguments.last), parser=arguments.parser)
    return replay(arguments, selection, publish=False, into=arguments.into)


def replay(
    arguments: argparse.Namespace,
    selection: "Selection",
    *,
    publish: bool,
    limit_ms: int | None = None,
    into: str | None = None,
) -> int:
    """Parse the selected events again, and print what is different."""
    settings = with_master(load(arguments.config), getattr(arguments, "master", None))
    from fogline_cloud.flows.driver.plan import plan_of  # noqa: PLC0415 - a bridge needs no Spark
    from fogline_cloud.flows.driver.session import log_file, spark_session  # noqa: PLC0415 - imports Spark
    from fogline_cloud.flows.replay.table_replay import TableReplay  # noqa: PLC0415 - imports Spark

    plan = plan_of(settings)
    plan = msgspec.structs.replace(plan, deployed=msgspec.structs.replace(plan.deployed, set=plan.deployed.set.settled))
    if limit_ms is not None:
        plan = msgspec.structs.replace(plan, limit_s=limit_ms / 1000)
    with spark_session(settings, log_file(settings, "replay")) as spark:
        work = TableReplay(spark, settings, plan, tell)
        result = work.run(selection, publish=publish, dry_run=arguments.dry_run, into=into)
    if arguments.json:
        show(json.dumps(msgspec.to_builtins(result)))
    else:
        _print(result)
    return 0


def _print(result: "Replayed") -> None:
    for what, count in result.outcomes.items():
        show(f"{count:>12,}  {what}")
    for each in result.differences[:MOST_LINES]:
        show(f"{each.values:>12,}  {each.change:<8} {each.metric} (parser {each.parser or 'none'}, type {each.type})")
    if (left := len(result.differences) - MOST_LINES) > 0:
        show(f"and {left} more: --json prints all")
    show(f"{result.selected:,} events parsed again in {result.seconds:.1f} s, {result.changed:,} are different")
