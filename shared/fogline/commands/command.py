r"""A command: an operator's request to one device, with one reply. Values and rules; no IO.

```
bridge:   ACCEPTED -> DISPATCHED -> (the gateway reports)   -> terminal
             |     \------> CANCELLING -> (the gateway decides) -> terminal
             \-> CANCELLED | EXPIRED | REJECTED
gateway:  QUEUED -> SENDING -> SUCCEEDED | FAILED | REJECTED
             |          \-> IN_DOUBT   (a crash or a lost answer: the device may have executed it)
             \-> CANCELLED | EXPIRED   (certain: the device never got it)
```

A command is executed once, or expires, or is reported in doubt. Only a late answer to a doubt leaves a terminal state.
"""

import hashlib
import re
from collections.abc import Callable
from enum import IntEnum, StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from fogline.address import check_identifier
from fogline.documents.document_error import explained
from fogline.errors import Poison
from fogline.events.codec import Beacon
from fogline.message import Message, Property

MAX_COMMAND_BYTES = 256 * 1024
"""Limit of the bytes of a command's body, and of its answer's."""
MAX_NAME = 128
MAX_TEXT = 1024
"""Limit of the characters of a command's content type, and of its correlation id."""
REMEMBER_COMMANDS_S = 8 * 24 * 3600
"""Time for which a journal has a command that is over: longer than any may live, so that a late copy is recognised."""
RULE_PREFIX = "rule."
"""Beginning of the ids of commands that a gateway's own rules give. No bridge makes such an id, or has a record of one."""
EXPIRED = "fogline:expired"
"""Error condition: the gateway rejects a command whose deadline is past."""
CONFLICT = "fogline:conflict"
"""Error condition: a command is rejected because its id is known with another body."""


class CommandState(StrEnum):
    """The state of a command. Those from `SUCCEEDED` on are terminal."""

    PROPOSED = "PROPOSED"
    ACCEPTED = "ACCEPTED"
    DISPATCHED = "DISPATCHED"
    QUEUED = "QUEUED"
    SENDING = "SENDING"
    CANCELLING = "CANCELLING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    REJECTED = "REJECTED"
    CANCELLED = "CANCELLED"
    EXPIRED = "EXPIRED"
    IN_DOUBT = "IN_DOUBT"

    @property
    def terminal(self) -> bool:
        """True if the command is over (`IN_DOUBT`: unless a late answer arrives)."""
        return self in _TERMINAL


_OPEN = {
    CommandState.PROPOSED,
    CommandState.ACCEPTED,
    CommandState.DISPATCHED,
    CommandState.QUEUED,
    CommandState.SENDING,
    CommandState.CANCELLING,
}
_TERMINAL = {*CommandState} - _OPEN
_NEXT: dict[CommandState, set[CommandState]] = {
    CommandState.PROPOSED: {
        CommandState.ACCEPTED,
        CommandState.CANCELLING,
        CommandState.CANCELLED,
        CommandState.EXPIRED,
    },
    CommandState.ACCEPTED: {CommandState.DISPATCHED, CommandState.CANCELLING, *_TERMINAL},
    CommandState.DISPATCHED: {CommandState.CANCELLING, *_TERMINAL},
    CommandState.CANCELLING: {*_TERMINAL},
    CommandState.QUEUED: {CommandState.SENDING, CommandState.REJECTED, CommandState.CANCELLED, CommandState.EXPIRED},
    CommandState.SENDING: {CommandState.QUEUED, *_TERMINAL},
    CommandState.IN_DOUBT: {CommandState.SUCCEEDED, CommandState.FAILED, CommandState.REJECTED, CommandState.EXPIRED},
}


def may_become(now: CommandState, then: CommandState) -> bool:
    """Return True if a command in state `now` may change to `then`."""
    return then in _NEXT.get(now, ())


class Status(IntEnum):
    """Status codes of replies without a device's answer (meanings as in RFC 9110 section 15)."""

    TAKEN = 202
    FORBIDDEN = 403
    UNKNOWN_DEVICE = 404
    EXPIRED = 408
    CONFLICT = 409
    CANCELLED = 410
    UNDELIVERABLE = 422
    QUOTA = 429
    OFFLINE = 503
    NO_ANSWER = 504


class Deadline(msgspec.Struct, frozen=True):
    """A moment on the gateway's clock since boot, which cannot be set: boot id and CLOCK_BOOTTIME in milliseconds."""

    boot_id: str
    boottime_ms: int

    def left_ms(self, now: Beacon) -> int:
        """Return the milliseconds until the deadline; 0 or less if it is past, or of another boot, where it is unknown."""
        return self.boottime_ms - now.boottime_ms if self.boot_id == now.boot_id else 0

    def is_ahead(self, now: Callable[[], Beacon]) -> bool:
        """Return True if the deadline is not past by the clock `now`."""
        return self.left_ms(now()) > 0


class Reply(msgspec.Struct, frozen=True):
    """The answer of a device. `status`: the device's own status, 200 to 599; 2xx is success."""

    status: int
    data: bytes = b""
    content_type: str | None = None

    @property
    def state(self) -> CommandState:
        """The terminal state of the command."""
        return CommandState.SUCCEEDED if 200 <= self.status < 300 else CommandState.FAILED


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """One command from the bridge to the gateway."""

    id: str  # the same for every copy of the command
    tenant: str
    gateway: str
    device: str
    name: str  # the operation (AMQP `subject`)
    deadline: Deadline
    data: bytes = b""
    content_type: str | None = None
    reply: bool = True  # expect the device's answer; without it, the device's acknowledgement ends the command
    durable: bool = False  # wait for an absent device until the deadline; else deliver at once or not at all
    idempotent: bool = False  # a second execution does no harm, so an uncertain delivery is repeated
    correlation: str = ""  # the operator's correlation id as text
    key_id: str = ""  # of the signature (Ed25519, RFC 8032), "" without one
    signature: bytes = b""  # of `signed_bytes`


class JournalQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A bridge's query for command `id` with this `digest` in the gateway's journal.

    The outcome: accepted (it has the command), released (it has not), rejected with `CONFLICT` (it has another of this id).
    """

    id: str
    tenant: str
    gateway: str
    digest: bytes


NAME_PATTERN = rf"[!-\"$%'-*,\-.0-9:->@-~]{{1,{MAX_NAME}}}"
"""Names of commands: printable ASCII without blanks and `/ + # ? &`. In the syntax that Python and ECMA-262 share."""


def check_name(name: str) -> str:
    """Return `name` if it is a command's: up to `MAX_NAME` of printable ASCII. Raises `Poison('bad-name')`."""
    if re.fullmatch(NAME_PATTERN, name) is None:
        what = f"up to {MAX_NAME} of ASCII without blanks / + # ? &"
        raise Poison("bad-name", f"{ascii(name)[:80]} is not a name of a command: {what}")
    return name


def digest(command: Command) -> bytes:
    """Return the 16-byte digest of a command's content. The same id with another digest is a conflict (409)."""
    parts = (command.device, command.name, command.content_type or "", str(command.reply), str(command.idempotent))
    return hashlib.blake2b(framed(*(part.encode() for part in parts), command.data), digest_size=16).digest()


def signed_bytes(command: Command) -> bytes:
    """Return the bytes that `signature` covers: every other field, each length-prefixed."""
    flags = (command.reply, command.durable, command.idempotent)
    texts = (
        "fogline command",
        command.id,
        command.tenant,
        command.gateway,
        command.device,
        command.name,
        command.deadline.boot_id,
        str(command.deadline.boottime_ms),
        command.content_type or "",
        "".join("1" if flag else "0" for flag in flags),
        command.correlation,
        command.key_id,
    )
    return framed(*(text.encode() for text in texts), command.data)


def framed(*fields: bytes) -> bytes:
    """Return the fields, each length-prefixed, so that different lists of fields give different bytes."""
    return b"".join(len(field).to_bytes(4, "big") + field for field in fields)


def encode_command(command: Command) -> Message:
    """Return the message for `control/{tenant}/{gateway}`. Its body is the operator's, unchanged."""
    return Message(
        body=command.data,
        subject=command.name,
        message_id=command.id,
        content_type=command.content_type,
        durable=command.durable,
        properties={
            "fogline": "command",
            "tenant": command.tenant,
            "gateway": command.gateway,
            "device_id": command.device,
            "reply": command.reply,
            "idempotent": command.idempotent,
            "correlation": command.correlation,
            "deadline_boot": command.deadline.boot_id,
            "deadline_ms": command.deadline.boottime_ms,
            "key_id": command.key_id,
            "signature": command.signature,
        },
    )


def is_command(message: Message) -> bool:
    """Return True if a message on a control address is a command."""
    return message.properties.get("fogline") == "command"


def encode_query(query: JournalQuery) -> Message:
    """Return the message for `control/{tenant}/{gateway}`."""
    asked: dict[str, Property] = {"tenant": query.tenant, "gateway": query.gateway, "digest": query.digest}
    return Message(message_id=query.id, properties={"fogline": "journal-query", **asked})


def is_query(message: Message) -> bool:
    """Return True if a message on a control address is a query about the journal."""
    return message.properties.get("fogline") == "journal-query"


def decode_query(message: Message) -> JournalQuery:
    """Return the query of a message. Raises `Poison` (`malformed`, `bad-identifier`)."""
    content = message.properties.get("digest")
    if not isinstance(content, bytes):
        raise Poison("malformed", "a query about the journal must have the digest of a command")
    return JournalQuery(
        id=check_identifier(str(message.message_id or ""), "command id"),
        tenant=check_identifier(str(message.properties.get("tenant")), "tenant"),
        gateway=check_identifier(str(message.properties.get("gateway")), "gateway"),
        digest=content,
    )


class _Properties(msgspec.Struct, kw_only=True):
    tenant: str
    gateway: str
    device_id: str
    reply: bool
    idempotent: bool
    correlation: Annotated[str, Meta(max_length=MAX_TEXT)]
    deadline_boot: Annotated[str, Meta(max_length=128)]
    deadline_ms: Annotated[int, Meta(ge=-(2**53), le=2**53)]
    key_id: Annotated[str, Meta(max_length=64)]
    signature: Annotated[bytes, Meta(max_length=64)]


def decode_command(message: Message) -> Command:
    """Return the command of a message. Raises `Poison` (`malformed`, `bad-identifier`, `bad-name`, `too-big`)."""
    try:
        found = msgspec.convert(dict(message.properties), _Properties)
    except msgspec.ValidationError as error:
        raise Poison("malformed", f"a command's properties are not readable: {explained(error, _Properties)}") from None
    if len(message.body) > MAX_COMMAND_BYTES:
        raise Poison("too-big", f"a command's body may have {MAX_COMMAND_BYTES} bytes")
    if len(message.content_type or "") > MAX_TEXT:
        raise Poison("too-big", f"a command's content type may have {MAX_TEXT} characters")
    return Command(
        id=check_identifier(str(message.message_id or ""), "command id"),
        tenant=check_identifier(found.tenant, "tenant"),
        gateway=check_identifier(found.gateway, "gateway"),
        device=check_identifier(found.device_id, "device"),
        name=check_name(message.subject or ""),
        data=message.body,
        content_type=message.content_type,
        reply=found.reply,
        durable=message.durable,
        idempotent=found.idempotent,
        correlation=found.correlation,
        deadline=Deadline(found.deadline_boot, found.deadline_ms),
        key_id=found.key_id,
        signature=found.signature,
    )
