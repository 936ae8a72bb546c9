"""Failures of commands, as Zigbee2MQTT logs them on `bridge/logging`. Pure.

| message | verdict |
|---|---|
| `Publish 'set' 'state' to 'lamp' failed: '... (Status 'UNSUPPORTED_ATTRIBUTE')'` | the device refused it: failed, 422 |
| ... `'... (NWK_NO_ROUTE ...)'` and others of `_NOT_SENT` | the radio did not deliver it: failed, 503 |
| all others: `Timeout - ... after 10000ms`, `Delivery failed`, `MAC_NO_ACK` | in doubt: perhaps only the answer was lost |
| `No converter available for 'stat' on 'lamp': ("ON")` and others of `_REFUSALS` | the program refused it: failed, 422 |
| `Entity 'lamp' is unknown` | failed, 404 |

The log does not say which command failed, only the name of the device, the attribute, and whether it was to be set or read.
"""

import re
from collections.abc import Container

from fogline.commands.command import Reply
from fogline_edge.profiles.broker_commands.exchange import InDoubt, Verdict
from fogline_edge.profiles.broker_commands.values import TEXT
from fogline_edge.profiles.profile import BrokerMessage

_PUBLISH = re.compile(r"Publish '(?P<kind>get|set)' '(?P<key>[^']*)' to '(?P<name>.*?)' failed: (?P<why>.*)", re.DOTALL)
_REFUSALS = (
    re.compile(r"No converter available for '[^']*' on '(?P<name>.*)': \(.*\)", re.DOTALL),
    re.compile(r"Cannot publish to unsupported device '(?P<name>.*)'"),
    re.compile(r"Device '(?P<name>.*)' has no endpoint '.*'"),
)
_UNKNOWN = re.compile(r"Entity '(?P<name>.*)' is unknown")
_PREFIX = "z2m: "
_BY_DEVICE = re.compile(r"\bStatus '")
_NOT_SENT = re.compile(
    r"NO_?_?(?:NETWORK_)?ROUTE|no network route|TRANSACTION[_ ]EXPIRED|CHANNEL_ACCESS_FAILURE|TABLE_FULL|BUFFER_FULL",
    re.IGNORECASE,
)


def failure(message: BrokerMessage, name: str, kind: str, keys: Container[str]) -> Verdict | None:
    """Return the verdict of a message on `bridge/logging`, if it is about a command of this kind (`set`, `get`).

    `name`: the device's at the broker; `keys`: the attributes of the command.
    """
    entry = message.json_object
    if entry is None or entry.get("level") != "error" or not isinstance(text := entry.get("message"), str):
        return None
    text = text.removeprefix(_PREFIX)
    match = _PUBLISH.fullmatch(text)
    if match is not None:
        ours = match["name"] == name and match["kind"] == kind and match["key"] in keys
        return _of_publish(text, match["why"]) if ours else None
    if any(found["name"] == name for each in _REFUSALS if (found := each.fullmatch(text))):
        return Reply(422, text.encode(), TEXT)
    unknown = _UNKNOWN.fullmatch(text)
    return Reply(404, text.encode(), TEXT) if unknown is not None and unknown["name"] == name else None


def _of_publish(text: str, why: str) -> Verdict:
    if _BY_DEVICE.search(why):
        return Reply(422, text.encode(), TEXT)
    if _NOT_SENT.search(why):
        return Reply(503, text.encode(), TEXT)
    return InDoubt(text)
