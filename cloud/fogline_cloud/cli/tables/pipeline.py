"""`fogline pipeline`: tables that you declare over Fogline's, by Spark's Declarative Pipelines (docs/pipelines.md)."""

import argparse
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from fogline.address import printable
from fogline.errors import Misconfigured
from fogline.process.console.listing import show_rows
from fogline.process.console.terminal import show, tell
from fogline_cloud.cli.common import add_command, add_group
from fogline_cloud.settings import CloudSettings, load

if TYPE_CHECKING:
    from fogline_cloud.pipelines.run import PipelineRun, PipelineTable

EXAMPLE = """\
examples:
  fogline pipeline init cold-chain              a folder with a pipeline that runs
  fogline pipeline dry-run cold-chain           check it, and run nothing
  fogline pipeline test cold-chain              run it on recorded events, and compare its rows
  fogline pipeline run cold-chain               until its tables have all that there is
  fogline pipeline graph cold-chain --svg cold-chain.svg
  fogline pipeline run cold-chain --full-refresh alarms
"""


def register(groups: "argparse._SubParsersAction[Any]") -> None:
    """Add the subcommands."""
    raw: dict[str, Any] = {"epilog": EXAMPLE, "formatter_class": argparse.RawDescriptionHelpFormatter}
    commands = add_group(groups, "pipeline", "declare tables over Fogline's", description=__doc__, **raw)
    about = "write the files of a new pipeline: a spec, an example that runs, and its test"
    new = add_command(commands, "init", run_init, about, as_json=False, config=False, **raw)
    new.add_argument("folder", type=Path, help="the new folder, whose name is the pipeline's")
    about = "bring the tables of a pipeline up to date; exit status 1 if a row breaks an expectation that ends the run"
    run = add_command(commands, "run", run_run, about, **raw)
    _add_folder(run)
    about = "empty this table first, and those that stream from it (may be repeated)"
    run.add_argument("--full-refresh", action="append", default=[], metavar="TABLE", help=about)
    run.add_argument("--full-refresh-all", action="store_true", help="empty all tables first")
    about = "test pipelines on their recorded events, in tables of their own; exit status 1 if rows are not as expected"
    test = add_command(commands, "test", run_test, about, config=False, **raw)
    test.add_argument("folders", type=Path, nargs="*", default=[Path()], metavar="FOLDER", help="folders (default: this one)")
    test.add_argument("--config", type=Path, help="a settings file, for the choice of parsers (default: their own choice)")
    about = "check a pipeline as Spark does, and that no watermark drops late events; nothing is written"
    _add_folder(add_command(commands, "dry-run", run_dry_run, about, **raw))
    about = "draw a pipeline, with the rows of each table and how far it is behind: as Mermaid, or as SVG"
    draw = add_command(commands, "graph", run_graph, about, **raw)
    _add_folder(draw)
    draw.add_argument("--svg", type=Path, metavar="FILE", help="write an SVG file (default: print Mermaid)")


def _add_folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, nargs="?", default=Path(), help="folder of spark-pipeline.yml (default: this one)")


def run_init(arguments: argparse.Namespace) -> int:
    """Write the files."""
    from fogline_cloud.pipelines.skeleton import write_skeleton  # noqa: PLC0415 - Spark is an extra

    for path in write_skeleton(arguments.folder):
        show(str(path))
    show(f"next: fogline pipeline test {arguments.folder}")
    return 0


def run_run(arguments: argparse.Namespace) -> int:
    """Run a pipeline once. Return 1 if a row broke an expectation that ends the run."""
    from fogline_cloud.pipelines.run import ExpectationBroken  # noqa: PLC0415 - Spark is an extra

    with _opened(arguments) as run:
        try:
            states = run.run(arguments.full_refresh, all_anew=arguments.full_refresh_all)
        except ExpectationBroken as error:
            tell(f"fogline: {error}")
            return 1
    if arguments.json:
        show(json.dumps([msgspec.to_builtins(each) for each in states]))
    else:
        _show(states)
    return 0


def run_test(arguments: argparse.Namespace) -> int:
    """Test pipelines. Return 1 if a table has other rows than expected."""
    _need_spark_connect()
    from fogline_cloud.pipelines.opened import tested  # noqa: PLC0415 - Spark is an extra
    from fogline_cloud.pipelines.run import ExpectationBroken  # noqa: PLC0415 - as above

    settings = CloudSettings(tenant="test") if arguments.config is None else load(arguments.config, kafka=False)
    try:
        results = tested(arguments.folders, settings, tell)
    except ExpectationBroken as error:
        tell(f"fogline: {error}")
        return 1
    if arguments.json:
        show(json.dumps(msgspec.to_builtins(results)))
    else:
        for name, found in results.items():
            for each in found.differences:
                show(f"{name}: {each.table} {'is as expected' if each.is_none else 'differs'}")
                for sign, rows in (("-", each.missing), ("+", each.unexpected)):
                    for row in rows:
                        show(printable(f"  {sign} {row}"))
    return 0 if all(each.is_good for each in results.values()) else 1


def run_dry_run(arguments: argparse.Namespace) -> int:
    """Check a pipeline."""
    with _opened(arguments) as run:
        graph = run.check()
    if arguments.json:
        show(json.dumps(msgspec.to_builtins(graph)))
    else:
        for each in graph.datasets:
            show(f"{each.name}: {each.kind}, reads {', '.join(read.name for read in each.reads) or 'nothing'}")
    return 0


def run_graph(arguments: argparse.Namespace) -> int:
    """Draw a pipeline."""
    from fogline_cloud.pipelines.drawing import mermaid, svg  # noqa: PLC0415 - Spark is an extra

    with _opened(arguments) as run:
        graph, facts = run.draw()
    if arguments.svg is not None:
        try:
            arguments.svg.write_text(svg(graph, facts), "utf-8")
        except OSError as error:
            raise Misconfigured(f"--svg {arguments.svg}: {error.strerror}") from None
    if arguments.json:
        show(json.dumps({**msgspec.to_builtins(graph), "tables": msgspec.to_builtins(facts)}))
    elif arguments.svg is None:
        for line in mermaid(graph, facts).splitlines():
            show(line)
    return 0


def _need_spark_connect() -> None:
    """Raise `ModuleNotFoundError` where the extra `pipelines` is missing: PySpark raises an error of its own for it."""
    for module in ("yaml", "grpc", "grpc_status"):
        import_module(module)


@contextmanager
def _opened(arguments: argparse.Namespace) -> Iterator["PipelineRun"]:
    _need_spark_connect()
    from fogline_cloud.pipelines.opened import opened  # noqa: PLC0415 - Spark is an extra

    with opened(arguments.folder, load(arguments.config, kafka=False), tell) as run:
        yield run


def _show(states: "Sequence[PipelineTable]") -> None:
    rows = [
        (each.name, each.kind, f"{each.rows:,}", ", ".join(f"{name}: {count:,}" for name, count in each.broken.items()))
        for each in states
    ]
    show_rows(("table", "kind", "rows", "rows that break an expectation"), rows, "this pipeline has no table")
