"""Names and addresses: what may stand in one, and how they are spelt on the wire.

An identifier (tenant, gateway, device, lane) is `[A-Za-z0-9._:-]{1,64}` and is checked wherever it enters.
AMQP addresses (the same ones directly against a bridge, through a router and through a broker):

| address | who sends there |
|---|---|
| `hello/{tenant}` | a gateway, first thing on a connection |
| `ingest/{tenant}/{shard}` | a gateway, one link a lane |
| `control/{tenant}/{gateway}` | the bridge: answers to hello, commands |
| `command/{tenant}`, `command/{tenant}/{device}` | an operator: commands (Eclipse Hono's command and control API) |
| `command_response/{tenant}/{reply_id}` | the bridge: what became of an operator's commands |
| `telemetry/{tenant}/{device}`, `event/{tenant}/{device}` | any AMQP client: a device's events |
| none (a link without a target address) | any of the last three, each message by its own `to` (anonymous relay) |
"""

import re
import zlib
from dataclasses import dataclass

from fogline.errors import Poison

_IDENTIFIER = re.compile(r"[A-Za-z0-9._:-]{1,64}", re.ASCII)
_MAX_SHOWN = 80
_MAX_LINE = 1000


def is_identifier(text: str) -> bool:
    """Whether `text` may name a tenant, gateway or device."""
    return _IDENTIFIER.fullmatch(text) is not None


def check_identifier(text: str, what: str) -> str:
    """Return `text`, or raise `Poison('bad-identifier')` naming `what` and the text (shortened)."""
    if not is_identifier(text):
        raise Poison("bad-identifier", f"{what} {shown(text)} is not 1 to 64 of A-Z a-z 0-9 . _ : -")
    return text


def shown(text: str) -> str:
    """`text` quoted and shortened, with nothing in it that could disturb a terminal or a log."""
    return ascii(text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 1] + "…")


def printable(text: str) -> str:
    """`text` as one line of at most 1,000 characters, with a blank for each that could disturb a terminal or a log."""
    return "".join(each if each.isprintable() else " " for each in text[:_MAX_LINE])


def shard_of(gateway: str, shards: int) -> int:
    """The shard that owns `gateway`: `crc32(utf8(gateway)) mod shards`."""
    return zlib.crc32(gateway.encode()) % shards


def source_of(tenant: str, device: str) -> str:
    """The CloudEvents `source` of a device's events: the device, never the gateway that heard it."""
    return f"/{tenant}/devices/{device}"


@dataclass(frozen=True, slots=True)
class Hello:
    """`hello/{tenant}`."""

    tenant: str

    def __str__(self) -> str:
        return f"hello/{self.tenant}"


@dataclass(frozen=True, slots=True)
class Ingest:
    """`ingest/{tenant}/{shard}`."""

    tenant: str
    shard: int

    def __str__(self) -> str:
        return f"ingest/{self.tenant}/{self.shard}"


@dataclass(frozen=True, slots=True)
class Control:
    """`control/{tenant}/{gateway}`."""

    tenant: str
    gateway: str

    def __str__(self) -> str:
        return f"control/{self.tenant}/{self.gateway}"


@dataclass(frozen=True, slots=True)
class Commands:
    """`command/{tenant}` or `command/{tenant}/{device}`; `device` is "" where the message itself says."""

    tenant: str
    device: str

    def __str__(self) -> str:
        return f"command/{self.tenant}/{self.device}".rstrip("/")


@dataclass(frozen=True, slots=True)
class CommandResponse:
    """`command_response/{tenant}/{reply_id}`."""

    tenant: str
    reply_id: str

    def __str__(self) -> str:
        return f"command_response/{self.tenant}/{self.reply_id}"


@dataclass(frozen=True, slots=True)
class Reports:
    """`telemetry/{tenant}/{device}` or `event/{tenant}/{device}`; `device` is "" where the message itself says."""

    endpoint: str
    tenant: str
    device: str

    def __str__(self) -> str:
        return f"{self.endpoint}/{self.tenant}/{self.device}".rstrip("/")


@dataclass(frozen=True, slots=True)
class Relay:
    """A link without an address: each message names its own (AMQP anonymous terminus for message routing)."""

    tenant: str

    def __str__(self) -> str:
        return "the anonymous relay"


Address = Hello | Ingest | Control | Commands | CommandResponse | Reports | Relay
_ENDPOINTS = {"telemetry": "telemetry", "t": "telemetry", "event": "event", "e": "event"}
_REPLY_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,256}", re.ASCII)


def parse_address(text: str) -> Address:
    """Read an AMQP address. Raises `Poison('bad-address')` for any text that is none of ours."""
    match text.split("/"):
        case ["hello", tenant] if is_identifier(tenant):
            return Hello(tenant)
        case ["ingest", tenant, shard] if is_identifier(tenant) and shard.isascii() and shard.isdecimal() and len(shard) <= 5:
            return Ingest(tenant, int(shard))
        case ["control", tenant, gateway] if is_identifier(tenant) and is_identifier(gateway):
            return Control(tenant, gateway)
        case ["command", tenant, *device] if is_identifier(tenant) and _is_device(device):
            return Commands(tenant, "".join(device))
        case ["command_response", tenant, *reply_id] if is_identifier(tenant) and _REPLY_ID.fullmatch("/".join(reply_id)):
            return CommandResponse(tenant, "/".join(reply_id))
        case [endpoint, tenant, *device] if endpoint in _ENDPOINTS and is_identifier(tenant) and _is_device(device):
            return Reports(_ENDPOINTS[endpoint], tenant, "".join(device))
    raise Poison("bad-address", f"no such address: {shown(text)}")


def _is_device(levels: list[str]) -> bool:
    return not levels or (len(levels) == 1 and is_identifier(levels[0]))
