"""Command responses of devices, by Eclipse Hono's topics: pure.

`command/{tenant}/{device}/res/{request id}/{status}`, with empty levels for the client's own device; in short `c/.../s/...`.
"""

import msgspec

from fogline.address import check_identifier, device_identifier, shown
from fogline.commands.command import MAX_COMMAND_BYTES, Reply
from fogline.errors import Poison
from fogline_edge.adapters.mqtt.hono.intake import Client, device_of, media_type
from fogline_edge.adapters.mqtt.hono.subscriptions import RESPONSES
from fogline_edge.adapters.mqtt.hono.topics import BAG, MAX_TOPIC, check_tenant, parse_bag
from fogline_edge.adapters.mqtt.protocol.packets import Publish


class MqttResponse(msgspec.Struct, frozen=True):
    """A device's response to a command."""

    device: str
    command_id: str
    reply: Reply


def is_response(topic: str) -> bool:
    """Return True for a topic of command responses, well-formed or not."""
    levels = topic.split("/", 4)
    return len(levels) > 3 and RESPONSES.get(levels[0]) == levels[3]


def read_response(client: Client, tenant: str, publish: Publish) -> MqttResponse:
    """Read a response. Raises `Poison` (`bad-topic`, `bad-status`, `bad-identifier`, `foreign-tenant`, ...)."""
    topic = publish.topic
    path, bag, query = topic.partition(BAG)
    levels = path.split("/")
    if len(levels) != 6 or len(topic) > MAX_TOPIC or not topic.isprintable():
        raise Poison("bad-topic", f"{shown(topic)} is not a response topic: .../{levels[3]}/{{request id}}/{{status}}")
    _, tenant_level, device_level, _, command_id, status = levels
    check_tenant(tenant_level, tenant)
    device = device_of(client, device_identifier(device_level, "device") if device_level else None)
    content_type = media_type(publish.properties.content_type) or (media_type(parse_bag(query)[0]) if bag else None)
    if len(publish.payload) > MAX_COMMAND_BYTES:
        raise Poison("too-big", f"a response may have at most {MAX_COMMAND_BYTES} bytes")
    if not (len(status) == 3 and status.isascii() and status.isdecimal() and 200 <= int(status) <= 599):
        raise Poison("bad-status", f"the status of a response is 200 to 599, not {shown(status)}")
    command_id = check_identifier(command_id, "request id")
    return MqttResponse(device, command_id, Reply(int(status), publish.payload, content_type))
