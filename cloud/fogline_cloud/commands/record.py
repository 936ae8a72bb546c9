"""The record of one command, as the cloud keeps it on `fogline.commands` (compacted: the newest one counts). Pure."""

import base64
from typing import Annotated

import msgspec

from fogline.address import check_identifier, shown
from fogline.commands.cancel import CancelRequest
from fogline.commands.command import MAX_COMMAND_BYTES, MAX_TEXT, Command, CommandState, Deadline, Reply, Status, check_name
from fogline.documents.document_error import explained
from fogline.errors import Poison
from fogline.events.event import Event
from fogline.message import unpack_id
from fogline_cloud.audit.record import AuditRecord

STATUSES = range(200, 600)
"""Statuses that a reply may have."""
FAILURE_METADATA = "delivery-failure-notification-metadata"
"""Beginning of the names of the headers that a notification adopts from its command (Eclipse Hono)."""
KAFKA_OWNER = "fogline/kafka"
"""Owner of the replies to commands that came over Kafka. It is no identifier, so no AMQP peer has this name."""
_CANCELS = (CommandState.CANCELLING, CommandState.CANCELLED)
_WIRE_NAMES = {"reply_delivered": "told", "reply_type": "answer_type", "reply_base64": "answer_base64"}

Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
ReplyAddress = tuple[str, str]
"""The owner of a reply address, and its reply id."""


class CommandRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename=_WIRE_NAMES):
    """A command and its state. Times are milliseconds since 1970 on the bridge's clock."""

    id: str
    tenant: str
    gateway: str
    device: str
    name: str
    state: CommandState
    operator: str
    accepted_ms: Milliseconds
    expires_ms: Milliseconds
    changed_ms: Milliseconds
    digest: str  # of the request, hex
    correlation: str = ""  # the operator's id, packed with its type
    reply_to: str = ""  # reply id of the operator's address, empty for a one-way command
    reply_owner: str = ""  # the operator that alone may receive at `reply_to`; "" for any that has not proven its name
    content_type: str | None = None
    data_base64: str = ""
    durable: bool = False
    idempotent: bool = False
    newest_wins: bool = False  # it replaces the commands of the same device and name that still wait
    provisional: bool = False  # the bridge's own verdict; the gateway's verdict supersedes it
    status: int | None = None
    reply_type: str | None = None
    reply_base64: str = ""
    why: str = ""
    reply_delivered: bool = False  # the operator has accepted the reply
    deadline_boot: str = ""  # the deadline on the gateway's own clock, if known when the command was accepted
    deadline_ms: Milliseconds = 0
    approved_by: str = ""  # the second operator, of a command that needs one
    cancelled_by: str = ""  # the first client that asked to cancel it, or the sender of what replaces it
    replaced_by: str = ""  # the id of the newer command, or the version of a desired state, that replaces it
    failure_headers: dict[str, str] = {}  # of a notification that the command was not delivered, if it came over Kafka
    journal: str = ""  # the gateway's journal that it may have been sent to; "" if it was certainly not sent
    journals: int = 0  # how many journals have been noted
    attempt: int = 1  # sent how often, if direct; the gateway took none of the earlier attempts
    request: str = ""  # digest of the whole request of an HTTP client, of which a copy must have the same

    @property
    def reply_address(self) -> ReplyAddress:
        """Where the replies go."""
        return self.reply_owner, self.reply_to

    @property
    def deadline(self) -> Deadline | None:
        """The deadline on the gateway's own clock, if that is known."""
        return Deadline(self.deadline_boot, self.deadline_ms) if self.deadline_boot else None

    @property
    def of_kafka(self) -> bool:
        """True if the command came over Kafka, where its response belongs too."""
        return self.reply_owner == KAFKA_OWNER

    @property
    def final(self) -> bool:
        """True if the command has a verdict that is not provisional: nothing more is sent to the gateway."""
        return self.state.terminal and not self.provisional

    @property
    def owes_reply(self) -> bool:
        """True if the operator has not accepted the reply yet."""
        return self.state.terminal and bool(self.reply_to) and not self.reply_delivered

    @property
    def cancelling(self) -> bool:
        """True if its gateway has to decide whether it is cancelled, after its time to live too."""
        return self.state is CommandState.CANCELLING or (self.provisional and bool(self.cancelled_by))

    @property
    def released(self) -> bool:
        """True for a direct command that its gateway did not take: the operator may send it again (`amqp:released`)."""
        return self.state is CommandState.REJECTED and self.status == Status.OFFLINE and not self.durable

    @property
    def outcome_unknown(self) -> bool:
        """True if only the gateway's journal knows the outcome: a direct command was sent, and no outcome came back."""
        return self.provisional or (self.state is CommandState.ACCEPTED and not self.durable)

    def sent_to(self, journal: str) -> "CommandRecord":
        """Return the record of a command that is to be sent to another journal than before."""
        return msgspec.structs.replace(self, journal=journal, journals=self.journals + 1)

    @property
    def data(self) -> bytes:
        """The command's arguments."""
        return base64.b64decode(self.data_base64)

    @property
    def reply_body(self) -> bytes:
        """The body of the device's reply."""
        return base64.b64decode(self.reply_base64)


def encode(record: CommandRecord) -> bytes:
    """Return the record as JSON."""
    return msgspec.json.encode(record)


def decode_record(body: bytes) -> CommandRecord:
    """Read a record from Kafka. Raises `Poison('malformed')` if a field cannot be used."""
    try:
        record = msgspec.json.decode(body, type=CommandRecord)
        for each in (record.data_base64, record.reply_base64):
            base64.b64decode(each, validate=True)
        bytes.fromhex(record.digest)
        if record.reply_to:
            unpack_id(record.correlation)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Poison("malformed", f"a command record is not readable: {explained(error, CommandRecord)}") from None
    if record.status is not None and record.status not in STATUSES:
        raise Poison("malformed", f"a command record has status {record.status}")
    return record


def command_of(record: CommandRecord, deadline: Deadline) -> Command:
    """Return the command to send to the gateway, unsigned."""
    return Command(
        id=record.id,
        tenant=record.tenant,
        gateway=record.gateway,
        device=record.device,
        name=record.name,
        deadline=deadline,
        data=record.data,
        content_type=record.content_type,
        reply=bool(record.reply_to),
        durable=record.durable,
        idempotent=record.idempotent,
        correlation=record.correlation,
    )


def cancel_of(record: CommandRecord, deadline: Deadline) -> CancelRequest:
    """Return the request to cancel a command for its gateway, unsigned."""
    return CancelRequest(
        id=record.id,
        tenant=record.tenant,
        gateway=record.gateway,
        device=record.device,
        name=record.name,
        digest=bytes.fromhex(record.digest),
        deadline=deadline,
        reply=bool(record.reply_to),
        correlation=record.correlation,
        why=why_cancelled(record),
    )


def why_cancelled(record: CommandRecord) -> str:
    """Return the text of a verdict CANCELLED."""
    return f"replaced by {record.replaced_by}" if record.replaced_by else f"cancelled by {record.cancelled_by}"


def audit_of(record: CommandRecord) -> AuditRecord:
    """Return the audit record of the decision that led to a record's state."""
    who, why = record.operator, record.why
    if record.state in _CANCELS:
        who = record.cancelled_by or who
    elif record.state is CommandState.ACCEPTED and record.approved_by:
        who, why = record.approved_by, f"approves the command of {record.operator}"
    return AuditRecord(
        time_ms=record.changed_ms,
        who=who,
        command=record.id,
        device=record.device,
        gateway=record.gateway,
        name=record.name,
        decision=f"{record.state} (provisional)" if record.provisional else record.state.value,
        status=record.status,
        why=why,
    )


def left_ms(record: CommandRecord, now_ms: int) -> int:
    """Return the milliseconds until a command expires: 0 to its time to live, even if another wall clock accepted it."""
    return max(0, min(record.expires_ms - now_ms, record.expires_ms - record.accepted_ms))


def same_verdict(one: CommandRecord, other: CommandRecord) -> bool:
    """Return True if two records of a command have the same verdict."""
    return (one.state, one.provisional) == (other.state, other.provisional)


def with_request(verdict: CommandRecord, request: CommandRecord) -> CommandRecord:
    """Return the record of a verdict that was known from its gateway's reply alone, with the operator's request."""
    names = ("operator", "digest", "correlation", "reply_to", "reply_owner", "durable", "request")
    return msgspec.structs.replace(verdict, **{name: getattr(request, name) for name in names}, reply_delivered=False)


def ended(
    record: CommandRecord, state: CommandState, reply: Reply, now_ms: int, *, why: str = "", provisional: bool = False
) -> CommandRecord:
    """Return the record with a verdict. Its reply is due, even if the reply of an earlier verdict was delivered."""
    return msgspec.structs.replace(
        record,
        state=state,
        status=reply.status,
        reply_type=reply.content_type,
        reply_base64=base64.b64encode(reply.data).decode(),
        provisional=provisional,
        why=why,
        changed_ms=now_ms,
        data_base64="",
        reply_delivered=False,
    )


def apply_reply(event: Event, former: CommandRecord | None, now_ms: int) -> CommandRecord | None:
    """Return the record that follows from a gateway's event on lane `reply`; `None` if the event ends no command.

    `former=None`: the event itself supplies the fields. Raises `Poison` for a reply that no gateway of this version sends.
    """
    if event.commandid is None or event.commandstate is None or event.status is None:
        return None
    state = next((each for each in CommandState if each == event.commandstate and each.terminal), None)
    if state is None:
        raise Poison("malformed", f"a reply has state {shown(event.commandstate)}, which is no verdict in this version")
    if event.status not in STATUSES:
        raise Poison("malformed", f"a reply has status {str(event.status)[:20]}")
    if len(event.content_type) > MAX_TEXT or len(event.correlationid or "") > MAX_TEXT:
        raise Poison("malformed", f"the content type or correlation id of a reply is over {MAX_TEXT} characters")
    record = former or CommandRecord(
        id=check_identifier(event.commandid, "command id"),
        tenant=event.tenant,
        gateway=event.gateway,
        device=event.device,
        name=check_name(event.subject.removeprefix("command/")),
        state=CommandState.DISPATCHED,
        operator="",
        accepted_ms=now_ms,
        expires_ms=now_ms,
        changed_ms=now_ms,
        digest="",
        correlation=(event.correlationid or "")[:MAX_TEXT],
    )
    if record.released:  # the gateway took a later attempt, whose record was lost with its bridge
        record = msgspec.structs.replace(record, attempt=record.attempt + 1)
    reply, why = Reply(event.status, event.data, event.content_type if event.data else None), ""
    if len(event.data) > MAX_COMMAND_BYTES:  # Kafka would reject the record, and the shard would retry it for ever
        reply = Reply(event.status)
        why = f"the reply has {len(event.data)} bytes, more than {MAX_COMMAND_BYTES}: only its status is kept"
    elif state is CommandState.CANCELLED and record.cancelled_by:
        why = why_cancelled(record)
    return ended(record, state, reply, now_ms, why=why)
