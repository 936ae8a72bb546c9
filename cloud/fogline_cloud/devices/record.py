"""The records of a device on `fogline.devices` (compacted: the newest one of each key counts). Pure.

| key | partition | written by | value |
|---|---|---|---|
| `device/{device}` | the device's shard | an operator's `set` or `forget` | `DeviceRecord` |
| `desired/{device}` | the device's shard | an operator's `want` | `DesiredRecord` |
| `seen/{device}/{gateway}` | the gateway's shard | events of the device | `DeviceSighting` |
| `outcome/{device}/{gateway}` | the gateway's shard | the end of the command that carried a desired state | `DesiredOutcome` |
| `reported/{device}/{gateway}` | the gateway's shard | answers and events of the device | `ReportedState` |
| `about/{device}/{gateway}` | the gateway's shard | events of a program at the gateway about the device | `DeviceAbout` |

The partition is the shard of the name that the record is about, so each key has one writer: the bridge that owns the shard. A
device that speaks AMQP itself has no gateway; its `{gateway}` is empty, and the partition is the device's shard.
"""

import contextlib
import sys
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw

from fogline.address import is_identifier, shard_of
from fogline.documents.json_document import read_document
from fogline.errors import Poison
from fogline.events.device_report import DeviceDescription

MAX_TAGS = 32
MAX_COMMANDS = 64
MAX_SCHEMAS_BYTES = 32 * 1024
"""Limit of the schemas of a device's commands, as JSON."""
MAX_FIRMWARE = 64
DEVICE = "device"
DESIRED = "desired"
SEEN = "seen"
OUTCOME = "outcome"
REPORTED = "reported"
ABOUT = "about"
_OF_DEVICE = (DEVICE, DESIRED)
_OF_GATEWAY = (SEEN, OUTCOME, REPORTED, ABOUT)
_Ms = Annotated[int, Meta(ge=0, le=2**53)]
_Tag = Annotated[str, Meta(max_length=64)]


class DeviceRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The fields of a device that operators set. `changed_ms` is milliseconds since 1970."""

    version: Annotated[int, Meta(ge=1, le=2**53)]
    changed_ms: _Ms
    changed_by: Annotated[str, Meta(max_length=512)]
    type: _Tag = ""
    tags: dict[_Tag, _Tag] = msgspec.field(default_factory=dict)
    commands: str = ""
    """JSON object: the JSON Schema of the arguments of each command that the device takes. "": its type tells them."""


class _WireDevice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    version: Annotated[int, Meta(ge=1, le=2**53)]
    changed_ms: _Ms
    changed_by: Annotated[str, Meta(max_length=512)]
    type: _Tag = ""
    tags: dict[_Tag, _Tag] = msgspec.field(default_factory=dict)
    commands: dict[str, Any] | None = None


class DeviceSighting(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The last time that a gateway had events of a device, to the precision of `devices.seen_every_s`."""

    seen_ms: _Ms
    firmware: Annotated[str, Meta(max_length=MAX_FIRMWARE)] = ""
    """Property `firmware` of the device's events."""
    lanes: Annotated[dict[_Tag, _Ms], Meta(max_length=8)] | None = None
    """The same time by lane, for lanes for which `[[fleet.silent]]` has a limit of their own."""


class DeviceAbout(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a program at a gateway, such as Zigbee2MQTT, says of one of its devices."""

    changed_ms: _Ms
    description: DeviceDescription | None = None
    online: bool | None = None
    online_ms: _Ms = 0
    """The time from which `online` holds."""


class DeviceKey(msgspec.Struct, frozen=True):
    """The key of a record: its kind, its device, and the gateway if there is one."""

    kind: str
    device: str
    gateway: str = ""

    def encode(self) -> bytes:
        """Return the key of the Kafka record."""
        parts = (self.kind, self.device, self.gateway) if self.kind in _OF_GATEWAY else (self.kind, self.device)
        return "/".join(parts).encode()

    @property
    def about(self) -> str:
        """The name that the record is about, to whose shard it belongs."""
        return self.gateway or self.device


def device_key(device: str) -> DeviceKey:
    """Return the key of a device's own record."""
    return DeviceKey(DEVICE, device)


def seen_key(device: str, gateway: str) -> DeviceKey:
    """Return the key of the events of a device through a gateway."""
    return DeviceKey(SEEN, device, gateway)


def read_key(key: bytes) -> DeviceKey:
    """Return the key of a Kafka record. Raises `Poison('malformed')`."""
    match key.decode("utf-8", "replace").split("/"):
        case [kind, device] if kind in _OF_DEVICE and is_identifier(device):
            return DeviceKey(sys.intern(kind), sys.intern(device))
        case [kind, device, gateway] if (
            kind in _OF_GATEWAY and is_identifier(device) and (not gateway or is_identifier(gateway))
        ):
            return DeviceKey(sys.intern(kind), sys.intern(device), sys.intern(gateway))
    raise Poison("malformed", f"{ascii(key)[:100]} is not the key of a device")


def is_elsewhere(key: bytes, partition: int, shards: int) -> bool:
    """Return True if a record, or what deletes it, is in the partition of a shard to which it belonged formerly."""
    with contextlib.suppress(Poison):
        return shard_of(read_key(key).about, shards) != partition
    return False


def encode_device(record: DeviceRecord) -> bytes:
    """Return the record as JSON."""
    fields: dict[str, Any] = msgspec.structs.asdict(record)
    fields["commands"] = Raw(record.commands.encode()) if record.commands else None
    return msgspec.json.encode({name: value for name, value in fields.items() if value})


def decode_device(body: bytes) -> DeviceRecord:
    """Return the record of a JSON text. Equal strings are shared. Raises `Poison('malformed')`."""
    wire = read_document(body, _WireDevice, "a device record")
    return DeviceRecord(
        version=wire.version,
        changed_ms=wire.changed_ms,
        changed_by=sys.intern(wire.changed_by),
        type=sys.intern(wire.type),
        tags={sys.intern(name): sys.intern(value) for name, value in wire.tags.items()},
        commands=commands_text(wire.commands),
    )


def commands_text(commands: dict[str, Any] | None) -> str:
    """Return the schemas of a device's commands as `DeviceRecord.commands`."""
    return "" if commands is None else sys.intern(msgspec.json.encode(commands, order="sorted").decode())


def encode_sighting(sighting: DeviceSighting) -> bytes:
    """Return the sighting as JSON."""
    return msgspec.json.encode(sighting)


def decode_sighting(body: bytes) -> DeviceSighting:
    """Return the sighting of a JSON text. Raises `Poison('malformed')`."""
    found = read_document(body, DeviceSighting, "a sighting")
    lanes = {sys.intern(lane): at_ms for lane, at_ms in found.lanes.items()} if found.lanes else None
    return DeviceSighting(seen_ms=found.seen_ms, firmware=sys.intern(found.firmware), lanes=lanes)
