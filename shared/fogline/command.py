r"""A command: a request from an operator to one device, and its one answer. Values and rules; no IO.

```
bridge:   ACCEPTED -> DISPATCHED -> (what the gateway says) -> terminal
               \-> CANCELLED | EXPIRED | REJECTED
gateway:  QUEUED -> SENDING -> SUCCEEDED | FAILED | REJECTED
             |          \-> IN_DOUBT   (a crash or a lost answer: the device may have done it)
             \-> CANCELLED | EXPIRED   (certain: the device never saw it)
```

A command runs once, or expires, or is reported in doubt. A doubt may be resolved by an answer that comes late; nothing
else leaves a terminal state.
"""

import hashlib
from enum import IntEnum, StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from fogline.address import check_identifier
from fogline.codec import Beacon
from fogline.errors import Poison
from fogline.message import Message, Property

MAX_COMMAND_BYTES = 256 * 1024
"""The most bytes that a command, or the answer to one, may carry."""
MAX_NAME = 128
MAX_TEXT = 1024
"""The most characters of a command's content type, or of its correlation id."""
EXPIRED = "fogline:expired"
"""The condition under which a gateway rejects a command that came too late."""
CONFLICT = "fogline:conflict"
"""The condition under which a command is rejected whose id is known with another body."""


class State(StrEnum):
    """Where a command is. The last seven are terminal."""

    ACCEPTED = "ACCEPTED"
    DISPATCHED = "DISPATCHED"
    QUEUED = "QUEUED"
    SENDING = "SENDING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    REJECTED = "REJECTED"
    CANCELLED = "CANCELLED"
    EXPIRED = "EXPIRED"
    IN_DOUBT = "IN_DOUBT"

    @property
    def terminal(self) -> bool:
        """Whether the command is over (`IN_DOUBT`: unless a late answer says more)."""
        return self in _TERMINAL


_TERMINAL = {State.SUCCEEDED, State.FAILED, State.REJECTED, State.CANCELLED, State.EXPIRED, State.IN_DOUBT}
_NEXT: dict[State, set[State]] = {
    State.ACCEPTED: {State.DISPATCHED, *_TERMINAL},
    State.DISPATCHED: {*_TERMINAL},
    State.QUEUED: {State.SENDING, State.REJECTED, State.CANCELLED, State.EXPIRED},
    State.SENDING: {State.QUEUED, *_TERMINAL},
    State.IN_DOUBT: {State.SUCCEEDED, State.FAILED, State.REJECTED, State.EXPIRED},
}


def may_become(now: State, then: State) -> bool:
    """Whether a command in state `now` may go to `then`."""
    return then in _NEXT.get(now, ())


class Status(IntEnum):
    """Status codes that no device gave: nothing reached it, or nothing came back (meanings as in RFC 9110 section 15)."""

    TAKEN = 202
    UNKNOWN_DEVICE = 404
    EXPIRED = 408
    CONFLICT = 409
    CANCELLED = 410
    UNDELIVERABLE = 422
    QUOTA = 429
    OFFLINE = 503
    NO_ANSWER = 504


class Deadline(msgspec.Struct, frozen=True):
    """A moment on the gateway's own clock that nobody can set: this boot, CLOCK_BOOTTIME in milliseconds."""

    boot_id: str
    boottime_ms: int

    def left_ms(self, now: Beacon) -> int:
        """Milliseconds until then; 0 or less if it is past, or if this is another boot (then nobody knows)."""
        return self.boottime_ms - now.boottime_ms if self.boot_id == now.boot_id else 0


class Answer(msgspec.Struct, frozen=True):
    """What a device answered. `status`: 200 to 599, its own word (2xx: it did it)."""

    status: int
    data: bytes = b""
    content_type: str | None = None

    @property
    def state(self) -> State:
        """What the answer makes of the command."""
        return State.SUCCEEDED if 200 <= self.status < 300 else State.FAILED


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """One command on its way from the bridge to the gateway.

    `id`: an identifier, the same for every copy of one command. `name`: what to do (AMQP `subject`). `reply`: the
    operator awaits the device's answer; without, the device's word that it got it is enough. `durable`: wait for a
    device that is away, until the deadline; without, it is delivered now or not at all. `idempotent`: doing it twice
    does no harm, so after a doubt it may be sent again. `correlation`: the operator's correlation id as text.
    `key_id`: who signed it (Ed25519, RFC 8032), empty where no key is configured. `full_signature` is of
    `fully_signed_bytes`; `signature` is of `signed_bytes`, for gateways that do not know the other one.
    """

    id: str
    tenant: str
    gateway: str
    device: str
    name: str
    deadline: Deadline
    data: bytes = b""
    content_type: str | None = None
    reply: bool = True
    durable: bool = False
    idempotent: bool = False
    correlation: str = ""
    key_id: str = ""
    signature: bytes = b""
    full_signature: bytes = b""


class JournalQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A bridge's question to a gateway whether its journal has command `id`, with this `digest` of what it asks.

    The gateway answers by the outcome: accepted (it has), released (it has no command of this id), or rejected with
    `CONFLICT` (it has another one). A gateway of before this question rejects it as unreadable.
    """

    id: str
    tenant: str
    gateway: str
    digest: bytes


def check_name(name: str) -> str:
    """A command's name: printable, at most `MAX_NAME` characters, none of `/ + #`. Raises `Poison('bad-name')`."""
    if not name or len(name) > MAX_NAME or not name.isascii() or not name.isprintable() or set(name) & set("/+# ?&"):
        raise Poison(
            "bad-name", f"{ascii(name)[:80]} is no name of a command: up to {MAX_NAME} of ASCII without blanks / + # ? &"
        )
    return name


def digest(command: Command) -> bytes:
    """16 bytes of what a command asks: the same id with another digest is a conflict (409)."""
    parts = (command.device, command.name, command.content_type or "", str(command.reply), str(command.idempotent))
    return hashlib.blake2b(framed(*(part.encode() for part in parts), command.data), digest_size=16).digest()


def signed_bytes(command: Command) -> bytes:
    """The fields that the service's first signature covers: all but `durable` and `correlation`."""
    parts = (command.id, command.tenant, command.gateway, command.device, command.name, command.deadline.boot_id)
    numbers = (str(command.deadline.boottime_ms), command.key_id)
    return framed(*(part.encode() for part in (*parts, *numbers)), digest(command))


def fully_signed_bytes(command: Command) -> bytes:
    """What the service's full signature covers: every field of a command but the signatures, each length-prefixed."""
    flags = (command.reply, command.durable, command.idempotent)
    texts = (
        "fogline command, all fields",
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
    """Fields joined so that no two lists of them give the same bytes."""
    return b"".join(len(field).to_bytes(4, "big") + field for field in fields)


def encode_command(command: Command) -> Message:
    """A command as the message that goes to `control/{tenant}/{gateway}`; its body is the operator's, byte for byte."""
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
            "full_signature": command.full_signature,
        },
    )


def is_command(message: Message) -> bool:
    """Whether a message on a control address is a command (and not, say, an answer to hello)."""
    return message.properties.get("fogline") == "command"


_Signature = Annotated[bytes, Meta(max_length=64)]


def encode_query(query: JournalQuery) -> Message:
    """A question as the message that goes to `control/{tenant}/{gateway}`."""
    properties: dict[str, Property] = {
        "fogline": "journal-query",
        "tenant": query.tenant,
        "gateway": query.gateway,
        "digest": query.digest,
    }
    return Message(message_id=query.id, properties=properties)


def is_query(message: Message) -> bool:
    """Return True if a message on a control address is a question about the journal."""
    return message.properties.get("fogline") == "journal-query"


def decode_query(message: Message) -> JournalQuery:
    """The inverse of `encode_query`. Raises `Poison` (`malformed`, `bad-identifier`)."""
    content = message.properties.get("digest")
    if not isinstance(content, bytes):
        raise Poison("malformed", "a question about the journal carries the digest of a command")
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
    signature: _Signature
    full_signature: _Signature = b""


def decode_command(message: Message) -> Command:
    """The inverse of `encode_command`. Raises `Poison` (`malformed`, `bad-identifier`, `bad-name`, `too-big`)."""
    try:
        found = msgspec.convert(dict(message.properties), _Properties)
    except msgspec.ValidationError as error:
        raise Poison("malformed", f"a command's properties are not readable: {error}") from None
    if len(message.body) > MAX_COMMAND_BYTES:
        raise Poison("too-big", f"a command may carry {MAX_COMMAND_BYTES} bytes")
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
        full_signature=found.full_signature,
    )
