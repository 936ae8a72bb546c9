"""One command as the cloud knows it: the value of its record on `fogline.commands`, newest last. Pure."""

import base64

import msgspec

from fogline.address import is_identifier
from fogline.command import MAX_COMMAND_BYTES, MAX_NAME, MAX_TEXT, Answer, Deadline, State
from fogline.event import Event

STATUSES = range(200, 600)
"""What an answer's status may be."""


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A command and where it is.

    Times are milliseconds since 1970 on the bridge's clock. `correlation`: the operator's id, packed with its type;
    `reply_to`: the reply id of the operator's address, empty for a one-way command. `digest` (hex): of what is asked.
    `provisional`: the bridge's own verdict, because the gateway has said nothing; its word supersedes it. `told`: the
    operator has accepted the answer. `deadline_boot`, `deadline_ms`: its end on the gateway's own clock, if that was known
    when the command was accepted.
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
    """The inverse. Raises `msgspec.MsgspecError`."""
    return msgspec.json.decode(body, type=Record)


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
    """What a gateway's event on lane `reply` says of its command; `None` for an event that speaks of none.

    `former=None`: the bridge that took the command died before it wrote it down. It is known from now on, by what the
    event itself carries.
    """
    if event.commandid is None or event.commandstate is None or event.status is None:
        return None
    if event.status not in STATUSES or not is_identifier(event.commandid):
        return None
    record = former or Record(
        id=event.commandid,
        tenant=event.tenant,
        gateway=event.gateway,
        device=event.device,
        name=event.subject.removeprefix("command/")[:MAX_NAME],
        state=State.DISPATCHED,
        operator="",
        accepted_ms=now_ms,
        expires_ms=now_ms,
        changed_ms=now_ms,
        digest="",
        correlation=(event.correlationid or "")[:MAX_TEXT],
    )
    answer, why = Answer(event.status), ""
    if len(event.data) > MAX_COMMAND_BYTES:  # Kafka would not take the record
        why = f"its answer has {len(event.data)} bytes, more than {MAX_COMMAND_BYTES}: only its status is kept"
    elif event.data:
        answer = Answer(event.status, event.data, event.content_type[:MAX_TEXT])
    return ended(record, State(event.commandstate), answer, now_ms, why=why)
