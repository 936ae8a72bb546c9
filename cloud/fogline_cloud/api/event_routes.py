"""`/v1/telemetry` and `/v1/events`: events of services that only speak HTTP (CloudEvents HTTP binding 1.0.2)."""

import base64
import binascii
from typing import Any
from urllib.parse import unquote

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from fogline.address import Reports
from fogline.message import Message, Property
from fogline_cloud.api import requests
from fogline_cloud.api.context import ApiContext
from fogline_cloud.api.problems import Problem
from fogline_cloud.api.sending import send

STRUCTURED = "application/cloudevents+json"
ATTRIBUTES = ("id", "source", "type", "subject", "time")
"""Attributes of a CloudEvent that Fogline keeps."""


class _Structured(msgspec.Struct, frozen=True):
    """A CloudEvent in structured mode. Attributes that Fogline does not keep are left out."""

    specversion: str
    id: str
    source: str
    type: str
    subject: str | None = None
    time: str | None = None
    datacontenttype: str | None = None
    data: msgspec.Raw = msgspec.Raw()
    data_base64: str | None = None


class EventRoutes:
    """The handlers of events."""

    def __init__(self, context: ApiContext) -> None:
        self._context = context

    async def telemetry(self, request: Request) -> Response:
        """Take an event for lane telemetry. 202 once it is committed in Kafka."""
        return await self._take(request, "telemetry")

    async def event(self, request: Request) -> Response:
        """Take an event for lane alarm. 202 once it is committed in Kafka."""
        return await self._take(request, "event")

    async def _take(self, request: Request, endpoint: str) -> Response:
        context = self._context
        user = await context.user(request)
        requests.allow(request)
        device = requests.device_of(request)
        body = await requests.read_body(request, requests.MAX_EVENT_BYTES)
        content_type = request.headers.get("content-type")
        if content_type is not None and content_type.partition(";")[0].strip().lower() == STRUCTURED:
            body, content_type, properties = structured_event(body)
        else:
            properties = _binary(request)
        if (key := requests.idempotency_key(request)) is not None:
            properties.setdefault("cloudEvents_id", key)
        context.count(user.principal, events=1, size_bytes=len(body))
        message = Message(
            to=str(Reports(endpoint, context.tenant, device)), content_type=content_type, body=body, properties=properties
        )
        await send(user.session, message, again="cloudEvents_id" in properties, waits=True)
        return Response(status_code=202)


def _binary(request: Request) -> dict[str, Property]:
    """Return the attributes of a CloudEvent in binary mode: headers `ce-*`, percent-encoded (section 3.1.3.2)."""
    found: dict[str, Property] = {}
    for name in ATTRIBUTES:
        if (value := request.headers.get(f"ce-{name}")) is not None:
            found[f"cloudEvents_{name}"] = unquote(value, errors="replace")
    version = request.headers.get("ce-specversion")
    if version not in (None, "1.0"):
        raise Problem(400, "ce-specversion: expected 1.0")
    return found


def structured_event(body: bytes) -> tuple[bytes, str | None, dict[str, Property]]:
    """Return data, content type and properties of a CloudEvent in structured mode (section 3.2). Raises `Problem`."""
    event = requests.decode_json(body, _Structured, "the CloudEvent")
    if event.specversion != "1.0" or not event.id:
        raise Problem(400, "the CloudEvent: expected specversion 1.0 and an id")
    given: dict[str, Any] = msgspec.structs.asdict(event)
    properties: dict[str, Property] = {f"cloudEvents_{name}": given[name] for name in ATTRIBUTES if given[name]}
    if event.data_base64 is None:
        data = bytes(event.data)
        is_text = data.startswith(b'"') and event.datacontenttype is not None and "json" not in event.datacontenttype
        data = msgspec.json.decode(data, type=str).encode() if is_text else data
        return data, event.datacontenttype or "application/json", properties
    if bytes(event.data):
        raise Problem(400, "the CloudEvent: expected `data` or `data_base64`, not both")
    try:
        return base64.b64decode(event.data_base64, validate=True), event.datacontenttype, properties
    except binascii.Error:
        raise Problem(400, "the CloudEvent: data_base64 is not base64") from None
