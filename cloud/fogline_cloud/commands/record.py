"""One command as the cloud knows it: the value of its record on `fogline.commands`, newest last. Pure."""

import base64

import msgspec

from fogline.address import check_identifier, shown
from fogline.command import MAX_COMMAND_BYTES, MAX_TEXT, Answer, Command, Deadline, State, Status, check_name
from fogline.errors import Poison
from fogline.event import Event
from fogline.message import unpack_id

STATUSES = range(200, 600)
"""What an answer's status may be."""


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A command and where it is.

    Times are milliseconds since 1970 on the bridge's clock. `correlation`: the operator's id, packed with its type;
    `reply_to`: the reply id of the operator's address, empty for a one-way command. `digest` (hex): of what is asked.
    `provisional`: the bridge's own verdict, because the gateway has said nothing; its word supersedes it. `told`: the
    operator has accepted the answer. `deadline_boot`, `deadline_ms`: its end on the gateway's own clock, if that was known
    when the command was accepted. `attempt`: how often a direct command was sent; each time before the last, the gateway
    did not take it.
    """

    id: str
    tenant: str
    gateway: str
    device: str
    name: str
    state: State
    operator: str
    accepted_ms: int
    expires_ms: int
    changed_ms: int
    digest: str
    correlation: str = ""
    reply_to: str = ""
    content_type: str | None = None
    data_base64: str = ""
    durable: bool = False
    idempotent: bool = False
    provisional: bool = False
    status: int | None = None
    answer_type: str | None = None
    answer_base64: str = ""
    why: str = ""
    told: bool = False
    deadline_boot: str = ""
    deadline_ms: int = 0
    attempt: int = 1

    @property
    def deadline(self) -> Deadline | None:
        """Its end on the gateway's own clock, if that is known."""
        return Deadline(self.deadline_boot, self.deadline_ms) if self.deadline_boot else None

    @property
    def over(self) -> bool:
        """Whether the gateway, or certainty without it, has decided: nothing needs to be sent any more."""
        return self.state.terminal and not self.provisional

    @property
    def owes_answer(self) -> bool:
        """Whether the operator is still to be told how it ended."""
        return self.state.terminal and bool(self.reply_to) and not self.told

    @property
    def released(self) -> bool:
        """Whether its gateway did not take it, and its operator may send it again (`amqp:released`): a direct command."""
        return self.state is State.REJECTED and self.status == Status.OFFLINE and not self.durable

    @property
    def undecided(self) -> bool:
        """Whether only the gateway's journal knows what became of it: sent, directly, without a word back."""
        return self.provisional or (self.state is State.ACCEPTED and not self.durable)

    @property
    def data(self) -> bytes:
        """The command's arguments."""
        return base64.b64decode(self.data_base64)

    @property
    def answer(self) -> bytes:
        """The body of the device's answer."""
        return base64.b64decode(self.answer_base64)


class Audit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One decision about a command, kept on `fogline.audit`."""

    time_ms: int
    command: str
    device: str
    gateway: str
    name: str
    operator: str
    decision: str
    status: int | None = None
    why: str = ""


def encode(value: Record | Audit) -> bytes:
    """As JSON."""
    return msgspec.json.encode(value)


def decode_record(body: bytes) -> Record:
    """Read a record that Kafka has. Raises `Poison('malformed')` unless every field can be used."""
    try:
        record = msgspec.json.decode(body, type=Record)
        for each in (record.data_base64, record.answer_base64):
            base64.b64decode(each, validate=True)
        bytes.fromhex(record.digest)
        if record.reply_to:
            unpack_id(record.correlation)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Poison("malformed", f"a command's record is not readable: {error}") from None
    if record.status is not None and record.status not in STATUSES:
        raise Poison("malformed", f"a command's record has status {record.status}")
    return record


def command_of(record: Record, deadline: Deadline) -> Command:
    """The command as it goes to the gateway, unsigned."""
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


def audit_of(record: Record) -> Audit:
    """The decision that brought a record to where it is."""
    return Audit(
        time_ms=record.changed_ms,
        command=record.id,
        device=record.device,
        gateway=record.gateway,
        name=record.name,
        operator=record.operator,
        decision=f"{record.state} (provisional)" if record.provisional else record.state.value,
        status=record.status,
        why=record.why,
    )


def left_ms(record: Record, now_ms: int) -> int:
    """Milliseconds until a command's end, by a wall clock that need not be the one by which it was accepted.

    So it is never more than the time to live that its operator gave, and never less than nothing.
    """
    return max(0, min(record.expires_ms - now_ms, record.expires_ms - record.accepted_ms))


def same_verdict(one: Record, other: Record) -> bool:
    """Return True if two records of a command say the same of how it stands."""
    return (one.state, one.provisional) == (other.state, other.provisional)


def ended(record: Record, state: State, answer: Answer, now_ms: int, *, why: str = "", provisional: bool = False) -> Record:
    """The record at the end of its command. Its operator is still to be told, also if it was told of a former verdict."""
    return msgspec.structs.replace(
        record,
        state=state,
        status=answer.status,
        answer_type=answer.content_type,
        answer_base64=base64.b64encode(answer.data).decode(),
        provisional=provisional,
        why=why,
        changed_ms=now_ms,
        data_base64="",
        told=False,
    )


def of_reply(event: Event, former: Record | None, now_ms: int) -> Record | None:
    """Return the record that follows from a gateway's event on lane `reply`; `None` for an event that ends no command.

    `former=None`: the bridge that took the command died before it wrote a record. The command is known from now on,
    by what the event itself carries. Raises `Poison` for a reply that no gateway of this version sends.
    """
    if event.commandid is None or event.commandstate is None or event.status is None:
        return None
    state = _end(event.commandstate)
    if event.status not in STATUSES:
        raise Poison("malformed", f"a reply has status {str(event.status)[:20]}")
    if len(event.content_type) > MAX_TEXT or len(event.correlationid or "") > MAX_TEXT:
        raise Poison("malformed", f"the content type or correlation id of a reply is over {MAX_TEXT} characters")
    record = former or Record(
        id=check_identifier(event.commandid, "command id"),
        tenant=event.tenant,
        gateway=event.gateway,
        device=event.device,
        name=check_name(event.subject.removeprefix("command/")),
        state=State.DISPATCHED,
        operator="",
        accepted_ms=now_ms,
        expires_ms=now_ms,
        changed_ms=now_ms,
        digest="",
        correlation=(event.correlationid or "")[:MAX_TEXT],
    )
    answer, why = Answer(event.status, event.data, event.content_type if event.data else None), ""
    if len(event.data) > MAX_COMMAND_BYTES:  # Kafka would not take the record
        answer = Answer(event.status)
        why = f"its answer has {len(event.data)} bytes, more than {MAX_COMMAND_BYTES}: only its status is kept"
    return ended(record, state, answer, now_ms, why=why)


def _end(name: str) -> State:
    """Read the state in which a gateway says that a command ended. Raises `Poison` for any other."""
    try:
        state = State(name)
    except ValueError:
        state = None
    if state is None or not state.terminal:
        raise Poison("malformed", f"a reply has state {shown(name)}, which is no end of a command known here")
    return state
