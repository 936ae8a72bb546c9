"""`fogline flow`: run the Spark flow. The commands that look after it are in `flow_state`."""

import argparse
import contextlib
import logging
import signal
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from fogline.process.console.command_line import announce
from fogline.process.console.terminal import show, tell
from fogline.process.monitoring.metrics_server import serve_in_thread
from fogline.process.service_manager import tell_status
from fogline.tracing.activation import tracing
from fogline.tracing.spans import ExportSpans
from fogline_cloud.cli.common import add_command, add_group
from fogline_cloud.cli.tables import flow_cluster, flow_state
from fogline_cloud.cli.tables.flow_cluster import with_master
from fogline_cloud.cli.tables.flow_replay import add_replay
from fogline_cloud.flows.start.lease import leased
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.maintenance.beside_flow import maintained
from fogline_cloud.settings import CloudSettings, load

if TYPE_CHECKING:
    from fogline_cloud.flows.driver.commit import Progress
    from fogline_cloud.flows.driver.metrics import FlowMetrics
    from fogline_cloud.flows.driver.raw_sink import RawProgress

EXAMPLE = """\
examples:
  fogline flow run --config cloud.toml          until Ctrl-C
  fogline flow run --config cloud.toml --once   until all current records are processed
  fogline flow run --master spark://host:7077   the same on a cluster (docs/clusters.md)
"""


log = logging.getLogger(__name__)


def register(groups: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `fogline flow`."""
    commands = add_group(groups, "flow", "write the tables from raw events with Spark", description=__doc__)
    run = add_command(
        commands,
        "run",
        _run,
        "read the raw topics, parse, write the tables and the derived topics",
        description="Read the tenant's raw topics, parse every event once, write the tables `events` and `readings` and the "
        "canonical, slow, dead and fleet topics. Beside that, keep the records as they are in table `raw`. If it is killed and "
        "started again, the tables still contain every event once.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    run.add_argument("--master", metavar="URL", help="Spark master, instead of [flow] master")
    run.add_argument("--once", action="store_true", help="process the current records, then end")
    run.add_argument(
        "--accept-new-topics",
        action="store_true",
        help="with a new checkpoint: read raw topics from their beginning if they were deleted and created again",
    )
    add_replay(commands)
    add_command(
        commands,
        "prepare",
        _prepare,
        "write an archive of Spark's classes beside its jars, so that the flow starts in less time",
        description="Start Spark once, and write the classes that it loads to `spark.jsa` beside its jars. This takes about "
        "a minute. Every local Spark of Fogline then starts in half the CPU time. Repeat it after an update of Java or Spark: "
        "an archive that does not fit is not used.",
        epilog="example: sudo fogline flow prepare",
        config=False,
    )
    flow_cluster.register(commands)
    flow_state.register(commands)


def _prepare(arguments: argparse.Namespace) -> int:
    from fogline_cloud.flows.driver.class_archive import write_class_archive  # noqa: PLC0415 - imports Spark

    began = time.monotonic()
    if not arguments.json:
        tell("starting Spark once; this takes about a minute")
    archive = write_class_archive()
    size, seconds = archive.stat().st_size, round(time.monotonic() - began, 1)
    if arguments.json:
        announce(archive=str(archive), bytes=size, seconds=seconds)
    else:
        show(f"{archive}: {size / 1e6:.0f} MB, written in {seconds:.0f} s")
    return 0


def _run(arguments: argparse.Namespace) -> int:
    settings, stop = with_master(load(arguments.config), arguments.master), threading.Event()
    for each in (signal.SIGINT, signal.SIGTERM):  # before Spark is imported, which takes seconds
        signal.signal(each, lambda *_: stop.set())
    with leased(settings.flow.checkpoint):
        return _run_leased(arguments, settings, stop)


def _run_leased(arguments: argparse.Namespace, settings: CloudSettings, stop: threading.Event) -> int:
    from fogline_cloud.flows.driver.metrics import FlowMetrics  # noqa: PLC0415 - imports Spark
    from fogline_cloud.flows.driver.session import spark_session  # noqa: PLC0415 - imports Spark
    from fogline_cloud.flows.job import QueryCallbacks, preflight, run_flow  # noqa: PLC0415 - a bridge needs no Spark

    metrics = FlowMetrics(KafkaClients(settings.kafka))

    def on_progress(progress: "Progress") -> None:
        metrics.on_progress(progress)
        tell_status(metrics.problem)
        if arguments.json:
            announce(**_facts(progress))
        else:
            _print(progress)

    def on_raw_progress(progress: "RawProgress") -> None:
        metrics.on_raw_progress(progress)
        tell_status(metrics.problem)
        if arguments.json:
            announce(**_raw_facts(progress))
        else:
            _print_raw(progress)

    on_failure, on_raw_failure = (_telling(metrics, note) for note in (metrics.on_failure, metrics.on_raw_failure))
    with contextlib.ExitStack() as serving:
        if settings.flow.metrics is not None:
            serve = serve_in_thread(settings.flow.metrics, "flow.metrics", metrics.read, lambda: metrics.problem)
            log.info("metrics at http://%s/metrics", serving.enter_context(serve))
        preflight(settings)
        if not arguments.once:
            command = ["table", "maintain", "--config", str(arguments.config), "--json"]
            every_s = settings.tables.maintain_every_min * 60
            serving.enter_context(maintained(command, every_s, metrics.on_failed_maintenance))
        export = serving.enter_context(_tracing(settings))
        spark = serving.enter_context(spark_session(settings))
        began = time.monotonic()

        def on_ready() -> None:
            since_s = round(time.monotonic() - began, 3)  # of the session
            announce(ready="flow", flow=settings.flow.name, tables=settings.flow.tables, session_s=since_s)

        run_flow(
            spark,
            settings,
            on_ready=on_ready,
            parsing=QueryCallbacks(
                on_progress=on_progress, on_offsets=metrics.on_offsets, on_failure=on_failure, export=export
            ),
            raw=QueryCallbacks(on_progress=on_raw_progress, on_offsets=metrics.on_raw_offsets, on_failure=on_raw_failure),
            stop=stop,
            once=arguments.once,
            accept_new_topics=arguments.accept_new_topics,
        )
    return 0


def _tracing(settings: CloudSettings) -> AbstractContextManager[ExportSpans | None]:
    return tracing(settings.tracing, "fogline-flow", tenant=settings.tenant, instance=settings.flow.name)


def _telling(metrics: "FlowMetrics", note: Callable[[str], None]) -> Callable[[str], None]:
    """Return a callback that notes why a query waits, and tells it to the service manager."""

    def on_failure(why: str) -> None:
        note(why)
        tell_status(metrics.problem)

    return on_failure


def _print(progress: "Progress") -> None:
    facts = _facts(progress)
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in progress.outcomes.items())
    line = f"batch {progress.batch}: {progress.events} events ({outcomes or 'none'}), {progress.readings} readings"
    tell(f"{line}, {facts['events_per_s']} events/s")


def _facts(progress: "Progress") -> dict[str, Any]:
    return {
        "batch": progress.batch,
        "events": progress.events,
        "readings": progress.readings,
        "outcomes": progress.outcomes,
        "seconds": round(progress.seconds, 3),
        "events_per_s": round(progress.events / progress.seconds) if progress.seconds else 0,
        **({"returned": progress.returned} if progress.returned else {}),
    }


def _print_raw(progress: "RawProgress") -> None:
    facts = _raw_facts(progress)
    line = f"raw batch {progress.batch}: {progress.records} records, {facts['records_per_s']} records/s"
    tell(line)


def _raw_facts(progress: "RawProgress") -> dict[str, Any]:
    return {
        "raw_batch": progress.batch,
        "records": progress.records,
        "seconds": round(progress.seconds, 3),
        "records_per_s": round(progress.records / progress.seconds) if progress.seconds else 0,
    }
