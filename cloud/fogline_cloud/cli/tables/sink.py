"""`fogline sink`: fill databases with the tables, exactly once, and export Parquet files. No Spark is needed."""

import argparse
import contextlib
import json
import logging
import signal
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from fogline.errors import Misconfigured
from fogline.process.console.command_line import INTERRUPTED, announce
from fogline.process.console.listing import show_rows
from fogline.process.console.terminal import show, tell
from fogline.process.console.times import day
from fogline.process.files.tls_files import check_private
from fogline.process.files.user_file import read_password
from fogline.process.service_manager import tell_status
from fogline_cloud.cli.common import add_command, add_group
from fogline_cloud.settings import CloudSettings, load
from fogline_cloud.sink_settings import SinkSettings

if TYPE_CHECKING:
    from fogline_cloud.flows.tables.files import TableFolder
    from fogline_cloud.sinks.export import ExportedDay
    from fogline_cloud.sinks.lag import SinkLag
    from fogline_cloud.sinks.place import Place
    from fogline_cloud.sinks.sink import SinkProgress

EXAMPLE = """\
examples:
  fogline sink run lab                          fill the database of [sinks.lab], until Ctrl-C
  fogline sink run lab --once                   until it has the newest version of the table
  fogline sink status                           how far each sink is behind
  fogline sink export --parquet copy            table readings as Parquet files, one a day
"""

log = logging.getLogger(__name__)


def register(groups: "argparse._SubParsersAction[Any]") -> None:
    """Add the subcommands."""
    raw: dict[str, Any] = {"epilog": EXAMPLE, "formatter_class": argparse.RawDescriptionHelpFormatter}
    commands = add_group(groups, "sink", "fill databases with the tables", description=__doc__, **raw)
    about = "write a table into a database, each version in one transaction"
    run = add_command(commands, "run", run_run, about, **raw)
    run.add_argument("name", help="name of the sink in [sinks]")
    run.add_argument("--once", action="store_true", help="end when the database has the newest version")
    run.add_argument("--copy-again", action="store_true", help="empty the table of the database, and copy it anew")
    about = "show what each database has; exit status 1 if one cannot be asked"
    add_command(commands, "status", run_status, about, **raw)
    about = "write a table as Parquet files, one a day; days that have not changed since are not written again"
    run = add_command(commands, "export", run_export, about, **raw)
    run.add_argument("--parquet", type=Path, required=True, metavar="FOLDER", help="the folder for the files")
    run.add_argument("--table", choices=("readings", "events", "raw"), default="readings", help="the table (default: readings)")
    run.add_argument("--from", dest="first", metavar="DAY", help="the first day: 2026-11-27, `yesterday` or `today`")
    run.add_argument("--to", dest="end", metavar="DAY", help="the day after the last one")


def run_run(arguments: argparse.Namespace) -> int:
    """Run one sink."""
    from fogline_cloud.sinks.sink import Sink, run_sink  # noqa: PLC0415 - the drivers are an extra

    stop = threading.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda *_: stop.set())
    settings = load(arguments.config, kafka=False)
    wanted = _sink(settings, arguments.name)
    with _named(arguments.name):
        sink = Sink(arguments.name, wanted, _folder(settings, wanted.source), _place(wanted), copy_again=arguments.copy_again)
        ready = threading.Event()

        def on_current() -> None:
            tell_status("")
            if not ready.is_set():
                ready.set()
                announce(ready="sink", sink=arguments.name, source=wanted.source, table=sink.target)

        def on_progress(progress: "SinkProgress") -> None:
            if arguments.json:
                announce(**_facts(progress))
            else:
                tell(_line(progress))

        is_done = run_sink(
            sink, stop, on_progress=on_progress, on_current=on_current, on_failure=tell_status, once=arguments.once
        )
    return INTERRUPTED if arguments.once and not is_done else 0


def run_status(arguments: argparse.Namespace) -> int:
    """Show every sink. Return 1 if one of the databases cannot be asked."""
    from fogline_cloud.sinks.lag import lag_of  # noqa: PLC0415 - the drivers are an extra

    settings = load(arguments.config, kafka=False)
    found: list[SinkLag] = []
    for name, sink in settings.sinks.items():
        with _named(name):
            found.append(lag_of(name, sink, _folder(settings, sink.source), _place(sink)))
    if arguments.json:
        show(json.dumps([msgspec.structs.asdict(each) for each in found]))
    else:
        rows = [
            (each.name, each.source, each.place, each.table, each.version, each.behind, _age(each.behind_s), each.state)
            for each in found
        ]
        heads = ("sink", "source", "database", "table", "version", "versions behind", "behind", "state")
        show_rows(heads, rows, "there is no sink: add one to the settings as [sinks.NAME] (docs/sinks.md)")
    return 0 if all(each.is_known for each in found) else 1


def run_export(arguments: argparse.Namespace) -> int:
    """Export a table."""
    from fogline_cloud.sinks.export import export  # noqa: PLC0415 - a bridge needs no Arrow

    stop = threading.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda *_: stop.set())
    settings, now = load(arguments.config, kafka=False), datetime.now(UTC)
    first = day("--from", arguments.first, now).date() if arguments.first else None
    end = day("--to", arguments.end, now).date() if arguments.end else None

    def on_day(exported: "ExportedDay") -> None:
        if arguments.json:
            announce(**msgspec.to_builtins(exported))
        elif exported.is_new:
            show(f"{exported.path}: {exported.rows:,} rows")

    folder = _folder(settings, arguments.table)
    is_done = export(folder, arguments.table, arguments.parquet, stop, on_day, first=first, end=end)
    return 0 if is_done else INTERRUPTED


def _folder(settings: CloudSettings, source: str) -> "TableFolder":
    from fogline_cloud.flows.tables.files import tables_in  # noqa: PLC0415 - a bridge needs no Arrow
    from fogline_cloud.store.options import storage_of  # noqa: PLC0415 - as above

    folder: TableFolder = getattr(tables_in(settings.flow.tables, storage_of(settings)), source)
    return folder


def _sink(settings: CloudSettings, name: str) -> SinkSettings:
    found = settings.sinks.get(name)
    if found is None:
        known = ", ".join(settings.sinks) or "none"
        raise Misconfigured(f"there is no sink {name} in the settings: [sinks.{name}] needs a url (sinks there: {known})")
    return found


def _place(sink: SinkSettings) -> "Place":
    from fogline_cloud.sinks.place import place_of  # noqa: PLC0415 - a bridge needs no Arrow

    file = sink.password_file
    if file is not None:
        check_private(file, "password_file")
    return place_of(sink.url, read_password(file, "password_file") if file is not None else None)


@contextlib.contextmanager
def _named(name: str) -> Iterator[None]:
    try:
        yield
    except Misconfigured as error:
        raise Misconfigured(f"[sinks.{name}] {error}") from None


def _facts(progress: "SinkProgress") -> dict[str, Any]:
    return {**msgspec.structs.asdict(progress), "seconds": round(progress.seconds, 3)}


def _line(progress: "SinkProgress") -> str:
    rate = f"{progress.inserted / progress.seconds:,.0f} rows/s" if progress.seconds else ""
    rows = f"{progress.inserted:,} rows" + (f" for {progress.deleted:,} deleted ones" if progress.deleted else "")
    if progress.all_files:
        return f"copied {progress.files} of {progress.all_files} files of version {progress.last}: {rows}, {rate}"
    versions = f"version {progress.last}" if progress.first == progress.last else f"versions {progress.first}-{progress.last}"
    return f"{versions}: {rows}, {rate}, {progress.behind:,} versions behind"


def _age(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:,.0f} s"
