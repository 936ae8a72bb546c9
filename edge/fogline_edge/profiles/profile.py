"""The interface of a profile, which reads the messages that one program publishes at a broker."""

from enum import StrEnum
from typing import Any, Protocol

import msgspec

from fogline.address import shown
from fogline.documents.media_type import event_type
from fogline.errors import Poison
from fogline.events.event import Arrival, Lane
from fogline.events.identity import DeviceTime

ADAPTER = "mqtt-client"
MAX_TOPIC = 1024


class IgnoreReason(StrEnum):
    """The reason to ignore a message.

    `RETAINED`: a repeat, or of unknown age. `LOGGING`: the program's log. `BRIDGE`: its own state. `COMMAND`: of a client to a
    device. `ANSWER`: of a device to a command of the gateway. `DISCOVERY`: the abilities of a device. `EMPTY`: no payload, as
    of a message that deletes a retained one.
    """

    RETAINED = "retained"
    LOGGING = "logging"
    BRIDGE = "bridge"
    COMMAND = "command"
    ANSWER = "answer"
    DISCOVERY = "discovery"
    EMPTY = "empty"


class BrokerMessage(msgspec.Struct, frozen=True):
    """A PUBLISH from the broker. `retained`: the broker sent it because of the subscription, not because it is new."""

    topic: str
    payload: bytes
    retained: bool = False

    @property
    def channel(self) -> str:
        """The topic as a channel. Raises `Poison('bad-topic')` if it is too long or not printable."""
        if len(self.topic) > MAX_TOPIC or not self.topic.isprintable():
            raise Poison("bad-topic", f"topic {shown(self.topic)} has more than {MAX_TOPIC} characters, or is not printable")
        return self.topic

    @property
    def json_object(self) -> dict[str, Any] | None:
        """The payload as a JSON object, or None if it is none."""
        return _decode(self.payload) if self.payload[:1] == b"{" else None

    def arrival(
        self, device: str, lane: Lane, kind: str, *, content_type: str | None = None, time_ns: int | None = None
    ) -> Arrival:
        """Return the arrival of the message. `kind`: its `type`; `content_type`: by default that of the payload."""
        return Arrival(
            device=device,
            channel=self.topic,
            lane=lane,
            type=kind,
            content_type=event_type(None, content_type, self.payload),
            data=self.payload,
            adapter=ADAPTER,
            time_ns=time_ns,
            evidence=None if time_ns is None else DeviceTime(time_ns),
        )


class Filter(msgspec.Struct, frozen=True):
    """A topic filter to subscribe to. `always`: request the retained message at every connection, not only at the first."""

    topic: str
    always: bool = False


class Ignored(msgspec.Struct, frozen=True):
    """A message that is deliberately no event."""

    why: IgnoreReason


class Described(msgspec.Struct, frozen=True):
    """A device that its program describes anew. `digest`: of the description, to be kept once `arrival` is stored."""

    arrival: Arrival
    digest: bytes


class Learned(msgspec.Struct, frozen=True):
    """Changed device names, to be kept across restarts: identifier by name, or None for a name that is gone.

    `described`: devices whose description has changed. `gone`: devices that had one.
    """

    changed: dict[str, str | None]
    described: tuple[Described, ...] = ()
    gone: frozenset[str] = frozenset()


Reading = Arrival | Ignored | Learned


class Profile(Protocol):
    """Reads the messages of one program. It may keep names, and does no IO."""

    @property
    def filters(self) -> tuple[Filter, ...]:
        """The filters to subscribe to, in this order."""

    def read(self, message: BrokerMessage) -> Reading:
        """Read a message. The arrival has no `retransmission` yet. Raises `Poison` for a message that can never be stored."""


def _decode(payload: bytes) -> Any:
    try:
        return msgspec.json.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
