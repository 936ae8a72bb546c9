"""The page of the fleet: the devices that match, on the page and as CSV."""

from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from fogline.address import DeviceAddress
from fogline.process.kernel_clock import wall_clock_ms
from fogline_cloud.access.policy import Action
from fogline_cloud.api import requests
from fogline_cloud.api.context import ApiContext
from fogline_cloud.api.device_routes import DeviceRoutes
from fogline_cloud.console.csv_lines import csv_response
from fogline_cloud.console.guard import Viewer
from fogline_cloud.console.pages.fleet_search import MAX_CHARS, SILENT, DeviceSearch, read_search
from fogline_cloud.console.rendering import ROOT, Rendering
from fogline_cloud.devices.device_facts import facts_of
from fogline_cloud.devices.device_table import MAX_DEVICES, DeviceEntry

SHOWN = 50
"""Devices on one page."""
COLUMNS = ("device", "type", "gateways", "last_seen", "firmware", "tags")


class FleetPage:
    """The handlers."""

    def __init__(self, context: ApiContext, rendering: Rendering) -> None:
        self._context = context
        self._rendering = rendering
        self._devices = DeviceRoutes(context)

    async def listing(self, request: Request, viewer: Viewer) -> Response:
        """Show the devices that match, by name."""
        requests.allow(request, *DeviceSearch.__struct_fields__)
        search = read_search(request.query_params)
        found = await self._found(search, viewer, SHOWN + 1)
        shown = found[:SHOWN]
        return self._rendering.page(
            "fleet.html",
            request,
            viewer,
            search=search,
            silences=SILENT,
            devices=shown,
            now_ms=wall_clock_ms(),
            first=_address(search, "") if search.after else None,
            next=_address(search, shown[-1].name) if len(found) > SHOWN else None,
            csv=f"{ROOT}/devices.csv?{urlencode(search.parameters())}",
        )

    async def find(self, request: Request, viewer: Viewer) -> Response:
        """Lead to the page of the device with a name, or to those with such a name."""
        requests.allow(request, "device")
        name = request.query_params.get("device", "").strip()
        address = DeviceAddress(self._context.tenant, name)
        known = self._context.devices.get(name) is not None
        if known and self._context.policy.may(viewer.principal, Action.RECEIVE, address):
            return RedirectResponse(f"{ROOT}/devices/{quote(name, safe='')}", 303)
        return RedirectResponse(f"{ROOT}/devices?{urlencode({'name': name[:MAX_CHARS]})}", 303)

    async def csv(self, request: Request, viewer: Viewer) -> Response:
        """Send all devices that match as CSV (RFC 4180)."""
        requests.allow(request, *DeviceSearch.__struct_fields__)
        found = await self._found(read_search(request.query_params), viewer, MAX_DEVICES)
        return csv_response("devices.csv", COLUMNS, map(_row, found))

    async def _found(self, search: DeviceSearch, viewer: Viewer, most: int) -> list[DeviceEntry]:
        wanted, now_ms = search.filter(), wall_clock_ms()
        self._context.require_records()

        def matches(device: DeviceEntry) -> bool:
            return device.name > search.after and wanted.matches(device) and search.is_silent(device, now_ms)

        return await self._devices.select(viewer.principal, matches, most)


def _address(search: DeviceSearch, after: str) -> str:
    return f"{ROOT}/devices?{urlencode(search.parameters(after))}"


def _row(device: DeviceEntry) -> list[object]:
    facts = facts_of(device)
    facts["gateways"] = " ".join(facts["gateways"])
    facts["tags"] = " ".join(f"{name}={value}" for name, value in facts["tags"].items())
    return [facts[name] for name in COLUMNS]
