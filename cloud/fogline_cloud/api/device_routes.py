"""`/v1/devices`: the registry of devices, as Kafka has it (docs/device-registry.md)."""

import asyncio
import heapq
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response

from fogline.address import DeviceAddress, shown
from fogline.errors import Poison
from fogline_cloud.access.policy import Action
from fogline_cloud.access.principal import Principal
from fogline_cloud.api import requests
from fogline_cloud.api.context import ApiContext
from fogline_cloud.api.problems import Problem, of_poison
from fogline_cloud.devices.device_facts import facts_of
from fogline_cloud.devices.device_filter import read_filter
from fogline_cloud.devices.device_search import TURN, matching_names
from fogline_cloud.devices.device_table import DeviceEntry

JSON = "application/json"
MAX_LISTED = 200


class DeviceRoutes:
    """The handlers of devices."""

    def __init__(self, context: ApiContext) -> None:
        self._context = context

    async def listing(self, request: Request) -> Response:
        """List devices by name."""
        context = self._context
        user = await context.user(request)
        requests.allow(request, "where", "limit", "after")
        after, most = request.query_params.get("after", ""), requests.limit(request, MAX_LISTED)
        where = request.query_params.get("where")
        try:
            wanted = read_filter([] if where is None else [where])
        except Poison as error:
            raise of_poison(error) from None
        context.require_records()
        found = await self.select(user.principal, lambda each: each.name > after and wanted.matches(each), most + 1)
        next_name = found[most - 1].name if len(found) > most else None
        body = {"devices": [facts_of(each) for each in found[:most]], "next": next_name}
        return Response(requests.as_json(body), media_type=JSON)

    async def select(self, principal: Principal, matches: Callable[[DeviceEntry], bool], most: int) -> list[DeviceEntry]:
        """Return the first devices by name that match and that a user may read. Other requests have their turn meanwhile."""
        names = await matching_names(self._context.devices, matches)
        found: list[DeviceEntry] = []
        for number in range(len(names)):
            if number % TURN == 0:
                await asyncio.sleep(0)
            device = self._context.devices.get(heapq.heappop(names))
            if device is not None and self._may_read(principal, device.name):
                found.append(device)
            if len(found) == most:
                break
        return found

    async def get(self, request: Request) -> Response:
        """Show a device."""
        context = self._context
        user = await context.user(request)
        requests.allow(request)
        name = requests.device_of(request)
        context.require_records()
        device = context.devices.get(name)
        if device is None or not self._may_read(user.principal, name):
            raise Problem(404, f"device {shown(name)} is not in the registry")
        return Response(requests.as_json(facts_of(device)), media_type=JSON)

    def _may_read(self, principal: Principal, device: str) -> bool:
        return self._context.policy.may(principal, Action.RECEIVE, DeviceAddress(self._context.tenant, device))
