"""The page of the whole line, from devices to tables, which renews itself. All who look at it share what was read."""

import asyncio
import logging
import secrets
import time
from collections.abc import Coroutine
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from fogline.process.kernel_clock import wall_clock_ms
from fogline_cloud.api import requests
from fogline_cloud.api.context import ApiContext
from fogline_cloud.api.problems import Problem
from fogline_cloud.console.guard import Viewer
from fogline_cloud.console.live_pages import EVERY_S, LivePages
from fogline_cloud.console.one_thread import OneThread
from fogline_cloud.console.pages.line_state import (
    BridgeView,
    FleetGlance,
    FlowView,
    LinePart,
    TopicEnds,
    bridge_part,
    bridge_view,
    connected_part,
    device_part,
    flow_part,
    gateway_part,
    glance_at,
    kafka_part,
    table_part,
    view_of,
)
from fogline_cloud.console.pages.liveness import Liveness, look
from fogline_cloud.console.rendering import PARTS, Rendering
from fogline_cloud.devices.device_search import TURN
from fogline_cloud.flows.start.flow_state import read_states
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.line_metrics import read_metrics
from fogline_cloud.settings import CloudSettings

ALIVE_S: Final = 1.0
KAFKA_S: Final = 2.0
FLOW_S: Final = 10.0
FLEET_S: Final = 10.0
"""How old what was read may be before it is read again: what is there, the ends of topics, the flow's state, the registry."""
PATIENCE_S: Final = 1.0
"""A reader waits for so long for what is read just now; then the page shows what is known."""

_log = logging.getLogger("fogline.console")


class LinePage:
    """The handlers. `threads`: those that ask Kafka, the tables, and the bridge on this machine."""

    def __init__(
        self,
        settings: CloudSettings,
        context: ApiContext,
        rendering: Rendering,
        live: LivePages,
        threads: tuple[OneThread, OneThread, OneThread],
    ) -> None:
        self._settings = settings
        self._context = context
        self._rendering = rendering
        self._live = live
        self._of_kafka, self._of_tables, self._of_bridge = threads
        self._clients = KafkaClients(settings.kafka)
        self._topics = topics.raw_topics(settings.tenant)
        self._ends: list[TopicEnds] = []
        self._fleet = FleetGlance()
        self._of_parts = OneThread("the parts of the line")
        self._alive = Liveness()
        self._flow: FlowView | None = None
        self._flow_problem = ""
        self._bridge: BridgeView | None = None
        self._read_s: dict[str, float] = {}
        self._reading: dict[str, asyncio.Task[None]] = {}

    async def show(self, request: Request, viewer: Viewer) -> Response:
        """Show the line."""
        requests.allow(request)
        return await self._page("line.html", request, viewer, secrets.token_hex(8))

    async def renew(self, request: Request, viewer: Viewer) -> Response:
        """Send the part of the page that changes."""
        requests.allow(request, "page")
        return await self._page("line_parts.html", request, viewer, request.query_params.get("page", ""))

    async def _page(self, template: str, request: Request, viewer: Viewer, name: str) -> Response:
        if not self._context.policy.oversees(viewer.principal):
            raise Problem(403, "you may not see the line: that is for an [[admin]] of access.toml")
        parts = await self._parts(viewer)
        renews = self._live.may_renew(viewer.session.csrf, name, asyncio.get_running_loop().time())
        return self._rendering.page(
            template, request, viewer, parts=parts, renew=f"{PARTS}/line?page={name}" if renews else None, every_s=EVERY_S
        )

    async def _parts(self, viewer: Viewer) -> list[LinePart]:
        due = [
            self._due("fleet", FLEET_S, self._read_fleet),
            self._due("kafka", KAFKA_S, self._read_ends),
            self._due("flow", FLOW_S, self._read_flow),
            self._due("bridge", ALIVE_S, self._read_bridge),
            self._due("parts", ALIVE_S, self._look),
        ]
        if reading := {task for task in due if task is not None}:
            await asyncio.wait(reading, timeout=PATIENCE_S)
        now_s, now_ms, session = time.time(), wall_clock_ms(), viewer.session
        away = session.why_failed if session.failed_s > session.checked_s else ""
        alive = self._alive
        kafka_away = alive.kafka or (self._context.tail.behind if self._context.tail_loaded else "")
        former, newest = self._ends if len(self._ends) == 2 else (None, self._ends[0] if self._ends else None)
        return [
            device_part(self._fleet),
            gateway_part(self._fleet, now_ms) if self._bridge is None else connected_part(self._bridge, now_s),
            bridge_part(away, "" if self._bridge is None else self._bridge.problem, alive.bridge),
            kafka_part(kafka_away, former, newest),
            flow_part(self._flow, self._flow_problem, now_s, alive.flow),
            table_part(self._flow, now_s),
        ]

    def _due(self, what: str, fresh_s: float, read: Any) -> "asyncio.Task[None] | None":
        """Return the task that reads something, if what is known is too old."""
        now_s = asyncio.get_running_loop().time()
        if what not in self._reading and now_s - self._read_s.get(what, float("-inf")) >= fresh_s:
            task = self._reading[what] = asyncio.create_task(self._read(what, read()), name=f"line {what}")
            return task
        return self._reading.get(what)

    async def _read(self, what: str, reading: Coroutine[Any, Any, None]) -> None:
        try:
            await reading
        except Exception as error:  # noqa: BLE001 - the page goes on with what it knows
            _log.warning("the page of the line cannot read its part %s: %s", what, error)
        finally:
            self._read_s[what] = asyncio.get_running_loop().time()
            del self._reading[what]

    async def _look(self) -> None:
        self._alive = await self._of_parts.ask(lambda: look(self._settings))

    async def _read_fleet(self) -> None:
        entries = list(self._context.devices)
        now_ms = wall_clock_ms()
        known = FleetGlance()
        for begin in range(0, len(entries), TURN):
            known = _sum(known, glance_at(entries[begin : begin + TURN], now_ms))
            await asyncio.sleep(0)  # other requests have their turn
        self._fleet = known

    async def _read_ends(self) -> None:
        def ends() -> TopicEnds:
            partitions = [(topic, shard) for topic in self._topics for shard in range(self._settings.shards)]
            bounds, found = self._clients.bounds(partitions, committed=True), dict.fromkeys(self._topics, 0)
            for (topic, _), (_, end) in bounds.items():
                found[topic] += end
            return TopicEnds(time.monotonic(), found)

        self._ends = [*self._ends[-1:], await self._of_kafka.ask(ends)]

    async def _read_bridge(self) -> None:
        if (address := self._settings.bridge.metrics) is None:
            return
        try:
            self._bridge = await self._of_bridge.ask(lambda: bridge_view(read_metrics(address, "bridge.metrics")))
        except Problem:
            self._bridge = None  # of one that is gone nothing is known

    async def _read_flow(self) -> None:
        try:
            self._flow = await self._of_tables.ask(lambda: view_of(read_states(self._settings), time.time()))
            self._flow_problem = ""
        except Problem as problem:
            self._flow_problem = str(problem)


def _sum(one: FleetGlance, other: FleetGlance) -> FleetGlance:
    gateways = dict(one.gateways)
    for name, seen_ms in other.gateways.items():
        gateways[name] = max(seen_ms, gateways.get(name, 0))
    return FleetGlance(one.devices + other.devices, one.heard + other.heard, one.never + other.never, gateways)
