"""The page of coverage: how many devices of each type were heard on each day, on the page and as CSV."""

import asyncio
import time
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Final
from urllib.parse import urlencode

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
from fogline_cloud.devices.device_table import DeviceEntry
from fogline_cloud.fleet.fleet_table import fleet_of
from fogline_cloud.fleet.questions import DAY, TYPE, FleetDevice, columns_of, coverage, of_devices
from fogline_cloud.settings import CloudSettings

DAYS: Final = {"7d": ("7 days", 7), "30d": ("30 days", 30), "90d": ("90 days", 90)}
SHOWN: Final = 500
"""Rows on the page, the newest days. The CSV has all."""
FRESH_S: Final = 60.0
"""An answer for so old is sent again: who looks at it often costs no more than who looks once a minute."""
MAX_CHARS: Final = 200
COLUMNS: Final = ("day", "type", "registered", "heard", "share", "events")
_USUAL: Final = "7d"

_Row = dict[str, Any]


class CoveragePage:
    """The handlers."""

    def __init__(self, settings: CloudSettings, context: ApiContext, rendering: Rendering, tables: OneThread) -> None:
        self._settings = settings
        self._context = context
        self._rendering = rendering
        self._tables = tables
        self._known: dict[str, tuple[float, list[_Row]]] = {}

    async def show(self, request: Request, viewer: Viewer) -> Response:
        """Show the coverage: yesterday in words, then every day."""
        kind, span = self._asked(request, viewer)
        rows, why = list[_Row](), ""
        try:
            rows = await self._rows(kind, span)
        except Problem as problem:
            why = str(problem)
        yesterday = datetime.now(UTC).date() - timedelta(days=1)
        return self._rendering.page(
            "coverage.html",
            request,
            viewer,
            yesterday=yesterday,
            of_yesterday=[each for each in rows if each[DAY] == yesterday.isoformat() and each["registered"]],
            rows=rows[:SHOWN],
            count=len(rows),
            why=why,
            type=kind,
            span=span,
            spans={name: text for name, (text, _) in DAYS.items()},
            csv=f"{ROOT}/coverage.csv?{urlencode({'type': kind, 'span': span})}",
        )

    async def csv(self, request: Request, viewer: Viewer) -> Response:
        """Send every row as CSV."""
        kind, span = self._asked(request, viewer)
        rows = await self._rows(kind, span)
        return csv_response("coverage.csv", COLUMNS, ([each[name] for name in COLUMNS] for each in rows))

    def _asked(self, request: Request, viewer: Viewer) -> tuple[str, str]:
        if not self._context.policy.oversees(viewer.principal):
            raise Problem(403, "you may not see the coverage of all devices: that is for an [[admin]] of access.toml")
        requests.allow(request, "type", "span")
        kind, span = request.query_params.get("type", "").strip()[:MAX_CHARS], request.query_params.get("span", _USUAL)
        if span not in DAYS:
            raise Problem(400, f"span={shown(span)}: expected one of {', '.join(DAYS)}")
        return kind, span

    async def _rows(self, kind: str, span: str) -> list[_Row]:
        """Return a row for each day and type, the newest day first. Raises `Problem` (503)."""
        read_s, rows = self._known.get(span, (float("-inf"), []))
        if time.monotonic() - read_s > FRESH_S:
            self._context.require_records()
            registry = await self._registry()
            rows = await self._tables.ask(partial(self._read, registry, datetime.now(UTC).date(), DAYS[span][1]))
            self._known[span] = time.monotonic(), rows
        return [each for each in rows if not kind or fnmatchcase(each[TYPE] or "", kind)]

    async def _registry(self) -> dict[str, FleetDevice]:
        found = {}
        for number, each in enumerate(self._context.devices):
            if number % TURN == 0:
                await asyncio.sleep(0)  # other requests have their turn
            found[each.name] = _fleet_device(each)
        return found

    def _read(self, registry: Mapping[str, FleetDevice], today: date, days: int) -> list[_Row]:
        """Count. On the thread."""
        by, since = (DAY, TYPE), today - timedelta(days=days - 1)
        rows = fleet_of(self._settings, today).current(columns_of("coverage", by), since)
        found = coverage(of_devices(rows, self._settings.tenant), registry, by, today)
        return sorted(found, key=lambda each: str(each[DAY]), reverse=True)


def _fleet_device(device: DeviceEntry) -> FleetDevice:
    return FleetDevice(device.type, device.firmware, (device.gateways or [""])[0])
