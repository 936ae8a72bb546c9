"""The page of one device: what it is, its latest readings with a plot, its events with their bytes, gaps, and commands."""

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from fogline.address import DeviceAddress, Reports, shown
from fogline.events.event import Lane
from fogline.process.kernel_clock import wall_clock_ms
from fogline_cloud.access.policy import Action
from fogline_cloud.api import requests
from fogline_cloud.api.command_routes import CommandRoutes
from fogline_cloud.api.context import ApiContext
from fogline_cloud.api.problems import Problem
from fogline_cloud.console.guard import Viewer
from fogline_cloud.console.pages.device_commands import DeviceCommands
from fogline_cloud.console.pages.device_rows import DeviceRows
from fogline_cloud.console.pages.gap_words import GapRow, gap_row
from fogline_cloud.console.pages.silence_cause import silence_cause
from fogline_cloud.console.proof.proof_desk import ProofDesk, ProofOrder
from fogline_cloud.console.rendering import ROOT, Rendering
from fogline_cloud.devices.device_facts import all_facts_of
from fogline_cloud.devices.device_search import TURN
from fogline_cloud.devices.device_table import DeviceEntry

EVENTS: Final = 20
COMMANDS: Final = 10
SPANS: Final = {
    "1h": ("1 hour", timedelta(hours=1)),
    "1d": ("1 day", timedelta(days=1)),
    "7d": ("7 days", timedelta(days=7)),
    "30d": ("30 days", timedelta(days=30)),
    "1y": ("1 year", timedelta(days=365)),
}
GAP_SPANS: Final = ("1d", "7d", "30d")
GAPS: Final = 50
_USUAL: Final = "1d"


class DevicePage:
    """The handlers."""

    def __init__(
        self, context: ApiContext, rendering: Rendering, tables: DeviceRows, commands: DeviceCommands, desk: ProofDesk
    ) -> None:
        self._context = context
        self._rendering = rendering
        self._tables = tables
        self._of_device = commands
        self._desk = desk
        self._commands = CommandRoutes(context)

    async def show(self, request: Request, viewer: Viewer) -> Response:
        """Show a device."""
        requests.allow(request, "metric", "span", "gaps")
        device = self._device(request, viewer)
        span, gap_span = (_span(request, name, known) for name, known in (("span", SPANS), ("gaps", GAP_SPANS)))
        now = datetime.now(UTC)
        commands, _ = await self._commands.select(viewer.principal, lambda each: each.device == device.name, COMMANDS)
        readings, events, gaps, why = None, None, list[GapRow](), ""
        try:
            if self._may_see_readings(viewer, device.name):
                readings = await self._tables.latest(device.name, now)
            if self._may_see_events(viewer, device.name):
                events = await self._tables.events(device.name, EVENTS, now)
                heard_by = [each for each in device.gateways if each]
                gaps = list(map(gap_row, await self._tables.gaps(heard_by, GAPS, now - SPANS[gap_span][1])))
        except Problem as problem:
            why = str(problem)
        metric = request.query_params.get("metric") or _first_number(readings)
        return self._rendering.page(
            "device.html",
            request,
            viewer,
            device=device,
            facts=all_facts_of(device),
            silence=silence_cause(device, await self._newest_of_gateway(device), wall_clock_ms()),
            oversees=self._context.policy.oversees(viewer.principal),
            readings=readings,
            events=events,
            gaps=gaps,
            gap_span=gap_span,
            gap_spans={name: SPANS[name][0] for name in GAP_SPANS},
            proof=self._proof_of(viewer, device.name),
            yesterday=(now - timedelta(days=1)).date().isoformat(),
            why=why,
            metric=metric,
            span=span,
            spans={name: text for name, (text, _) in SPANS.items()},
            plot=f"{ROOT}/devices/{device.name}/readings.json?{urlencode({'metric': metric, 'span': span})}"
            if metric
            else None,
            commands=commands,
            offered=self._of_device.offered(viewer.principal, device.name),
        )

    async def readings(self, request: Request, viewer: Viewer) -> Response:
        """Send the points of a plot as JSON: times in seconds since 1970, least, mean and greatest values."""
        requests.allow(request, "metric", "span")
        name = requests.device_of(request)
        if not self._may_see_readings(viewer, name):
            raise Problem(403, f"you may not see readings of {name}")
        span = _span(request, "span", SPANS)
        end = datetime.now(UTC)
        found = await self._tables.series(name, request.query_params.get("metric", ""), end - SPANS[span][1], end)
        return Response(msgspec.json.encode(found), media_type="application/json")

    async def _newest_of_gateway(self, device: DeviceEntry) -> int | None:
        """Return when the gateway that heard a device last has heard any device, None if there is none."""
        gateway, newest_ms = (device.gateways or [""])[0], device.seen_ms
        if newest_ms is None or not gateway:
            return None
        for number, each in enumerate(self._context.devices):
            if number % TURN == 0:
                await asyncio.sleep(0)  # other requests have their turn
            if (sighting := each.seen_by(gateway)) is not None:
                newest_ms = max(newest_ms, sighting.seen_ms)
        return newest_ms

    def _proof_of(self, viewer: Viewer, device: str) -> ProofOrder | None:
        """Return what the ledger has answered the viewer about the device last."""
        order = self._desk.newest(str(viewer.principal))
        return order if order is not None and order.device == device and self._may_see_events(viewer, device) else None

    def _device(self, request: Request, viewer: Viewer) -> DeviceEntry:
        name = requests.device_of(request)
        self._context.require_records()
        device = self._context.devices.get(name)
        address = DeviceAddress(self._context.tenant, name)
        if device is None or not self._context.policy.may(viewer.principal, Action.RECEIVE, address):
            raise Problem(404, f"device {shown(name)} is not in the registry")
        return device

    def _may_see_readings(self, viewer: Viewer, device: str) -> bool:
        return self._context.may_see(viewer.principal, device) or self._may_see_events(viewer, device)

    def _may_see_events(self, viewer: Viewer, device: str) -> bool:
        """Return True for who may receive the events of a device as they are."""
        address = Reports(Lane.TELEMETRY.value, self._context.tenant, device)
        return self._context.policy.may(viewer.principal, Action.RECEIVE, address)


def _span(request: Request, name: str, known: Iterable[str]) -> str:
    """Return a length of time that a parameter names. Raises `Problem` (400)."""
    span = request.query_params.get(name, _USUAL)
    if span not in known:
        raise Problem(400, f"{name}={shown(span)}: expected one of {', '.join(known)}")
    return span


def _first_number(readings: list[dict[str, Any]] | None) -> str:
    return next((each["metric"] for each in readings or () if each["value"] is not None), "")
