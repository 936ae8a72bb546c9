"""The running flow: checks its requirements, and runs queries until it is stopped."""

import logging
import os
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path

from pyspark.sql import SparkSession

from fogline.errors import Misconfigured, Unreachable
from fogline_cloud.flows.commit import Progress
from fogline_cloud.flows.kafka import spark_options
from fogline_cloud.flows.key_file import load_keys
from fogline_cloud.flows.metrics import Offsets
from fogline_cloud.flows.parsed_sink import ParsedSink
from fogline_cloud.flows.parsers import checked_overrides
from fogline_cloud.flows.query import Query
from fogline_cloud.flows.session import log_file
from fogline_cloud.flows.source import partitions
from fogline_cloud.settings import CloudSettings

log = logging.getLogger(__name__)

_BACK_OFF_S = (1.0, 2.0, 5.0, 10.0, 30.0)


def preflight(settings: CloudSettings) -> dict[str, int]:
    """Check parsers, folders and Kafka before Spark starts. Returns the partition count of every topic."""
    checked_overrides(settings.flow.parsers)
    load_keys(settings.flow.ble_keys)
    if "%" in settings.flow.tables:
        raise Misconfigured(f"[flow] tables = {settings.flow.tables}: a folder with % in its name cannot be used")
    for key, folder in (("tables", settings.flow.tables), ("checkpoint", settings.flow.checkpoint)):
        if "://" not in folder:
            _require_writable(Path(folder), f"[flow] {key}")
    spark_options(settings.kafka)
    return partitions(settings)


def _require_writable(folder: Path, key: str) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Misconfigured(f"{key} = {folder}: the folder cannot be created: {error.strerror}") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise Misconfigured(f"{key} = {folder}: the folder is not writable")


def run_flow(
    spark: SparkSession,
    settings: CloudSettings,
    counts: dict[str, int],
    *,
    on_ready: Callable[[], None],
    on_progress: Callable[[Progress], None],
    stop: threading.Event,
    on_offsets: Callable[[Offsets], None] = lambda _: None,
    on_failure: Callable[[str], None] = lambda _: None,
    once: bool = False,
    accept_new_topics: bool = False,
) -> None:
    """Run the flow until `stop` is set, or with `once` to the end of the records that Kafka has now.

    `counts`: from `preflight`. `accept_new_topics`: read raw topics that were created again, if the checkpoint is new.
    `on_ready` is called once, `on_progress` after every micro-batch on another thread, `on_offsets` soon after, and
    `on_failure` before each wait for Kafka. Raises `Misconfigured`; Spark's own messages are in `log_file(settings)`.
    """
    failures = 0
    on_first_read = cache(on_ready)  # every query begins to read
    epoch: int | None = None

    def progressed(progress: Progress) -> None:
        nonlocal failures
        failures = 0
        on_progress(progress)

    while not stop.is_set():
        sink = ParsedSink(spark, settings, progressed)
        query = Query(spark, settings, counts, sink, on_offsets, epoch=epoch, accept_new_topics=accept_new_topics)
        try:
            query.run(stop, on_first_read, once=once)
        except Unreachable as error:
            delay_s = _BACK_OFF_S[min(failures, len(_BACK_OFF_S) - 1)]
            failures += 1
            log.warning("%s. Retrying in %.0f s (see %s).", error, delay_s, log_file(settings))
            on_failure(str(error))
            stop.wait(delay_s)
            epoch = query.epoch
        else:
            return
