"""A bridge's request to cancel a command, whose gateway decides by its journal. Values; no IO.

The gateway answers `accepted` once its journal has decided, or will: the command's end comes on lane `reply`. `CONFLICT` says
that the journal has another command of this id.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from fogline.address import check_identifier
from fogline.commands.command import MAX_TEXT, Command, Deadline, check_name, framed
from fogline.documents.document_error import explained
from fogline.errors import Poison
from fogline.message import Message

TOO_LATE = "fogline:too-late"
"""Error condition: a command cannot be cancelled, because it is over. The description begins with its state."""


class CancelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to end command `id` before its device sees it. `digest`: of the command (`fogline.commands.command.digest`).

    It has all that the journal needs to end a command that it has not got, so that a copy that comes later finds it over.
    """

    id: str
    tenant: str
    gateway: str
    device: str
    name: str
    digest: bytes
    deadline: Deadline
    reply: bool = True
    correlation: str = ""
    why: str = ""  # for the one who reads the verdict
    key_id: str = ""  # of the signature (Ed25519, RFC 8032), "" without one
    signature: bytes = b""

    @property
    def command(self) -> Command:
        """The command as far as it is known: without its arguments."""
        return Command(
            id=self.id,
            tenant=self.tenant,
            gateway=self.gateway,
            device=self.device,
            name=self.name,
            deadline=self.deadline,
            reply=self.reply,
            correlation=self.correlation,
        )


def signed_cancel(request: CancelRequest) -> bytes:
    """Return the bytes that `signature` covers: every other field, each length-prefixed."""
    texts = (
        "fogline cancel",
        request.id,
        request.tenant,
        request.gateway,
        request.device,
        request.name,
        request.deadline.boot_id,
        str(request.deadline.boottime_ms),
        "1" if request.reply else "0",
        request.correlation,
        request.why,
        request.key_id,
    )
    return framed(*(text.encode() for text in texts), request.digest)


def encode_cancel(request: CancelRequest) -> Message:
    """Return the message for `control/{tenant}/{gateway}`."""
    return Message(
        subject=request.name,
        message_id=request.id,
        properties={
            "fogline": "cancel",
            "tenant": request.tenant,
            "gateway": request.gateway,
            "device_id": request.device,
            "digest": request.digest,
            "deadline_boot": request.deadline.boot_id,
            "deadline_ms": request.deadline.boottime_ms,
            "reply": request.reply,
            "correlation": request.correlation,
            "why": request.why,
            "key_id": request.key_id,
            "signature": request.signature,
        },
    )


def is_cancel(message: Message) -> bool:
    """Return True if a message on a control address is a request to cancel."""
    return message.properties.get("fogline") == "cancel"


class _Properties(msgspec.Struct, kw_only=True):
    tenant: str
    gateway: str
    device_id: str
    digest: Annotated[bytes, Meta(min_length=16, max_length=16)]
    deadline_boot: Annotated[str, Meta(max_length=128)]
    deadline_ms: Annotated[int, Meta(ge=-(2**53), le=2**53)]
    reply: bool
    correlation: Annotated[str, Meta(max_length=MAX_TEXT)]
    why: Annotated[str, Meta(max_length=MAX_TEXT)]
    key_id: Annotated[str, Meta(max_length=64)]
    signature: Annotated[bytes, Meta(max_length=64)]


def decode_cancel(message: Message) -> CancelRequest:
    """Return the request of a message. Raises `Poison` (`malformed`, `bad-identifier`, `bad-name`)."""
    try:
        found = msgspec.convert(dict(message.properties), _Properties)
    except msgspec.ValidationError as error:
        raise Poison(
            "malformed", f"the properties of a request to cancel are not readable: {explained(error, _Properties)}"
        ) from None
    return CancelRequest(
        id=check_identifier(str(message.message_id or ""), "command id"),
        tenant=check_identifier(found.tenant, "tenant"),
        gateway=check_identifier(found.gateway, "gateway"),
        device=check_identifier(found.device_id, "device"),
        name=check_name(message.subject or ""),
        digest=found.digest,
        deadline=Deadline(found.deadline_boot, found.deadline_ms),
        reply=found.reply,
        correlation=found.correlation,
        why=found.why,
        key_id=found.key_id,
        signature=found.signature,
    )
