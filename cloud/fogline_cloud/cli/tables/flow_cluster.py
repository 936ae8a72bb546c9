"""`fogline flow archive` and `fogline flow submit-options`: what a flow on a cluster needs."""

import argparse
import json
import shlex
from pathlib import Path
from typing import Any

import msgspec

from fogline.process.console.terminal import show, show_progress
from fogline_cloud.cli.common import add_command
from fogline_cloud.settings import CloudSettings, load

ARCHIVE = "fogline-environment.zip"
"""Name of an archive that neither the command line nor the settings name."""
SCRIPT = Path(__file__).resolve().parents[1] / "main.py"
"""The program `fogline` as a script: spark-submit takes no other form of it."""


def register(commands: Any) -> None:
    """Add `fogline flow archive` and `fogline flow submit-options`."""
    archive = add_command(
        commands,
        "archive",
        _archive,
        "write the environment of a cluster's executors to a file",
        description="Write what Spark's executors import to a zip file: Fogline, the packages that it needs there, and your "
        "installed parsers with theirs. Spark, Java and Python are not in it: executors run their own Python of this version, "
        "on the same kind of machine. The same packages make the same file. Write it again after each update of a package or "
        "a parser.",
        epilog="example: fogline flow archive --config cloud.toml",
    )
    archive.add_argument(
        "file", nargs="?", type=Path, help=f"the file (default: [flow] archive, else {ARCHIVE} beside the settings file)"
    )
    submit = add_command(
        commands,
        "submit-options",
        _submit_options,
        "print the line that starts the flow with spark-submit",
        description="Print the line that starts the flow with spark-submit, for clusters where that is the way to start a "
        "program. Elsewhere `fogline flow run --master URL` does the same. The driver runs where the line does (client mode).",
        epilog="example: fogline flow submit-options --master spark://master:7077 --config cloud.toml",
    )
    submit.add_argument("--master", required=True, metavar="URL", help="the cluster, for example spark://master:7077")
    submit.add_argument("--once", action="store_true", help="a flow that ends when all current records are processed")


def with_master(settings: CloudSettings, master: str | None) -> CloudSettings:
    """Return the settings with another Spark master, if one is given."""
    if master is None:
        return settings
    return msgspec.structs.replace(settings, flow=msgspec.structs.replace(settings.flow, master=master))


def _archive(arguments: argparse.Namespace) -> int:
    from fogline_cloud.flows.cluster.archive import write_archive  # noqa: PLC0415 - with the room that it stands in
    from fogline_cloud.flows.cluster.packages import Package, worker_packages  # noqa: PLC0415 - it loads no Spark

    settings = load(arguments.config)
    path: Path = arguments.file or Path(settings.flow.archive or arguments.config.parent / ARCHIVE)

    def on_package(package: Package) -> None:
        show_progress(f"{package.name} {package.version}")

    written = write_archive(worker_packages(), path.absolute(), on_package)
    show_progress("")
    if arguments.json:
        show(json.dumps(msgspec.to_builtins(written)))
        return 0
    for name, version in written.packages.items():
        show(f"{name} {version}")
    show(f"{written.path}: {written.bytes / 1e6:.0f} MB, {written.unpacked_bytes / 1e6:.0f} MB on each executor")
    if settings.flow.archive != written.path:
        show(f'now set in [flow]: archive = "{written.path}"')
    return 0


def _submit_options(arguments: argparse.Namespace) -> int:
    from fogline_cloud.flows.cluster.submission import submission  # noqa: PLC0415 - imports Spark

    run = ["flow", "run", "--config", str(arguments.config.resolve()), *(["--once"] if arguments.once else [])]
    line = submission(load(arguments.config), arguments.master, [str(SCRIPT), *run])
    show(json.dumps(msgspec.to_builtins(line)) if arguments.json else shlex.join(line.command))
    return 0
