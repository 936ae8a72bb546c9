"""Every door makes the same event of the same message: device, content type, body, and what it refuses.

The doors are MQTT (3.1.1 and 5), CoAP, HTTP, a client of somebody's broker, AMQP and the API, each by the function that makes
its event. `names.json`: device names. A door that cannot express an input (a content type in MQTT 3.1.1) is left out for it.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from starlette.requests import Request as ApiRequest

from fogline.address import device_identifier, is_identifier, parse_address
from fogline.dead_letter import DEAD_TYPE, decode_dead_letter
from fogline.errors import Poison
from fogline.message import Message
from fogline_cloud.api import event_routes
from fogline_cloud.api.event_routes import EventRoutes
from fogline_cloud.api.problems import Problem
from fogline_cloud.bridge.consumers.client_events import event_of
from fogline_edge.adapters.coap.intake import content_type as coap_type
from fogline_edge.adapters.coap.paths import Paths
from fogline_edge.adapters.coap.requests import Request as CoapRequest
from fogline_edge.adapters.coap.wire import number_of
from fogline_edge.adapters.http.intake import arrival as http_arrival
from fogline_edge.adapters.http.paths import EventPath, HttpPaths
from fogline_edge.adapters.http.wire import HttpRefused, HttpRequest
from fogline_edge.adapters.mqtt.hono.intake import Client, PublishIntake
from fogline_edge.adapters.mqtt.hono.topics import Topics
from fogline_edge.adapters.mqtt.protocol.packets import Publish
from fogline_edge.adapters.mqtt.protocol.primitives import V3, V5
from fogline_edge.adapters.mqtt.protocol.properties import Properties
from fogline_edge.broker_settings import TopicSettings
from fogline_edge.profiles.plain import Plain
from fogline_edge.profiles.profile import BrokerMessage

NAMES = json.loads((Path(__file__).parents[1] / "edge" / "profiles" / "device-names.json").read_text())
BODIES = [b'{"t":1}', b"[1]", b"21.5", b' {"t":1}', b"\x00\x01", b"{", "\ufeff{}".encode(), b'"x"', b"<a/>", b"null"]
TYPES = [None, "application/json", "text/plain", "application/senml+json", "application/cbor"]


class Taken(NamedTuple):
    """What a door makes of a message; or `refused`, the reason."""

    device: str = ""
    content_type: str = ""
    body: bytes = b""
    refused: str = ""


def mqtt(version: int) -> Callable[..., Taken]:
    intake = PublishIntake("acme", "gw-1", Topics("acme", []))

    def take(name: str, content_type: str | None, body: bytes) -> Taken:
        properties = {"properties": Properties(content_type=content_type)} if version == V5 and content_type else {}
        arrival, _ = intake.arrival(Client("c"), Publish(topic=f"t//{name}", payload=body, **properties), b"slot")
        if arrival.type == DEAD_TYPE:
            return Taken(refused=decode_dead_letter(arrival.data).reason)
        return Taken(arrival.device, arrival.content_type, arrival.data)

    return take


def mqtt_client_id(name: str, content_type: str | None, body: bytes) -> Taken:
    intake = PublishIntake("acme", "gw-1", Topics("acme", []))
    arrival, _ = intake.arrival(intake.client(name, None), Publish(topic="t", payload=body), b"slot")
    return Taken(arrival.device, arrival.content_type, arrival.data)


def mqtt_user(name: str, content_type: str | None, body: bytes) -> Taken:
    intake = PublishIntake("acme", "gw-1", Topics("acme", []))
    arrival, _ = intake.arrival(intake.client("any", name), Publish(topic="t", payload=body), b"slot")
    return Taken(arrival.device, arrival.content_type, arrival.data)


def broker(name: str, content_type: str | None, body: bytes) -> Taken:
    found = Plain([TopicSettings(topic="plant/{device}", content_type=content_type)]).read(BrokerMessage(f"plant/{name}", body))
    return Taken(found.device, found.content_type, found.data)  # type: ignore[union-attr]


def coap(name: str, content_type: str | None, body: bytes) -> Taken:
    path = Paths("acme", []).resolve(("t", "", name))
    given = {"method": 2, "path": (), "query": (), "accept": None, "block1": None, "block2": None, "size1": None}
    number = None if content_type is None else number_of(content_type)
    request = CoapRequest(**given, content_format=number, observe=None, tag=None, payload=body)
    return Taken(path.device, coap_type(request, None, body).partition(";")[0], body)


def http(name: str, content_type: str | None, body: bytes, encoding: str | None = None) -> Taken:
    headers = {"content-type": content_type, "content-encoding": encoding}
    request = HttpRequest(method="PUT", path=(), query=(), headers={key: value for key, value in headers.items() if value})
    try:
        path = HttpPaths("acme", []).resolve(("t", "", name))
        assert isinstance(path, EventPath)
        arrival = http_arrival(path, path.device or "", request, body, None)
    except HttpRefused as error:
        return Taken(refused=error.reason)
    return Taken(arrival.device, arrival.content_type, arrival.data)


def amqp(name: str, content_type: str | None, body: bytes, encoding: str | None = None) -> Taken:
    message = Message(body=body, content_type=content_type, content_encoding=encoding)
    return _of_bridge(message, f"telemetry/acme/{name}")


def _of_bridge(message: Message, address: str) -> Taken:
    try:
        event = event_of(message, parse_address(address), 0)  # type: ignore[arg-type]
    except Poison as error:
        return Taken(refused=error.reason)
    return Taken(event.device, event.content_type, event.data)


class _Context:
    """The part of the API's context that the route of an event uses."""

    tenant = "acme"

    async def user(self, _: ApiRequest) -> Any:
        return type("User", (), {"principal": None, "session": None})

    def count(self, principal: Any, **counts: int) -> None:
        pass


async def api(name: str, content_type: str | None, body: bytes, encoding: str | None = None) -> Taken:
    sent: list[Message] = []

    async def send(session: Any, message: Message, **options: Any) -> None:
        sent.append(message)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    given = {"content-type": content_type, "content-encoding": encoding}
    headers = [(key.encode(), value.encode()) for key, value in given.items() if value]
    scope = {"type": "http", "method": "POST", "headers": headers, "query_string": b"", "path_params": {"device": name}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(event_routes, "send", send)
        try:
            await EventRoutes(_Context()).telemetry(ApiRequest(scope, receive))  # type: ignore[arg-type]
        except Problem as error:
            return Taken(refused={415: "bad-encoding"}.get(error.status, str(error)))
    return _of_bridge(sent[0], sent[0].to or "")


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("content_type", TYPES)
async def test_every_door_decides_the_content_type_alike(content_type, body):
    doors = [mqtt(V5), coap, http, broker, amqp]
    found = {door("lamp-1", content_type, body) for door in doors} | {await api("lamp-1", content_type, body)}
    if content_type is None:
        found |= {mqtt(V3)("lamp-1", None, body), mqtt_client_id("lamp-1", None, body)}
    assert len(found) == 1
    (taken,) = found
    assert taken.body == body
    assert taken.content_type == (
        content_type or ("application/json" if body[:1] in (b"{", b"[") else "application/octet-stream")
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.fault("D12")
async def test_every_door_names_the_device_alike(name):
    """Operators and AMQP clients address by identifiers: only what is none is a name there."""
    doors = [mqtt_client_id, mqtt_user]
    if not set(name) & set("/+#"):
        doors += [mqtt(V5), mqtt(V3), broker]
    if "/" not in name:
        doors += [http, coap]
    found = {door(name, None, b"1").device for door in doors}
    assert found == {device_identifier(name, "device")}
    if "/" not in name:
        addressed = name if is_identifier(name) else device_identifier(name, "device")
        assert amqp(name, None, b"1").device == (await api(name, None, b"1")).device == addressed


@pytest.mark.parametrize("encoding", ["gzip", "br", "zstd", "GZIP", "identity, gzip"])
async def test_every_door_that_has_content_encodings_refuses_them(encoding):
    found = [door("lamp-1", "application/json", b"\x1f\x8b", encoding) for door in (http, amqp)]
    found.append(await api("lamp-1", "application/json", b"\x1f\x8b", encoding))
    assert {each.refused for each in found} == {"bad-encoding"}


async def test_identity_is_no_encoding():
    assert {door("lamp-1", None, b"1", "identity").refused for door in (http, amqp)} == {""}


async def test_every_door_takes_an_empty_body_with_a_content_type():
    doors = [mqtt(V5), http, amqp, broker, coap]
    found = {door("lamp-1", "application/json", b"") for door in doors} | {await api("lamp-1", "application/json", b"")}
    assert found == {Taken("lamp-1", "application/json", b"")}


async def test_every_door_that_can_refuse_an_empty_body_without_a_content_type_does():
    assert {door("lamp-1", None, b"").refused for door in (http, amqp)} == {"no-payload"}
    assert (await api("lamp-1", None, b"")).refused == "no-payload"
