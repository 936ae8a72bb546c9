"""The compacted checkpoint topic: the offsets from which the next owner of a shard reads. Pure.

The truth is in the raw records. A checkpoint only shortens the reading. The shard writes it in a transaction after the commits
that it describes, so that a fenced bridge cannot write one.

| key | value |
|---|---|
| `layout` (partition 0) | `Layout`: the number of shards |
| `command-key` (partition 0) | the secret key for command ids |
| `audit` | `AuditLink`: the end of the chain of audit records |
| `owner` | the bridge that took the shard last, and its address |
| `stream/{gateway}/{stream}` | `StreamState`: high-water mark, chain and counts of one stream |
| `route/{device}` | the gateway that reaches the device |
| `position` | by topic, the offset below which the stream entries contain all records |
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

import msgspec

from fogline.errors import Misconfigured
from fogline_cloud.audit.chain import AuditLink
from fogline_cloud.commands.command_id import KEY_BYTES
from fogline_cloud.shard.admission import StreamKey, StreamState

LAYOUT = b"layout"
COMMAND_KEY = b"command-key"
OWNER = b"owner"
POSITION = b"position"
AUDIT = b"audit"
_STREAM = b"stream/"
ROUTE = b"route/"

_log = logging.getLogger("fogline.shard")


class Layout(msgspec.Struct, frozen=True, omit_defaults=True):
    """The number of shards. `former`: the number before, until what belongs to other shards now has moved (`reshard`)."""

    shards: int
    former: int = 0


class LayoutChanged(Misconfigured):
    """The number of shards was changed. A process that knows the former one must end: it would serve gateways of others."""

    def __init__(self, found: Layout) -> None:
        unfinished = ", once the change has ended" if found.former else ""
        super().__init__(f"the number of shards is {found.shards} now; set `shards` to that, and start again{unfinished}")


class CommandKey(msgspec.Struct, frozen=True):
    """The secret key for command ids (see `CommandIds`)."""

    key: Annotated[bytes, msgspec.Meta(min_length=KEY_BYTES)]


class ShardOwner(msgspec.Struct, frozen=True):
    """The bridge that took the shard last."""

    bridge: str
    advertised: str


class RouteEntry(msgspec.Struct, frozen=True):
    """The gateway that reaches a device, since a time in milliseconds since 1970. The newest entry of all shards is valid."""

    gateway: str
    since_ms: int


class ShardCheckpoint(msgspec.Struct):
    """The newest entry of each key of one shard."""

    streams: dict[StreamKey, StreamState] = msgspec.field(default_factory=dict)
    position: dict[str, int] = msgspec.field(default_factory=dict)
    routes: dict[str, RouteEntry] = msgspec.field(default_factory=dict)
    owner: ShardOwner | None = None
    layout: Layout | None = None
    command_key: bytes | None = None
    audit_end: AuditLink = AuditLink()


Entry = tuple[bytes, bytes | None]
"""Key and value of a record; None deletes the key."""
_KEYS = {ShardOwner: OWNER, Layout: LAYOUT, CommandKey: COMMAND_KEY, AuditLink: AUDIT}


@dataclass(slots=True)
class CheckpointChanges:
    """Changes that the last checkpoint of a shard does not contain. False if there are none."""

    streams: dict[StreamKey, StreamState]
    position: dict[str, int]  # for each raw topic, the offset up to which consumers see committed records
    moved: bool  # records were committed beyond the last checkpoint
    retired: list[StreamKey] = field(default_factory=list)  # streams to forget

    def __bool__(self) -> bool:
        return self.moved or bool(self.streams or self.retired)

    def add_commit(self, written: frozenset[str], streams: Iterable[StreamState]) -> None:
        """Add a commit, which wrote to the topics `written` and changed `streams`."""
        self.moved = self.moved or not written.isdisjoint(self.position)
        for state in streams:
            self.streams[state.gateway, state.stream] = state

    def retire(self, streams: Sequence[StreamKey]) -> None:
        """Add streams that are to be forgotten."""
        self.retired += streams
        for key in streams:
            self.streams.pop(key, None)

    def add_visible(self, ends: Mapping[tuple[str, int], int]) -> None:
        """Move the position to `ends`, the offsets by partition up to which consumers see committed records."""
        self.position |= {topic: end for (topic, _), end in ends.items() if topic in self.position}

    def take_entries(self) -> list[Entry]:
        """Return the entries to write, and forget the changes."""
        entries = [*map(stream_entry, self.streams.values()), position_entry(self.position)]
        entries += [(_stream_key(*key), None) for key in self.retired]
        self.streams.clear()
        self.retired.clear()
        self.moved = False
        return entries


def stream_entry(state: StreamState) -> Entry:
    """Return key and value for one stream."""
    return _stream_key(state.gateway, state.stream), msgspec.json.encode(state)


def _stream_key(gateway: str, stream: str) -> bytes:
    return _STREAM + f"{gateway}/{stream}".encode()


def gateway_of(key: bytes, _: bytes) -> str:
    """Return the gateway whose shard an entry belongs to, "" for an entry that belongs to its partition."""
    return key[len(_STREAM) :].split(b"/")[0].decode("utf-8", "replace") if key.startswith(_STREAM) else ""


def route_entry(device: str, route: RouteEntry) -> Entry:
    """Return key and value for the route to one device."""
    return ROUTE + device.encode(), msgspec.json.encode(route)


def position_entry(position: dict[str, int]) -> Entry:
    """Return key and value for the position."""
    return POSITION, msgspec.json.encode(position)


def entry_of(value: ShardOwner | Layout | CommandKey | AuditLink) -> Entry:
    """Return key and value for an entry with a fixed key."""
    return _KEYS[type(value)], msgspec.json.encode(value)


def read_entries(entries: Iterable[Entry]) -> ShardCheckpoint:
    """Read the newest entry of each key, from the records of one partition in order. An empty value deletes its key.

    Malformed entries are skipped; after a malformed stream or audit entry the position too, so that all records are read
    again.
    """
    newest = dict(entries)
    checkpoint = ShardCheckpoint()
    complete = True
    for key, value in newest.items():
        try:
            if value:
                _read_entry(checkpoint, key, value)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            _log.warning("malformed checkpoint entry %s is skipped: %s", ascii(key)[:100], error)
            complete = complete and not key.startswith((_STREAM, AUDIT))
    if not complete:
        checkpoint.position = {}
    return checkpoint


def _read_entry(checkpoint: ShardCheckpoint, key: bytes, value: bytes) -> None:
    if key == POSITION:
        checkpoint.position = msgspec.json.decode(value, type=dict[str, int])
    elif key == OWNER:
        checkpoint.owner = msgspec.json.decode(value, type=ShardOwner)
    elif key == AUDIT:
        checkpoint.audit_end = msgspec.json.decode(value, type=AuditLink)
    elif key == LAYOUT:
        checkpoint.layout = msgspec.json.decode(value, type=Layout)
    elif key == COMMAND_KEY:
        checkpoint.command_key = msgspec.json.decode(value, type=CommandKey).key
    elif key.startswith(ROUTE):
        checkpoint.routes[key[len(ROUTE) :].decode()] = msgspec.json.decode(value, type=RouteEntry)
    elif key.startswith(_STREAM):
        state = msgspec.json.decode(value, type=StreamState)
        checkpoint.streams[state.gateway, state.stream] = state
