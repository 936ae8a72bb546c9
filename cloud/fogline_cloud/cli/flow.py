"""`fogline flow`: run the Spark flow."""

import argparse
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

from fogline.commandline import announce
from fogline_cloud.cli.common import with_config, with_json
from fogline_cloud.settings import load

if TYPE_CHECKING:
    from fogline_cloud.flows.commit import Progress

EXAMPLE = """\
examples:
  fogline flow run --config cloud.toml          until Ctrl-C
  fogline flow run --config cloud.toml --once   what Kafka holds now, then end
"""


def register(groups: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `fogline flow`."""
    group = groups.add_parser("flow", help="turn raw events into tables with Spark", description=__doc__)
    commands = group.add_subparsers(title="commands", metavar="COMMAND", required=True)
    run = commands.add_parser(
        "run",
        help="read the raw topics, parse, write the tables and the derived topics",
        description="Read the tenant's raw topics, parse every event once, write the tables `events` and `readings` and the "
        "canonical, slow, dead and fleet topics. Killed at any moment and started again, it leaves every event once.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    with_config(run)
    run.add_argument("--once", action="store_true", help="process what is there, then end")
    run.add_argument(
        "--accept-new-topics",
        action="store_true",
        help="with a new checkpoint: read raw topics that were deleted and made again from their beginning",
    )
    with_json(run)
    run.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    settings = load(arguments.config)
    from fogline_cloud.flows.job import run_flow  # noqa: PLC0415 - a bridge needs no Spark

    stop = threading.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda *_: stop.set())
    run_flow(
        settings,
        on_ready=lambda: announce(ready="flow", flow=settings.flow.name, tables=settings.flow.tables),
        on_progress=_as_json if arguments.json else _as_text,
        stop=stop,
        once=arguments.once,
        accept_new_topics=arguments.accept_new_topics,
    )
    return 0


def _as_json(progress: "Progress") -> None:
    announce(**_facts(progress))


def _as_text(progress: "Progress") -> None:
    facts = _facts(progress)
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in progress.outcomes.items())
    sys.stderr.write(
        f"batch {progress.batch}: {progress.events} events ({outcomes or 'none'}), {progress.readings} readings, "
        f"{facts['events_per_s']} events/s\n"
    )
    sys.stderr.flush()


def _facts(progress: "Progress") -> dict[str, Any]:
    return {
        "batch": progress.batch,
        "events": progress.events,
        "readings": progress.readings,
        "outcomes": progress.outcomes,
        "failed_compactions": progress.failed_compactions,
        "seconds": round(progress.seconds, 3),
        "events_per_s": round(progress.events / progress.seconds) if progress.seconds else 0,
    }
