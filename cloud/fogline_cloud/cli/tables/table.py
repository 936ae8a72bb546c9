"""`fogline table`: keep the tables fast and small, forget a device, and see who reads the changes."""

import argparse
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from fogline.errors import Misconfigured
from fogline.process.console.command_line import announce
from fogline.process.console.listing import show_rows, utc
from fogline.process.console.terminal import show
from fogline_cloud.cli.common import add_command, add_group, device_argument
from fogline_cloud.flows.tables.change_reader import KEPT
from fogline_cloud.maintenance.forget import ForgottenDay, forget
from fogline_cloud.maintenance.maintain import MaintenanceStep, maintain
from fogline_cloud.maintenance.reader_lag import forget_reader_everywhere, reader_lags
from fogline_cloud.settings import load

EXAMPLE = """\
examples:
  fogline table maintain --dry-run         print what is to do
  fogline table maintain                   do it, also beside a running flow
  fogline table forget lamp-1              remove what the tables hold about a device
  fogline table readers                    who reads the tables' changes, and how far each is behind
  fogline table readers --forget hourly    keep nothing for this reader any more
"""
_TOPICS = "Kafka keeps what the device sent until the retention of its topics ends (raw: 7 days, slow and dead: 30 days)"


def register(groups: "argparse._SubParsersAction[Any]") -> None:
    """Add the subcommands."""
    raw: dict[str, Any] = {"epilog": EXAMPLE, "formatter_class": argparse.RawDescriptionHelpFormatter}
    commands = add_group(groups, "table", "maintain the tables", description=__doc__, **raw)
    about = "count new events, delete expired rows, join small files, delete unneeded files; exit status 1 if a step failed"
    run = add_command(commands, "maintain", run_maintain, about, **raw)
    run.add_argument("--dry-run", action="store_true", help="change nothing")
    run = add_command(commands, "forget", run_forget, "remove what the tables hold about a device", **raw)
    run.add_argument("device", type=device_argument, help="name of the device")
    run.add_argument("--dry-run", action="store_true", help="only count the rows")
    run = add_command(commands, "readers", run_readers, "list the readers of the tables' changes", **raw)
    run.add_argument("--forget", metavar="NAME", help="keep log and files for this reader no more")


def run_maintain(arguments: argparse.Namespace) -> int:
    """Maintain every table. Return 1 if a step failed."""

    def on_step(step: MaintenanceStep) -> None:
        if arguments.json:
            announce(**msgspec.to_builtins(step))
        else:
            show(str(step))

    settings = load(arguments.config, kafka=False)
    return 0 if maintain(settings, on_step, datetime.now(UTC), dry_run=arguments.dry_run) else 1


def run_readers(arguments: argparse.Namespace) -> int:
    """Print the readers, or forget one."""
    settings = load(arguments.config, kafka=False)
    if arguments.forget is not None and not forget_reader_everywhere(settings, arguments.forget):
        raise Misconfigured(f"there is no reader {arguments.forget}: `fogline table readers` lists them")
    lags = reader_lags(settings)
    if arguments.json:
        show(json.dumps([{**msgspec.structs.asdict(each), "noted_s": round(each.noted_s, 3)} for each in lags]))
        return 0
    rows = [(each.table, each.reader, each.version, each.behind, utc(each.noted_s)) for each in lags]
    show_rows(("table", "reader", "version", "versions behind", "noted"), rows, "no program has noted that it reads the tables")
    return 0


def run_forget(arguments: argparse.Namespace) -> int:
    """Forget a device."""
    settings = load(arguments.config, kafka=False)

    def on_day(day: ForgottenDay) -> None:
        if not arguments.json:
            show(f"{day.table} {day.day}: {day.rows} rows")

    rows = forget(settings, arguments.device, on_day, dry_run=arguments.dry_run)
    waiting = KEPT / timedelta(days=1) if any(each.behind for each in reader_lags(settings)) else 0
    gone = datetime.now(UTC) + timedelta(days=max(settings.tables.vacuum_days, waiting) + 1)
    if arguments.json:
        show(json.dumps({"rows": rows, "files_gone_by": utc(gone)}))
    elif arguments.dry_run:
        show(f"{rows} rows would be forgotten")
    else:
        show(f"{rows} rows forgotten. Files with them are deleted by {gone:%Y-%m-%d} if maintenance runs every day.")
        show(f"{_TOPICS}.")
    return 0
