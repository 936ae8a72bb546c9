"""The compacted checkpoint topic: where to begin reading a shard, never the truth itself.

Written within a transaction that follows the commits that it describes, so that a fenced bridge cannot write one.

| key | value |
|---|---|
| `layout` (partition 0) | the shard count, as the topics were made |
| `command-key` (partition 0) | the secret key that names commands, where no signing key is configured |
| `owner` | which bridge took the shard last, and where it listens |
| `stream/{gateway}/{stream}` | `Known`: HWM, chain and counts of one stream |
| `route/{device}` | the gateway that reaches the device |
| `position` | per topic: everything below this offset is in the stream entries |
"""

import logging
from collections.abc import Iterable
from typing import Annotated

import msgspec

from fogline_cloud.bridge.admission import Known, StreamKey
from fogline_cloud.commands.command_id import KEY_BYTES

LAYOUT = b"layout"
COMMAND_KEY = b"command-key"
OWNER = b"owner"
POSITION = b"position"
_STREAM = b"stream/"
_ROUTE = b"route/"

_log = logging.getLogger("fogline.shard")


class Layout(msgspec.Struct, frozen=True):
    """How the topics were made."""

    shards: int


class CommandKey(msgspec.Struct, frozen=True):
    """The secret that names commands (see `CommandIds`)."""

    key: Annotated[bytes, msgspec.Meta(min_length=KEY_BYTES)]


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
    command_key: bytes | None = None


Entry = tuple[bytes, bytes]

_log = logging.getLogger("fogline.shard")


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


def command_key_entry(key: CommandKey) -> Entry:
    """Key and value of the command key."""
    return COMMAND_KEY, msgspec.json.encode(key)


def layout_entry(layout: Layout) -> Entry:
    """Key and value of the layout."""
    return LAYOUT, msgspec.json.encode(layout)


def read_entries(entries: Iterable[Entry]) -> Checkpoint:
    """Read the newest of each key, from a partition's records in order. An empty value deletes its key.

    Unknown keys are skipped, and so is an entry that cannot be read. If that was a stream's, the position is skipped
    too: all records have to be read again, because that stream's are not in any entry.
    """
    newest = dict(entries)
    checkpoint = Checkpoint()
    whole = True
    for key, value in newest.items():
        try:
            if value:
                _read_entry(checkpoint, key, value)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            _log.warning("the checkpoint's entry %s is skipped: %s", ascii(key)[:100], error)
            whole = whole and not key.startswith(_STREAM)
    if not whole:
        checkpoint.position = {}
    return checkpoint


def _read_entry(checkpoint: Checkpoint, key: bytes, value: bytes) -> None:
    if key == POSITION:
        checkpoint.position = msgspec.json.decode(value, type=dict[str, int])
    elif key == OWNER:
        checkpoint.owner = msgspec.json.decode(value, type=Owner)
    elif key == LAYOUT:
        checkpoint.layout = msgspec.json.decode(value, type=Layout)
    elif key == COMMAND_KEY:
        checkpoint.command_key = msgspec.json.decode(value, type=CommandKey).key
    elif key.startswith(_ROUTE):
        checkpoint.routes[key[len(_ROUTE) :].decode()] = msgspec.json.decode(value, type=RouteEntry)
    elif key.startswith(_STREAM):
        known = msgspec.json.decode(value, type=Known)
        checkpoint.streams[known.gateway, known.stream] = known
