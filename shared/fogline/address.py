"""Identifiers, names of devices, and AMQP addresses: their syntax, and their text on the wire.

An identifier (tenant, gateway, device, lane) is `[A-Za-z0-9._:-]{1,64}`; every entry point checks it.

A device has a name in the field: a client id, a user, a level of a topic or path, a Bluetooth or a friendly name. Every door
makes its identifier by `device_identifier`. A name that is an identifier stays as it is. In any other name each byte of its
UTF-8 that is not allowed, and `:` itself, becomes `:` and two hex digits: `Wohnzimmer Lampe` is `Wohnzimmer:20Lampe`. If that
has more than 64 characters, it is cut, and ends with `::` and a digest; a device may call itself by that identifier too. Two
other names never have one identifier: a name that looks like the identifier of another one is escaped (`AB:20C` is
`AB:3A20C`, because `AB C` is `AB:20C`). In an address, `{device}` is an identifier, or a name that is none.

The AMQP addresses are the same for a bridge, a router and a broker:

| address | sender and content |
|---|---|
| `hello/{tenant}` | a gateway: the first message on a connection |
| `hello/{tenant}/{shard}` | a gateway behind a router or a broker: the same, to the bridge that owns its shard |
| `ingest/{tenant}/{shard}` | a gateway: events, over one link for each lane |
| `control/{tenant}/{gateway}` | the bridge: the answer to hello, commands |
| `command/{tenant}`, `command/{tenant}/{device}` | an operator: commands (as Eclipse Hono has it); the bridge: lists of them |
| `command_response/{tenant}/{reply_id}` | the bridge: the replies to an operator's commands |
| `device/{tenant}`, `device/{tenant}/{device}` | an operator: changes of the registry of devices; the bridge: lists of them |
| `telemetry/{tenant}/{device}`, `event/{tenant}/{device}` | any AMQP client: events of a device |
| `parser/{tenant}/{parser}` | a deployer: that it deploys a parser, before the HTTP API does it |
| `flow/{tenant}/{flow}` | an administrator: that events are parsed again, before the operator's page orders it |
| `enroll/{tenant}/{gateway}` | a gateway: a certificate signing request; the bridge: the certificate |
| none (a link without a target address) | as the last six, by the `to` of each message (anonymous relay) |
"""

import hashlib
import re
import unicodedata
import zlib

import msgspec

from fogline.errors import Poison

_IDENTIFIER = re.compile(r"[A-Za-z0-9._:-]{1,64}", re.ASCII)
_MAX_SHOWN = 80
_MAX_LINE = 1000
MAX_NAME_BYTES = 4096
"""Longest name in bytes of UTF-8."""
_LIMIT = 64
_DIGEST_BYTES = 8
_KEPT = _LIMIT - 2 - 2 * _DIGEST_BYTES
_NOT_PLAIN = re.compile(rb"[^A-Za-z0-9._-]")
_ESCAPED = re.compile(rb":([0-9A-F]{2})")


def is_identifier(text: str) -> bool:
    """Return True if `text` is a valid name of a tenant, gateway or device."""
    return _IDENTIFIER.fullmatch(text) is not None


def check_identifier(text: str, what: str) -> str:
    """Return `text`. Raises `Poison('bad-identifier')`, whose message names `what` and the shortened text."""
    if not is_identifier(text):
        raise Poison("bad-identifier", f"{what} {shown(text)} is not 1 to 64 of A-Z a-z 0-9 . _ : -")
    return text


def shown(text: str) -> str:
    """Return `text` as an ASCII literal of at most 80 characters, safe for a terminal or a log."""
    return ascii(text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 1] + "…")


def printable(text: str) -> str:
    """Return `text` as one line of at most 1,000 characters, with a blank for each character that is not printable."""
    return "".join(each if each.isprintable() else " " for each in text[:_MAX_LINE])


def device_identifier(name: str, what: str) -> str:
    """Return the identifier of the device with this name.

    Raises `Poison('bad-identifier')`, naming `what`, for an empty name, a control character, or more than `MAX_NAME_BYTES`.
    """
    if is_identifier(name) and not _is_escaped(name):
        return name
    if not name or any(unicodedata.category(each) in ("Cc", "Cs") for each in name) or len(name.encode()) > MAX_NAME_BYTES:
        raise Poison("bad-identifier", f"{what} {shown(name)} is empty, too long, or holds a control character")
    return escape(name)


def addressed_device(text: str, what: str) -> str:
    """Return the identifier of the device that an operator addresses: by its identifier, or by a name that is none.

    Raises `Poison` as `device_identifier` does.
    """
    return text if is_identifier(text) else device_identifier(text, what)


def device_name(identifier: str) -> str:
    """Return the name of an identifier: the inverse of `device_identifier`. Of a long name it is the identifier itself."""
    if not _is_escaped(identifier):
        return identifier
    name = _unescaped(identifier)
    return identifier if is_identifier(name) and not _is_escaped(name) else name


def escape(name: str) -> str:
    """Return any name as an identifier. One over 64 characters is cut and ends with `::`, which no other has, and a digest."""
    data = name.encode("utf-8", "surrogateescape")
    escaped = _NOT_PLAIN.sub(lambda match: b":%02X" % match[0][0], data).decode("ascii")
    if 0 < len(escaped) <= _LIMIT:
        return escaped
    return f"{escaped[:_KEPT]}::{hashlib.blake2b(data, digest_size=_DIGEST_BYTES).hexdigest()}"


def _is_escaped(identifier: str) -> bool:
    """Return True if `escape` makes this identifier from another name."""
    if ":" not in identifier:
        return False
    name = _unescaped(identifier)
    return name != identifier and escape(name) == identifier


def _unescaped(identifier: str) -> str:
    unescaped = _ESCAPED.sub(lambda match: bytes.fromhex(match[1].decode()), identifier.encode())
    try:
        return unescaped.decode()
    except UnicodeDecodeError:
        return identifier


def shard_of(gateway: str, shards: int) -> int:
    """Return the shard of `gateway`: `crc32(utf8(gateway)) mod shards`."""
    return zlib.crc32(gateway.encode()) % shards


def source_of(tenant: str, device: str) -> str:
    """Return the CloudEvents `source` of a device's events. It never names the gateway."""
    return f"/{tenant}/devices/{device}"


class HelloAddress(msgspec.Struct, frozen=True):
    """`hello/{tenant}`, or `hello/{tenant}/{shard}` for the bridge that owns a shard."""

    tenant: str
    shard: int | None = None

    def __str__(self) -> str:
        return f"hello/{self.tenant}" if self.shard is None else f"hello/{self.tenant}/{self.shard}"


class IngestAddress(msgspec.Struct, frozen=True):
    """`ingest/{tenant}/{shard}`."""

    tenant: str
    shard: int

    def __str__(self) -> str:
        return f"ingest/{self.tenant}/{self.shard}"


class Control(msgspec.Struct, frozen=True):
    """`control/{tenant}/{gateway}`."""

    tenant: str
    gateway: str

    def __str__(self) -> str:
        return f"control/{self.tenant}/{self.gateway}"


class CommandAddress(msgspec.Struct, frozen=True):
    """`command/{tenant}` or `command/{tenant}/{device}`; `device` is "" if the message names it."""

    tenant: str
    device: str

    def __str__(self) -> str:
        return f"command/{self.tenant}/{self.device}".rstrip("/")


class CommandResponse(msgspec.Struct, frozen=True):
    """`command_response/{tenant}/{reply_id}`."""

    tenant: str
    reply_id: str

    def __str__(self) -> str:
        return f"command_response/{self.tenant}/{self.reply_id}"


class Reports(msgspec.Struct, frozen=True):
    """`telemetry/{tenant}/{device}` or `event/{tenant}/{device}`; `device` is "" if the message names it."""

    endpoint: str
    tenant: str
    device: str

    def __str__(self) -> str:
        return f"{self.endpoint}/{self.tenant}/{self.device}".rstrip("/")


class DeviceAddress(msgspec.Struct, frozen=True):
    """`device/{tenant}` or `device/{tenant}/{device}`; `device` is "" if the message names it."""

    tenant: str
    device: str

    def __str__(self) -> str:
        return f"device/{self.tenant}/{self.device}".rstrip("/")


class ParserAddress(msgspec.Struct, frozen=True):
    """`parser/{tenant}/{parser}`."""

    tenant: str
    parser: str

    def __str__(self) -> str:
        return f"parser/{self.tenant}/{self.parser}"


class FlowAddress(msgspec.Struct, frozen=True):
    """`flow/{tenant}/{flow}`."""

    tenant: str
    flow: str

    def __str__(self) -> str:
        return f"flow/{self.tenant}/{self.flow}"


class EnrollAddress(msgspec.Struct, frozen=True):
    """`enroll/{tenant}/{gateway}`."""

    tenant: str
    gateway: str

    def __str__(self) -> str:
        return f"enroll/{self.tenant}/{self.gateway}"


class Relay(msgspec.Struct, frozen=True):
    """A link without an address: each message has its own (OASIS Anonymous Terminus for Message Routing)."""

    tenant: str

    def __str__(self) -> str:
        return "the anonymous relay"


Address = (
    HelloAddress
    | IngestAddress
    | Control
    | CommandAddress
    | CommandResponse
    | DeviceAddress
    | ParserAddress
    | FlowAddress
    | Reports
    | EnrollAddress
    | Relay
)
_ENDPOINTS = {"telemetry": "telemetry", "t": "telemetry", "event": "event", "e": "event"}
_REPLY_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,256}", re.ASCII)


def parse_address(text: str) -> Address:  # noqa: C901, PLR0911 - one for each kind
    """Return the address of a text. Raises `Poison` (`bad-address`; `bad-identifier` for a name that no device can have)."""
    match text.split("/"):
        case ["hello", tenant] if is_identifier(tenant):
            return HelloAddress(tenant)
        case ["hello", tenant, shard] if is_identifier(tenant) and _is_shard(shard):
            return HelloAddress(tenant, int(shard))
        case ["ingest", tenant, shard] if is_identifier(tenant) and _is_shard(shard):
            return IngestAddress(tenant, int(shard))
        case ["control", tenant, gateway] if is_identifier(tenant) and is_identifier(gateway):
            return Control(tenant, gateway)
        case ["command", tenant, *device] if is_identifier(tenant) and _is_device(device):
            return CommandAddress(tenant, _device(device))
        case ["command_response", tenant, *reply_id] if is_identifier(tenant) and _REPLY_ID.fullmatch("/".join(reply_id)):
            return CommandResponse(tenant, "/".join(reply_id))
        case ["device", tenant, *device] if is_identifier(tenant) and _is_device(device):
            return DeviceAddress(tenant, _device(device))
        case ["parser", tenant, parser] if is_identifier(tenant) and is_identifier(parser):
            return ParserAddress(tenant, parser)
        case ["flow", tenant, flow] if is_identifier(tenant) and is_identifier(flow):
            return FlowAddress(tenant, flow)
        case ["enroll", tenant, gateway] if is_identifier(tenant) and is_identifier(gateway):
            return EnrollAddress(tenant, gateway)
        case [endpoint, tenant, *device] if endpoint in _ENDPOINTS and is_identifier(tenant) and _is_device(device):
            return Reports(_ENDPOINTS[endpoint], tenant, _device(device))
    raise Poison("bad-address", f"no such address: {shown(text)}")


def _is_shard(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 5


def _is_device(levels: list[str]) -> bool:
    return not levels or (len(levels) == 1 and levels[0] != "")


def _device(levels: list[str]) -> str:
    return addressed_device(levels[0], "device") if levels else ""
