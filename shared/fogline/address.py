"""Identifiers and AMQP addresses: their syntax, and their text on the wire.

An identifier (tenant, gateway, device, lane) is `[A-Za-z0-9._:-]{1,64}`; every entry point checks it. The AMQP addresses
are the same for a bridge, a router and a broker:

| address | sender and content |
|---|---|
| `hello/{tenant}` | a gateway: the first message on a connection |
| `ingest/{tenant}/{shard}` | a gateway: events, over one link for each lane |
| `control/{tenant}/{gateway}` | the bridge: the answer to hello, commands |
| `command/{tenant}`, `command/{tenant}/{device}` | an operator: commands (Eclipse Hono's command and control API) |
| `command_response/{tenant}/{reply_id}` | the bridge: the replies to an operator's commands |
| `device/{tenant}`, `device/{tenant}/{device}` | an operator: changes of the registry of devices |
| `telemetry/{tenant}/{device}`, `event/{tenant}/{device}` | any AMQP client: events of a device |
| `enroll/{tenant}/{gateway}` | a gateway: a certificate signing request; the bridge: the certificate |
| none (a link without a target address) | as the last four, by the `to` of each message (anonymous relay) |
"""

import re
import zlib

import msgspec

from fogline.errors import Poison

_IDENTIFIER = re.compile(r"[A-Za-z0-9._:-]{1,64}", re.ASCII)
_MAX_SHOWN = 80
_MAX_LINE = 1000


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


def shard_of(gateway: str, shards: int) -> int:
    """Return the shard of `gateway`: `crc32(utf8(gateway)) mod shards`."""
    return zlib.crc32(gateway.encode()) % shards


def source_of(tenant: str, device: str) -> str:
    """Return the CloudEvents `source` of a device's events. It never names the gateway."""
    return f"/{tenant}/devices/{device}"


class HelloAddress(msgspec.Struct, frozen=True):
    """`hello/{tenant}`."""

    tenant: str

    def __str__(self) -> str:
        return f"hello/{self.tenant}"


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
    HelloAddress | IngestAddress | Control | CommandAddress | CommandResponse | DeviceAddress | Reports | EnrollAddress | Relay
)
_ENDPOINTS = {"telemetry": "telemetry", "t": "telemetry", "event": "event", "e": "event"}
_REPLY_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,256}", re.ASCII)


def parse_address(text: str) -> Address:  # noqa: PLR0911 - one for each kind
    """Return the address of a text. Raises `Poison('bad-address')` for any other text."""
    match text.split("/"):
        case ["hello", tenant] if is_identifier(tenant):
            return HelloAddress(tenant)
        case ["ingest", tenant, shard] if is_identifier(tenant) and shard.isascii() and shard.isdecimal() and len(shard) <= 5:
            return IngestAddress(tenant, int(shard))
        case ["control", tenant, gateway] if is_identifier(tenant) and is_identifier(gateway):
            return Control(tenant, gateway)
        case ["command", tenant, *device] if is_identifier(tenant) and _is_device(device):
            return CommandAddress(tenant, "".join(device))
        case ["command_response", tenant, *reply_id] if is_identifier(tenant) and _REPLY_ID.fullmatch("/".join(reply_id)):
            return CommandResponse(tenant, "/".join(reply_id))
        case ["device", tenant, *device] if is_identifier(tenant) and _is_device(device):
            return DeviceAddress(tenant, "".join(device))
        case ["enroll", tenant, gateway] if is_identifier(tenant) and is_identifier(gateway):
            return EnrollAddress(tenant, gateway)
        case [endpoint, tenant, *device] if endpoint in _ENDPOINTS and is_identifier(tenant) and _is_device(device):
            return Reports(_ENDPOINTS[endpoint], tenant, "".join(device))
    raise Poison("bad-address", f"no such address: {shown(text)}")


def _is_device(levels: list[str]) -> bool:
    return not levels or (len(levels) == 1 and is_identifier(levels[0]))
