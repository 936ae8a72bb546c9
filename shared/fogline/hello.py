"""Hello: the first message on a connection, and its answer. A message, not attach properties, so that it passes routers.

The gateway names its open streams; the bridge answers with what it has of each. From both, `resume` (pure) decides
where a stream goes on, or that its numbering can no longer be trusted.
"""

from dataclasses import dataclass

import msgspec

from fogline.codec import Beacon
from fogline.errors import Poison
from fogline.event import Lane

HELLO_CONTENT_TYPE = "application/vnd.fogline-hello+json"
PROTOCOL = 1
PRODUCT = "fogline-edge"
"""What a gateway calls itself in its open frame (`product`): this tells it from any other AMQP client."""


class OpenStream(msgspec.Struct, frozen=True):
    """A stream that the gateway writes or still has unsettled rows of."""

    stream: str
    lane: Lane


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """What a gateway says first. `shards`: the count that it knows, 0 for none."""

    protocol: int
    version: str
    gateway: str
    beacon: Beacon
    streams: list[OpenStream]
    shards: int = 0


class Mark(msgspec.Struct, frozen=True):
    """The bridge's knowledge of a stream: `hwm` is the highest sequence committed in Kafka, 0 for none.

    `chain` (hex) is the newest chain value that it has, `chain_sequence` the event that it belongs to.
    """

    stream: str
    hwm: int = 0
    chain_sequence: int = 0
    chain: str = ""


class Welcome(msgspec.Struct, frozen=True, kw_only=True):
    """The bridge's answer. `refused`: why there will be no service here (then only the rest of these count).

    `retry_after_s`: when to come back, if refused for a time. `redirect`: `host:port` of the bridge that owns the shard.
    """

    protocol: int
    shard: int = 0
    shards: int = 0
    max_message_bytes: int = 0
    marks: list[Mark] = msgspec.field(default_factory=list)
    refused: str = ""
    retry_after_s: float = 0.0
    redirect: str = ""


def encode_hello(value: Hello | Welcome) -> bytes:
    """Either half of the exchange as JSON."""
    return msgspec.json.encode(value)


def decode_hello(body: bytes) -> Hello:
    """Raises `Poison('malformed')`."""
    try:
        return msgspec.json.decode(body, type=Hello)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Poison("malformed", f"a hello is not readable: {error}") from None


def decode_welcome(body: bytes) -> Welcome:
    """Raises `Poison('malformed')`."""
    try:
        return msgspec.json.decode(body, type=Welcome)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Poison("malformed", f"an answer to hello is not readable: {error}") from None


@dataclass(frozen=True, slots=True)
class Own:
    """The gateway's knowledge of one of its streams.

    `settled`/`settled_chain`: the highest sequence that the bridge has accepted, and its chain value (hex, "" for 0).
    `head`: the highest sequence ever written. `chain_at_mark`: the own chain value (hex) at the mark's
    `chain_sequence`, `None` if that row is gone. `dropped_upto`: what is not settled up to there was let go of, 0 for none.
    """

    settled: int
    settled_chain: str
    head: int
    chain_at_mark: str | None
    dropped_upto: int = 0


@dataclass(frozen=True, slots=True)
class Resume:
    """The numbering holds: go on after the lowest unconfirmed row.

    What the bridge has beyond it is sent again and refused there: a row goes only when it was accepted and settled.
    `settled`: what was dropped here up to there is in Kafka after all; 0 if that says nothing new.
    """

    settled: int = 0


@dataclass(frozen=True, slots=True)
class Reopen:
    """The numbering cannot be trusted: open a new stream and send there, marked `replayed`, what is not proven sent."""

    why: str


def resume(own: Own, mark: Mark) -> Resume | Reopen:
    """Hold the gateway's knowledge of a stream against the bridge's."""
    if mark.hwm > own.head:
        return Reopen(f"the bridge has sequence {mark.hwm}, this outbox ends at {own.head}: it is an older copy")
    if mark.hwm < own.settled:
        return Reopen(f"the bridge has sequence {mark.hwm} but accepted {own.settled}: Kafka lost data")
    known = own.settled_chain or None if mark.chain_sequence == own.settled else own.chain_at_mark
    if mark.chain_sequence and known is not None and known != mark.chain:
        return Reopen(f"the chains differ at sequence {mark.chain_sequence}: another copy of this outbox has sent")
    if known is None and mark.chain_sequence > own.settled:
        return Reopen(f"sequence {mark.chain_sequence} was dropped here: whether this outbox has sent it cannot be told")
    there = min(mark.hwm, own.dropped_upto) if known is not None else 0
    return Resume(there if there > own.settled else 0)
