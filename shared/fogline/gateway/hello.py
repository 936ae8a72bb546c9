"""Hello: the first message of a gateway on a connection, and the bridge's answer (Welcome).

Both are messages, not properties of the attach frame, so that they pass AMQP routers. `resume` (pure) compares the gateway's
streams with the bridge's marks, and decides whether each resumes or its sequences can no longer be trusted.
"""

from dataclasses import dataclass
from typing import Annotated

import msgspec

from fogline.address import printable
from fogline.documents.json_document import read_document
from fogline.events.codec import Beacon, Epoch, Identifier, SequenceNumber
from fogline.events.event import Lane

HELLO_CONTENT_TYPE = "application/vnd.fogline-hello+json"
PROTOCOL = 1
PRODUCT = "fogline-edge"
"""Property `product` of a gateway's open frame. It distinguishes a gateway from any other AMQP client."""

KNOWN_MS = 30 * 24 * 3600 * 1000
"""Time for which a bridge knows a stream that its gateway does not announce any more, after the last event, in milliseconds."""
CLOCKS_DIFFER_MS = 24 * 3600 * 1000
"""The most by which the clocks of a gateway and of bridges are taken to differ, in milliseconds."""
MAX_WAIT_S = 3600
"""Limit of `Welcome.retry_after_s`."""
MAX_STATISTICS_S = 3600
"""Limit of `Welcome.statistics_s`."""
MIN_STATISTICS_S = 1
"""Shortest interval at which a gateway sends statistics, whatever its bridge asks for."""
Small = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
CopyNumber = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class OpenStream(msgspec.Struct, frozen=True):
    """A stream that the gateway writes to, or that has unsettled rows."""

    stream: Identifier
    lane: Lane


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """A gateway's first message. `shards`: the number of shards that it knows, 0 for unknown.

    `copy`: the number of this copy of the outbox, 0 if the
    bridge has not given it one. A copy that was restored later has a higher number.

    `journal`: random name of the journal of commands, made with its file. A restored, salvaged or empty outbox has a new one,
    so that a bridge knows whether this journal can have what another one had.

    `credentials_key`: this connection's public key, for which the bridge seals credentials of devices; "": the gateway takes
    none.
    """

    protocol: Small
    version: Annotated[str, msgspec.Meta(max_length=64, pattern=r"\A[ -~]*\Z")]
    gateway: Identifier
    beacon: Beacon
    streams: list[OpenStream]
    shards: Small = 0
    epoch: Epoch = ""
    copy: CopyNumber = 0
    journal: Epoch = ""
    credentials_key: Annotated[str, msgspec.Meta(max_length=64)] = ""


class Mark(msgspec.Struct, frozen=True):
    """The bridge's state of a stream. `hwm`: the high-water mark, the highest sequence committed in Kafka, 0 for none."""

    stream: Identifier
    hwm: SequenceNumber = 0
    chain_sequence: SequenceNumber = 0  # of the event with the newest chain value that the bridge has
    chain: Annotated[str, msgspec.Meta(max_length=64)] = ""  # in hex


class Welcome(msgspec.Struct, frozen=True, kw_only=True):
    """The bridge's answer to hello."""

    protocol: Small
    shard: Small = 0
    shards: Small = 0
    max_message_bytes: Small = 0
    marks: list[Mark] = msgspec.field(default_factory=list)
    refused: str = ""  # the reason of a refusal, "" for none
    retry_after_s: Annotated[float, msgspec.Meta(ge=0, le=MAX_WAIT_S)] = 0.0  # after a refusal
    redirect: Annotated[str, msgspec.Meta(max_length=300)] = ""  # `host:port` of the bridge that owns the shard
    time_ms: Annotated[int, msgspec.Meta(ge=0, le=2**53)] = 0  # the bridge's clock, since 1970, 0 for unknown
    statistics_s: Annotated[float, msgspec.Meta(ge=0, le=MAX_STATISTICS_S)] = 0.0  # interval, 0: the bridge takes none
    copy: CopyNumber = 0  # the number of the gateway's copy of the outbox, which is new if it had none
    replaced: bool = False  # a copy with a higher number has said hello


def encode_hello(value: Hello | Welcome) -> bytes:
    """Return the JSON body of a hello or of its answer."""
    return msgspec.json.encode(value)


def decode_hello(body: bytes) -> Hello:
    """Return the hello of a body. Raises `Poison('malformed')`."""
    return read_document(body, Hello, "a hello")


def decode_welcome(body: bytes) -> Welcome:
    """Return the answer of a body. Raises `Poison('malformed')`. `refused` becomes one line that is safe for a log."""
    welcome = read_document(body, Welcome, "an answer to hello")
    return msgspec.structs.replace(welcome, refused=printable(welcome.refused))


@dataclass(frozen=True, slots=True)
class Own:
    """The gateway's state of one of its streams."""

    settled: int  # the highest sequence that the bridge has accepted
    settled_chain: str  # its chain value, hex, "" for 0
    head: int  # the highest sequence ever written
    chain_at_mark: str | None  # hex, at the mark's `chain_sequence`; None if that row is gone
    dropped_upto: int = 0  # unsettled rows up to there were dropped, 0 for none
    waited_ms: int = 0  # since the first unsettled row was stored, 0 for unknown


@dataclass(frozen=True, slots=True)
class Resume:
    """The sequences can be trusted: send from the lowest unconfirmed row. The bridge discards rows that it has already."""

    settled: int = 0  # dropped rows up to there are in Kafka after all; 0 if that is known


@dataclass(frozen=True, slots=True)
class Reopen:
    """The sequences cannot be trusted: send the unsettled rows in a new stream, marked `replayed`."""

    why: str


def resume(own: Own, mark: Mark) -> Resume | Reopen:
    """Compare the gateway's state of a stream with the bridge's."""
    if mark.hwm > own.head:
        return Reopen(f"the bridge has sequence {mark.hwm}, but this outbox ends at {own.head}: it is an older copy")
    if mark.hwm < own.settled or 0 < mark.chain_sequence < own.settled:
        found = f"the bridge has sequence {mark.hwm}, its chain ends at {mark.chain_sequence}, but {own.settled} was settled"
        return Reopen(f"{found}: Kafka has lost data, or a move of this stream was cut short")
    if not mark.hwm and own.waited_ms > KNOWN_MS - CLOCKS_DIFFER_MS:
        return Reopen("its events are so old that the bridge may have forgotten that it has them")
    known = own.settled_chain or None if mark.chain_sequence == own.settled else own.chain_at_mark
    if mark.chain_sequence and known is not None and known != mark.chain:
        return Reopen(f"the chains differ at sequence {mark.chain_sequence}: another copy of this outbox has sent events")
    if known is None and mark.chain_sequence > own.settled:
        return Reopen(f"sequence {mark.chain_sequence} was dropped here, so it is unknown whether this outbox has sent it")
    there = min(mark.hwm, own.dropped_upto) if known is not None else 0
    return Resume(there if there > own.settled else 0)
