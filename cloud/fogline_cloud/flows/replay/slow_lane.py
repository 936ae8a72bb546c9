"""The slow lane: slow events are parsed again with a larger limit, beside the query that parses.

An event gets a try at each age of `AGES`. What is slow after the last one stays so, until somebody redrives it.
"""

import logging
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import msgspec
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from fogline.errors import FoglineError
from fogline_cloud.flows.driver.plan import plan_of
from fogline_cloud.flows.driver.session import log_file
from fogline_cloud.flows.driver.spark_failure import explained
from fogline_cloud.flows.replay.selection import Selection, Span
from fogline_cloud.flows.replay.table_replay import TableReplay
from fogline_cloud.flows.tables.schema import EventOutcome
from fogline_cloud.settings import CloudSettings

AGES = tuple(timedelta(minutes=minutes) for minutes in (1, 10, 60, 360, 1440))
"""Ages at which a slow event is tried again."""
SLOW_LANE = "slow-lane"
"""Spark's job group of the lane."""
INTERVAL_S = 60.0
"""Time between two looks for slow events of these ages."""

log = logging.getLogger(__name__)


def due(since: datetime, now: datetime) -> tuple[Span, ...]:
    """Return the spans of `ingested` of events that have come to an age of `AGES` between `since` and `now`."""
    return tuple((since - age, now - age) for age in AGES)


class SlowLane:
    """Tries slow events of one flow again. `interval_s`: time between two looks."""

    def __init__(self, spark: SparkSession, settings: CloudSettings, interval_s: float = INTERVAL_S) -> None:
        self._spark = spark
        self._settings = settings
        self._interval_s = interval_s

    def run(self, stop: threading.Event, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        """Run until `stop` is set. A failure is logged, and the next look covers its time too. Cancel with the job group."""
        self._spark.sparkContext.setJobGroup(SLOW_LANE, "slow events are tried again", interruptOnCancel=True)
        since = now()
        while not stop.wait(self._interval_s):
            until = now()
            try:
                self.look(since, until)
            except (FoglineError, PySparkException, Py4JError) as error:
                if stop.is_set():
                    return
                log.warning("the slow lane waits: %s", explained(error, log_file(self._settings)))
            else:
                since = until

    def look(self, since: datetime, until: datetime) -> int:
        """Try the events again whose time has come between two moments. Returns the number of those that landed."""
        selection = Selection(outcomes=frozenset({EventOutcome.SLOW}), ingested=due(since, until))
        limit_s = self._settings.flow.slow_limit_ms / 1000
        plan = msgspec.structs.replace(plan_of(self._settings), limit_s=limit_s)  # with the parsers of today
        found = TableReplay(self._spark, self._settings, plan, log.debug, parallel=1).run(selection, publish=True)
        if found.selected:
            log.info("the slow lane tried %d events again: %d are not slow any more", found.selected, found.changed)
        return found.changed
