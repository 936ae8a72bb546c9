"""The compacted checkpoint topic: where to begin reading a shard, never the truth itself.

Written within a transaction that follows the commits that it describes, so that a fenced bridge cannot write one.

| key | value |
|---|---|
| `layout` (partition 0) | the shard count, as the topics were made |
| `owner` | which bridge took the shard last, and where it listens |
| `stream/{gateway}/{stream}` | `Known`: HWM, chain and counts of one stream |
| `route/{device}` | the gateway that reaches the device |
| `position` | per topic: everything below this offset is in the stream entries |
"""

from collections.abc import Iterable

import msgspec

from fogline_cloud.bridge.admission import Known, StreamKey

LAYOUT = b"layout"
OWNER = b"owner"
POSITION = b"position"
_STREAM = b"stream/"
_ROUTE = b"route/"


class Layout(msgspec.Struct, frozen=True):
    """How the topics were made."""

    shards: int


class Owner(msgspec.Struct, frozen=True):
    """Who took the shard last."""

    bridge: str
    advertised: str


class RouteEntry(msgspec.Struct, frozen=True):
    """The gateway that reaches a device, and since when (milliseconds since 1970): another shard may hold another word."""

    gateway: str
    since_ms: int


class Checkpoint(msgspec.Struct):
    """One shard's entries, the newest of each key."""

    streams: dict[StreamKey, Known] = msgspec.field(default_factory=dict)
    position: dict[str, int] = msgspec.field(default_factory=dict)
    routes: dict[str, RouteEntry] = msgspec.field(default_factory=dict)
    owner: Owner | None = None
    layout: Layout | None = None


Entry = tuple[bytes, bytes]


def stream_entry(known: Known) -> Entry:
    """Key and value of one stream."""
    return _STREAM + f"{known.gateway}/{known.stream}".encode(), msgspec.json.encode(known)


def route_entry(device: str, route: RouteEntry) -> Entry:
    """Key and value of one device's route."""
    return _ROUTE + device.encode(), msgspec.json.encode(route)


def position_entry(position: dict[str, int]) -> Entry:
    """Key and value of the positions."""
    return POSITION, msgspec.json.encode(position)


def owner_entry(owner: Owner) -> Entry:
    """Key and value of the owner."""
    return OWNER, msgspec.json.encode(owner)


def layout_entry(layout: Layout) -> Entry:
    """Key and value of the layout."""
    return LAYOUT, msgspec.json.encode(layout)


def read_entries(entries: Iterable[Entry]) -> Checkpoint:
    """The newest of each key, from a partition's records in order. Keys that are not known are passed over."""
    checkpoint = Checkpoint()
    for key, value in entries:
        if key == POSITION:
            checkpoint.position = msgspec.json.decode(value, type=dict[str, int])
        elif key == OWNER:
            checkpoint.owner = msgspec.json.decode(value, type=Owner)
        elif key == LAYOUT:
            checkpoint.layout = msgspec.json.decode(value, type=Layout)
        elif key.startswith(_ROUTE):
            checkpoint.routes[key[len(_ROUTE) :].decode()] = msgspec.json.decode(value, type=RouteEntry)
        elif key.startswith(_STREAM):
            known = msgspec.json.decode(value, type=Known)
            checkpoint.streams[known.gateway, known.stream] = known
    return checkpoint
