"""Carries out orders to parse events again (`fogline_cloud.flows.orders.redrive_orders`), beside the query that parses."""

import logging
import threading
import time
from datetime import UTC, datetime

import msgspec
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from fogline.errors import FoglineError, Misconfigured
from fogline_cloud.flows.driver.plan import plan_of
from fogline_cloud.flows.driver.session import log_file
from fogline_cloud.flows.driver.spark_failure import explained
from fogline_cloud.flows.orders.redrive_orders import RedriveEnd, RedriveOrder, RedriveOrders
from fogline_cloud.flows.replay.selection import Selection
from fogline_cloud.flows.replay.table_replay import TableReplay
from fogline_cloud.flows.tables.schema import EventOutcome
from fogline_cloud.settings import CloudSettings

REDRIVES = "redrives"
"""Spark's job group of redrives."""
INTERVAL_S = 5.0
"""Time between two looks for new orders."""
TOO_OLD_S = 86_400.0
"""An order that no flow has taken for so long is not carried out any more: whoever ordered it does not expect it."""

log = logging.getLogger(__name__)


class RedriveQueue:
    """Carries out the orders for one flow, one after the other. `interval_s`: time between two looks."""

    def __init__(self, spark: SparkSession, settings: CloudSettings, interval_s: float = INTERVAL_S) -> None:
        self._spark = spark
        self._settings = settings
        self._interval_s = interval_s
        self._orders = RedriveOrders(settings)
        self._known: int | None = None  # the number of the newest order that a look has seen; None before the first look

    def run(self, stop: threading.Event) -> None:
        """Run until `stop` is set. A failure is logged, and the next look tries again. Cancel with the job group."""
        self._spark.sparkContext.setJobGroup(REDRIVES, "events are parsed again", interruptOnCancel=True)
        while not stop.wait(self._interval_s):
            try:
                self.look(stop)
            except (FoglineError, PySparkException, Py4JError) as error:
                if stop.is_set():
                    return
                self._known = None
                log.warning("a redrive waits: %s", explained(error, log_file(self._settings)))

    def look(self, stop: threading.Event) -> None:
        """Carry out the orders that wait. Without a new one that is one question to the store."""
        if self._known is not None and not self._orders.has(self._known + 1):
            return
        newest = self._orders.last()
        for order in self._orders.waiting():
            if stop.is_set():
                return
            end = self._end_of(order, stop)
            self._orders.end(order.number, end)
            log.info("redrive %d of %s: %s", order.number, order.who, end.why or f"{end.changed} of {end.selected} changed")
        self._known = newest

    def _end_of(self, order: RedriveOrder, stop: threading.Event) -> RedriveEnd:
        """Carry out an order, and return what came of it. Raises what may be over at the next try."""
        now_ms = time.time_ns() // 1_000_000
        if now_ms - order.at_ms > TOO_OLD_S * 1000:
            return RedriveEnd(at_ms=now_ms, why="no flow has taken the order for a day: order it again")
        try:
            plan = plan_of(self._settings)
            outcomes = frozenset(EventOutcome(each) for each in order.outcomes)
            if EventOutcome.SLOW in outcomes and (slow_ms := self._settings.flow.slow_limit_ms):
                plan = msgspec.structs.replace(plan, limit_s=slow_ms / 1000)
            since = None if order.since_ms is None else datetime.fromtimestamp(order.since_ms / 1000, UTC)
            selection = Selection(outcomes=outcomes, since=since, reason=order.reason, parser=order.parser)
            found = TableReplay(self._spark, self._settings, plan, log.debug, parallel=1).run(selection, publish=True)
        except (Misconfigured, ValueError) as error:
            return RedriveEnd(at_ms=now_ms, why=str(error))
        except (PySparkException, Py4JError) as error:
            if stop.is_set():
                raise
            return RedriveEnd(at_ms=now_ms, why=str(explained(error, log_file(self._settings))))
        return RedriveEnd(
            at_ms=time.time_ns() // 1_000_000, selected=found.selected, changed=found.changed, outcomes=found.outcomes
        )
