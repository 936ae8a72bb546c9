"""`/v1/devices/{device}/desired`: shows and replaces the desired state of a device (docs/device-registry.md)."""

import asyncio
import re
import time
import uuid
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from fogline.address import DeviceAddress, shown
from fogline.events.event import rfc3339
from fogline.message import Message, Property, pack_id
from fogline_cloud.access.policy import Action
from fogline_cloud.access.principal import Principal
from fogline_cloud.api import requests
from fogline_cloud.api.context import ApiContext
from fogline_cloud.api.preconditions import is_unchanged, wanted_version
from fogline_cloud.api.problems import Problem, not_at_present
from fogline_cloud.api.sending import send
from fogline_cloud.commands.request import reply_owner
from fogline_cloud.devices.desired import MAX_STATE_BYTES, difference, read_want
from fogline_cloud.devices.device_table import DeviceEntry
from fogline_cloud.devices.edits import IF_VERSION, WANT, request_of

JSON = "application/json"
APPEAR_S = 5.0
"""The time that a version which the bridge has committed may take until this process has read it."""
_ETAG = re.compile(r'"(\d{1,15})"', re.ASCII)


class DesiredRoutes:
    """The handlers of desired states."""

    def __init__(self, context: ApiContext) -> None:
        self._context = context

    async def get(self, request: Request) -> Response:
        """Show the desired state of a device, and the reported one beside it."""
        context = self._context
        user = await context.user(request)
        requests.allow(request)
        name = requests.device_of(request)
        context.require_records()
        device = context.devices.get(name)
        if device is None or not self._may_read(user.principal, name):
            raise Problem(404, f"device {shown(name)} is not in the registry")
        if device.desired is None:
            raise Problem(404, f"device {shown(name)} has no desired state")
        if is_unchanged(request.headers.get("if-none-match"), device.desired.version):
            return Response(status_code=304, headers={"etag": _etag(device.desired.version)})
        return _response(device)

    async def put(self, request: Request) -> Response:
        """Replace the desired state, under the conditions of `If-Match` and `If-None-Match` (`preconditions`)."""
        context = self._context
        user = await context.user(request)
        requests.allow(request)
        name = requests.device_of(request)
        key = requests.idempotency_key(request) or uuid.uuid4().hex
        body = await requests.read_body(request, MAX_STATE_BYTES)
        read_want(body)
        context.require_records()
        former = context.devices.get(name)
        present = former.desired.version if former is not None and former.desired is not None else None
        headers = request.headers
        wanted = wanted_version(headers.get("if-match"), headers.get("if-none-match"), present)
        context.count(user.principal, commands=1, size_bytes=len(body))
        version: dict[str, Property] = {} if wanted is None else {IF_VERSION: wanted}
        message = Message(
            to=str(DeviceAddress(context.tenant, name)),
            subject=WANT,
            message_id=key,
            content_type=JSON,
            body=body,
            durable=True,
            properties=version,
        )
        await send(user.session, message, again=True, waits=True)
        return _response(await self._written(name, request_of(reply_owner(user.principal), pack_id(key)), former))

    async def _written(self, name: str, request: str, former: DeviceEntry | None) -> DeviceEntry:
        """Return the device once its desired state is that of a request, or a newer one that has replaced it meanwhile."""
        context, deadline = self._context, time.monotonic() + APPEAR_S
        former_version = former.desired.version if former is not None and former.desired is not None else 0
        while True:
            device = context.devices.get(name)
            if device is not None and device.desired is not None and device.desired.request == request:
                return device
            left_s = deadline - time.monotonic()
            if left_s <= 0 or context.stopping:
                if device is not None and device.desired is not None and device.desired.version > former_version:
                    return device
                raise not_at_present("the desired state is changed, but cannot be read yet")
            try:
                async with asyncio.timeout(left_s):
                    await context.device_change.wait()
            except TimeoutError:
                continue

    def _may_read(self, principal: Principal, device: str) -> bool:
        return self._context.policy.may(principal, Action.RECEIVE, DeviceAddress(self._context.tenant, device))


def _etag(version: int) -> str:
    return f'"{version}"'


def _response(device: DeviceEntry) -> Response:
    desired = device.desired
    assert desired is not None
    return Response(requests.as_json(facts_of(device)), 200, {"etag": _etag(desired.version)}, JSON)


def facts_of(device: DeviceEntry) -> dict[str, Any]:
    """Return what the API shows of the desired state of a device that has one."""
    desired, outcome = device.desired, device.outcome
    assert desired is not None
    reported = device.reported.reported if device.reported is not None else None
    return {
        "device": device.name,
        "desired": desired.desired,
        "command": desired.command,
        "version": desired.version,
        "state": device.desired_state,
        "command_id": desired.sent_id,
        "why": outcome.why if outcome is not None else "",
        "changed": rfc3339(desired.changed_ms * 1_000_000),
        "changed_by": desired.changed_by,
        "reported": reported,
        "difference": difference(desired.desired, reported),
    }
