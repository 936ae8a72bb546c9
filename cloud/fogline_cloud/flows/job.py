"""The flow as a running job: checks what it needs, wires source, parsing and sinks, runs until it is told to stop."""

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from fogline.errors import Misconfigured, Unreachable
from fogline_cloud.flows.commit import Progress
from fogline_cloud.flows.key_file import load_keys
from fogline_cloud.flows.parsers import checked_overrides
from fogline_cloud.flows.query import Query
from fogline_cloud.flows.session import log_file, spark_session
from fogline_cloud.flows.source import partitions
from fogline_cloud.settings import Settings

log = logging.getLogger(__name__)

_BACK_OFF_S = (1.0, 2.0, 5.0, 10.0, 30.0)


def run_flow(
    settings: Settings,
    *,
    on_ready: Callable[[], None],
    on_progress: Callable[[Progress], None],
    stop: threading.Event,
    once: bool = False,
    accept_new_topics: bool = False,
) -> None:
    """Run the flow in a Spark session of its own until `stop` is set, or with `once` until all that is there is done.

    `accept_new_topics`: read raw topics that were deleted and made again from their beginning, with a new checkpoint.
    `on_ready` is called when records are being read, `on_progress` after every micro-batch (in another thread).
    Raises `Misconfigured` where a person has to act, in one line; Spark's own words are in `log_file(settings)`. A Kafka
    that goes away is waited for.
    """
    counts = preflight(settings)
    with spark_session(settings) as spark:
        run_on(
            spark,
            settings,
            counts,
            on_ready=on_ready,
            on_progress=on_progress,
            stop=stop,
            once=once,
            accept_new_topics=accept_new_topics,
        )


def preflight(settings: Settings) -> dict[str, int]:
    """Check parsers, folders and Kafka, before Spark starts. Returns the partition count of every topic."""
    checked_overrides(settings.flow.parsers)
    load_keys(settings.flow.ble_keys)
    if "%" in settings.flow.tables:
        raise Misconfigured(f"[flow] tables = {settings.flow.tables}: a folder with % in its name cannot be used")
    for key, folder in (("tables", settings.flow.tables), ("checkpoint", settings.flow.checkpoint)):
        if "://" not in folder:
            _require_writable(Path(folder), f"[flow] {key}")
    return partitions(settings)


def _require_writable(folder: Path, key: str) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Misconfigured(f"{key} = {folder}: the folder cannot be made: {error.strerror}") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise Misconfigured(f"{key} = {folder}: the folder is not writable")


def run_on(
    spark: SparkSession,
    settings: Settings,
    counts: dict[str, int],
    *,
    on_ready: Callable[[], None],
    on_progress: Callable[[Progress], None],
    stop: threading.Event,
    once: bool = False,
    accept_new_topics: bool = False,
) -> None:
    """`run_flow` in a given session. `counts`: what `preflight` found."""
    failures = 0
    ready = False

    def progressed(progress: Progress) -> None:
        nonlocal failures
        failures = 0
        on_progress(progress)

    def reading() -> None:
        nonlocal ready
        if not ready:
            on_ready()
        ready = True

    epoch: int | None = None
    while not stop.is_set():
        query = Query(spark, settings, counts, progressed, epoch, accept_new_topics=accept_new_topics)
        try:
            query.run(stop, reading, once=once)
        except Unreachable as error:
            delay_s = _BACK_OFF_S[min(failures, len(_BACK_OFF_S) - 1)]
            failures += 1
            log.warning("%s; trying again in %.0f s (see %s)", error, delay_s, log_file(settings))
            stop.wait(delay_s)
            epoch = query.epoch
        else:
            return
