"""The topics that devices answer commands on (Eclipse Hono's): pure.

`command/{tenant}/{device}/res/{request id}/{status}`, `command///res/...` for the client's own device, `c/.../s/...`
for short, and Hono's property bag after `/?`.
"""

import msgspec

from fogline.address import check_identifier, shown
from fogline.command import MAX_COMMAND_BYTES, Answer
from fogline.errors import Poison
from fogline_edge.adapters.mqtt.intake import Client, device_of, media_type
from fogline_edge.adapters.mqtt.packets import Publish
from fogline_edge.adapters.mqtt.subscriptions import RESPONSES
from fogline_edge.adapters.mqtt.topics import BAG, MAX_TOPIC, bag_of, of_tenant
from fogline_edge.profiles.names import device_identifier


class Response(msgspec.Struct, frozen=True):
    """A device's answer to a command."""

    device: str
    command_id: str
    answer: Answer


def is_response(topic: str) -> bool:
    """Whether a topic is one for answers, well-formed or not."""
    levels = topic.split("/", 4)
    return len(levels) > 3 and RESPONSES.get(levels[0]) == levels[3]


def response(client: Client, tenant: str, publish: Publish) -> Response:
    """Read an answer. Raises `Poison` (`bad-topic`, `bad-status`, `bad-identifier`, `foreign-tenant`, ...)."""
    topic = publish.topic
    path, bag, query = topic.partition(BAG)
    levels = path.split("/")
    if len(levels) != 6 or len(topic) > MAX_TOPIC or not topic.isprintable():
        raise Poison("bad-topic", f"{shown(topic)} is no topic for an answer: .../{levels[3]}/{{request id}}/{{status}}")
    _, tenant_level, device_level, _, command_id, status = levels
    of_tenant(tenant_level, tenant)
    device = device_of(client, device_identifier(device_level, "device") if device_level else None)
    told = publish.properties.content_type
    kind = media_type(told) or (media_type(bag_of(query)[0]) if bag else None)
    if len(publish.payload) > MAX_COMMAND_BYTES:
        raise Poison("too-big", f"an answer may carry {MAX_COMMAND_BYTES} bytes")
    answer = Answer(_status(status), publish.payload, kind)
    return Response(device, check_identifier(command_id, "request id"), answer)


def _status(text: str) -> int:
    if len(text) == 3 and text.isascii() and text.isdecimal() and 200 <= int(text) <= 599:
        return int(text)
    raise Poison("bad-status", f"an answer's status is 200 to 599, not {shown(text)}")
