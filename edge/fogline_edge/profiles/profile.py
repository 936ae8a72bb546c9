"""What a profile is: it reads the messages that one program publishes at a broker.

A message is read as one of three things: an arrival of a device, something to pass over (and why), or names to learn.
"""

from enum import StrEnum
from typing import Any, Protocol

import msgspec

from fogline.address import shown
from fogline.errors import Poison
from fogline.event import Arrival

ADAPTER = "mqtt-client"
JSON = "application/json"
TEXT = "text/plain"
OCTETS = "application/octet-stream"
AVAILABILITY = "availability"
"""The `type` of an event that says whether a device is there."""

MAX_TOPIC = 1024
"""The longest topic, in characters, that becomes a channel."""


class Why(StrEnum):
    """Why a message is no event.

    `RETAINED`: the broker had it from before the subscription, so it is a repeat or of unknown age. `LOGGING`: the log of
    the program. `BRIDGE`: the program about itself. `COMMAND`: from others, to a device. `DISCOVERY`: what a device can
    do. `EMPTY`: no payload, which is how a retained message is deleted.
    """

    RETAINED = "retained"
    LOGGING = "logging"
    BRIDGE = "bridge"
    COMMAND = "command"
    DISCOVERY = "discovery"
    EMPTY = "empty"


class Message(msgspec.Struct, frozen=True):
    """A PUBLISH as it came from the broker. `retained`: sent because of the subscription, not because it is new."""

    topic: str
    payload: bytes
    retained: bool = False


class Filter(msgspec.Struct, frozen=True):
    """A topic filter to subscribe to. `always`: its retained message is wanted at every connection, not at the first only."""

    topic: str
    always: bool = False


class Ignored(msgspec.Struct, frozen=True):
    """No event, on purpose."""

    why: Why


class Learned(msgspec.Struct, frozen=True):
    """Names of devices that have changed, to be kept across restarts: name -> identifier, `None` for a name that is gone."""

    changed: dict[str, str | None]


Reading = Arrival | Ignored | Learned


class Profile(Protocol):
    """Reads the messages of one program. It may remember names, and does no IO."""

    @property
    def filters(self) -> tuple[Filter, ...]:
        """What to subscribe to, in this order."""

    def read(self, message: Message) -> Reading:
        """What `message` is. The arrival has no `retransmission` yet. Raises `Poison` for what can never be taken."""


def check_topic(topic: str) -> str:
    """`topic`, if it may become a channel. Raises `Poison('bad-topic')`."""
    if len(topic) > MAX_TOPIC or not topic.isprintable():
        raise Poison("bad-topic", f"topic {shown(topic)} is over {MAX_TOPIC} characters, or not printable")
    return topic


def decode_object(payload: bytes) -> dict[str, Any] | None:
    """The JSON object that `payload` is, or `None`."""
    if payload[:1] != b"{":
        return None
    try:
        decoded = msgspec.json.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return decoded if isinstance(decoded, dict) else None


def content_type_of(payload: bytes) -> str:
    """`application/json` for an object or an array, `text/plain` for other UTF-8, else `application/octet-stream`."""
    if payload[:1] in (b"{", b"[") and _is_json(payload):
        return JSON
    try:
        payload.decode()
    except UnicodeDecodeError:
        return OCTETS
    return TEXT


def _is_json(payload: bytes) -> bool:
    try:
        msgspec.json.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True
