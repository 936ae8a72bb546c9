"""The page of the gateways: connected or not, what waits in them, and how many devices each has heard; also as CSV."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Final
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from fogline.address import shown
from fogline_cloud.api import requests
from fogline_cloud.api.context import ApiContext
from fogline_cloud.api.problems import Problem
from fogline_cloud.console.csv_lines import csv_response
from fogline_cloud.console.guard import Viewer
from fogline_cloud.console.one_thread import OneThread
from fogline_cloud.console.rendering import ROOT, Rendering
from fogline_cloud.devices.device_search import TURN
from fogline_cloud.line_metrics import ListedGateway, gateways_of, read_metrics
from fogline_cloud.settings import CloudSettings

SHOWN: Final = 200
"""Gateways on the page, the first by name. The CSV has all."""
MAX_CHARS: Final = 200
_WEEK_S: Final = 7 * 86_400.0
COLUMNS: Final = ("gateway", "connected", "last_seen", "version", "backlog", "certificate_end", "clock", "devices")
STATES: Final = {
    "": "any",
    "away": "not connected",
    "waiting": "events wait in it",
    "certificate": "certificate ends within 7 days",
    "clock": "clock not known to be right",
}


class GatewayRow(msgspec.Struct, frozen=True):
    """A gateway. `metrics`: as the bridge on this machine knows it, None if it does not; `seen_s`: the newest event."""

    name: str
    metrics: ListedGateway | None
    devices: int
    seen_s: float

    @property
    def last_seen_s(self) -> float:
        """The time of its last message, as far as it is known, in seconds since 1970."""
        return max(self.seen_s, self.metrics.last_seen_s if self.metrics is not None else 0.0)


class GatewaysPage:
    """The handlers."""

    def __init__(self, settings: CloudSettings, context: ApiContext, rendering: Rendering, bridge: OneThread) -> None:
        self._settings = settings
        self._context = context
        self._rendering = rendering
        self._bridge = bridge

    async def show(self, request: Request, viewer: Viewer) -> Response:
        """Show the gateways that match."""
        name, state = self._asked(request, viewer)
        rows, why = await self._rows(name, state)
        return self._rendering.page(
            "gateways.html",
            request,
            viewer,
            rows=rows[:SHOWN],
            count=len(rows),
            why=why,
            asked=self._settings.bridge.metrics is not None,
            now_s=time.time(),
            name=name,
            state=state,
            states=STATES,
            csv=f"{ROOT}/gateways.csv?{urlencode({'name': name, 'state': state})}",
        )

    async def csv(self, request: Request, viewer: Viewer) -> Response:
        """Send all gateways that match as CSV."""
        rows, _ = await self._rows(*self._asked(request, viewer))
        return csv_response("gateways.csv", COLUMNS, map(_cells, rows))

    def _asked(self, request: Request, viewer: Viewer) -> tuple[str, str]:
        if not self._context.policy.oversees(viewer.principal):
            raise Problem(403, "you may not see the gateways: that is for an [[admin]] of access.toml")
        requests.allow(request, "name", "state")
        name, state = request.query_params.get("name", "").strip()[:MAX_CHARS], request.query_params.get("state", "")
        if state not in STATES:
            raise Problem(400, f"state={shown(state)}: expected one of {', '.join(filter(None, STATES))}")
        return name, state

    async def _rows(self, name: str, state: str) -> tuple[list[GatewayRow], str]:
        """Return the gateways that match, by name, and why less is known of them, or "". Raises `Problem` (503)."""
        self._context.require_records()
        known, why = dict[str, ListedGateway](), ""
        if (address := self._settings.bridge.metrics) is not None:
            try:
                found = await self._bridge.ask(lambda: gateways_of([read_metrics(address, "bridge.metrics")]))
                known = {each.gateway: each for each in found}
            except Problem as problem:
                why = str(problem)
        devices, seen_s = Counter[str](), dict[str, float]()
        for number, device in enumerate(self._context.devices):
            if number % TURN == 0:
                await asyncio.sleep(0)  # other requests have their turn
            if device.sightings and device.gateways[0]:
                devices[device.gateways[0]] += 1
            for gateway, sighting in device.sightings:
                if gateway:
                    seen_s[gateway] = max(sighting.seen_ms / 1000, seen_s.get(gateway, 0.0))
        pattern, matches = name if set("*?") & set(name) else f"*{name}*", _state(state)
        rows = [
            GatewayRow(each, known.get(each), devices[each], seen_s.get(each, 0.0))
            for each in sorted(known.keys() | seen_s.keys())
            if fnmatchcase(each, pattern)
        ]
        return [each for each in rows if matches(each)], why


def _state(state: str) -> Callable[[GatewayRow], bool]:
    """Return the filter of a state. A gateway of which nothing is known matches none but any."""
    if not state:
        return lambda _: True

    def matches(row: GatewayRow) -> bool:
        found = row.metrics
        if found is None:
            return False
        match state:
            case "away":
                return not found.connected
            case "waiting":
                return bool(found.backlog)
            case "certificate":
                return found.certificate_end_s is not None and found.certificate_end_s - time.time() < _WEEK_S
            case _:
                return found.clock_right is False

    return matches


def _cells(row: GatewayRow) -> list[object]:
    found = row.metrics if row.metrics is not None else ListedGateway(gateway=row.name)
    return [
        row.name,
        None if row.metrics is None else "yes" if found.connected else "no",
        _time(row.last_seen_s),
        found.version,
        found.backlog,
        _time(found.certificate_end_s),
        None if found.clock_right is None else "right" if found.clock_right else "unknown",
        row.devices,
    ]


def _time(moment_s: float | None) -> str | None:
    return f"{datetime.fromtimestamp(moment_s, UTC):%Y-%m-%dT%H:%M:%SZ}" if moment_s else None
