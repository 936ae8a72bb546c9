"""Bodies and headers of HTTP requests to the API, through all that reads them."""

import msgspec

from fogline.amqp.wire import encode
from fogline.errors import Poison
from fogline_cloud.api import requests
from fogline_cloud.api.command_routes import message_of
from fogline_cloud.api.event_routes import structured_event
from fogline_cloud.api.problems import Problem
from fogline_cloud.api.requests import CommandRequest
from fuzz.forms import Decoder, Layer
from fuzz.json_forms import json_form


def _command(body: bytes) -> object:
    """A problem of the client's is `Poison` to the fuzz; any other error is a fault."""
    try:
        return requests.decode_json(body, CommandRequest, "the command")
    except Problem as error:
        raise Poison("malformed", str(error)) from None


def _message(wanted: CommandRequest) -> bytes:
    try:
        return encode(message_of("acme", "lamp-1", wanted, "k"))
    except Problem as error:
        raise Poison("malformed", str(error)) from None


def _event(body: bytes) -> object:
    try:
        return structured_event(body)
    except Problem as error:
        raise Poison("malformed", str(error)) from None


COMMAND = {
    "name": "switch",
    "data": {"on": True},
    "content_type": "application/json",
    "ttl_s": 30.5,
    "durable": True,
    "idempotent": False,
    "newest_wins": False,
    "one_way": False,
}
EVENT = {
    "specversion": "1.0",
    "id": "1",
    "source": "/here",
    "type": "t",
    "subject": "s",
    "time": "2026-01-01T00:00:00Z",
    "datacontenttype": "application/json",
    "data": {"n": 1},
}
HTTP = (
    Decoder(
        "HTTP command",
        (Layer("json", _command), Layer("message", _message)),
        [json_form("HTTP command", COMMAND, "json")],
    ),
    Decoder(
        "HTTP CloudEvent",
        (Layer("json", _event), Layer("kept", msgspec.json.encode)),
        [json_form("HTTP CloudEvent", EVENT, "json")],
    ),
)
