"""Commands on the bridge's loop: from operators to gateways, and answers back.

What is true of a command is decided by its shard's thread, one transaction after the other; here is a copy of it. A
durable command is sent to the gateway only after its record is committed. A direct one is sent at once, beside that; its
operator is told the gateway's word (accepted, released, rejected) only after the record that says so is committed.

No bridge starts a direct command a second time. One without the gateway's word, because a connection or a bridge ended,
is asked for in the gateway's journal (`inquiry`). If it is not there, it ends as released: a copy from its operator is a
new attempt.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec

from fogline.amqp.events import Link
from fogline.amqp.outcome import ACCEPTED, MODIFIED, NOT_ALLOWED, NOT_FOUND, RELEASED, RESOURCE_LIMIT, Outcome, State, rejected
from fogline.amqp.sending import Sender
from fogline.command import CONFLICT, EXPIRED, MAX_NAME, MAX_TEXT, Answer, Status, encode_command
from fogline.command import State as CommandState
from fogline.crash import CrashPoint, crash_point
from fogline.errors import Unreachable
from fogline.signature import Signer
from fogline_cloud.bridge.gateways import GatewayDesk, Shards, ready_shard
from fogline_cloud.bridge.guest import Guest
from fogline_cloud.commands.inquiry import Finding, ask
from fogline_cloud.commands.record import Record, audit_of, command_of, ended, left_ms, same_verdict
from fogline_cloud.commands.registry import Registry, follows, outdated
from fogline_cloud.commands.replies import Replies
from fogline_cloud.commands.routes import Routes
from fogline_cloud.commands.work import Change, Note
from fogline_cloud.settings import CommandSettings
from fogline_cloud.sparse import Sparse

AGAIN_S = 5.0
"""How soon the end of a command is decided again that could not be written."""

_log = logging.getLogger("fogline.commands")
_answers_log = logging.getLogger("fogline.commands.answers")
_answers_log.addFilter(Sparse())
Settle = Callable[[Outcome], None]


@dataclass(slots=True)
class Course:
    """A command that is not over, beside its record. `sent`: it may have reached the gateway.

    `ends_s`: when its time to live is over, on the loop's clock, which nobody sets.
    """

    ends_s: float
    sent: bool = False
    waiting: list[Settle] = field(default_factory=list)
    timer: asyncio.TimerHandle | None = None


class Dispatcher:
    """All commands of one bridge. Everything is called on the loop, but `tell`."""

    def __init__(
        self, shards: Shards, gateways: GatewayDesk, routes: Routes, settings: CommandSettings, signer: Signer
    ) -> None:
        self.unknown_devices = 0
        self._shards = shards
        self._gateways = gateways
        self._routes = routes
        self._settings = settings
        self._signer = signer
        self._loop = asyncio.get_running_loop()
        self._registry = Registry()
        self._courses: dict[str, Course] = {}
        self._replies = Replies(self._told)
        gateways.arrived = self._arrived

    def close(self) -> None:
        """Stop all timers."""
        for course in self._courses.values():
            if course.timer is not None:
                course.timer.cancel()

    # --- operators

    def listens(self, reply_id: str, sender: Sender) -> None:
        """An operator wants the answers for its reply id: what it is owed goes out at once."""
        self._replies.listens(reply_id, sender, self._registry.owed_to(reply_id))

    def stops_listening(self, link: Link | None) -> None:
        """A link for answers is gone (`None`: look at all of them)."""
        self._replies.stops_listening(link)

    def submit(self, record: Record, settle: Settle) -> None:
        """A command, without its gateway. `settle` is called once, now or later."""
        known = self._registry.get(record.id)
        gateway = self._routes.gateway_of(record.device)
        if known is not None and known.digest and known.digest != record.digest:
            settle(rejected(CONFLICT, f"command {known.id} is known with another body"))
        elif known is not None and known.released:
            attempt = msgspec.structs.replace(record, gateway=gateway or known.gateway, attempt=known.attempt + 1)
            self._begin(attempt, settle)
        elif known is not None and not known.digest:
            self._confirm(known, record, settle)
        elif known is not None:
            self._again(known, record, settle)
        elif gateway is None and not self._shards.whole:
            settle(RELEASED)  # it may be known to a shard that is not here at present
        elif gateway is None:
            self.unknown_devices += 1
            settle(rejected(NOT_FOUND, f"device {record.device} is not known here: nothing has come from it"))
        else:
            self._begin(msgspec.structs.replace(record, gateway=gateway), settle)

    def _begin(self, record: Record, settle: Settle) -> None:
        guest = self._present(record.gateway)
        deadline = guest.deadline(left_ms(record, _now_ms())) if guest is not None else None
        if deadline is not None:
            record = msgspec.structs.replace(record, deadline_boot=deadline.boot_id, deadline_ms=deadline.boottime_ms)
        shard = ready_shard(self._shards, self._gateways.shard_of(record.gateway))
        if shard is None:
            settle(RELEASED)
        elif (why := self._registry.no_room(record)) is not None:
            settle(rejected(RESOURCE_LIMIT, why))
        elif record.durable:
            committed = self._on_loop(self._committed, settle, record.digest)
            shard.submit(Change(record, committed, lambda: self._from_thread(settle, MODIFIED)))
        elif guest is None:
            refusal = Answer(int(Status.OFFLINE))
            shard.submit(Note(audit_of(ended(record, CommandState.REJECTED, refusal, _now_ms(), why="the gateway is away"))))
            settle(RELEASED)
        else:
            self._follow(record).waiting.append(settle)
            self._change(record)
            crash_point(CrashPoint.BEFORE_COMMAND_SENT)
            self._send(record, guest)

    def _committed(self, settle: Settle, digest: str, record: Record) -> None:
        """A durable command is written down (`record` is what stands): the operator need not care any more."""
        self._take(record)
        if record.digest != digest:
            settle(rejected(CONFLICT, f"command {record.id} is known with another body"))
            return
        settle(ACCEPTED)
        guest = self._present(record.gateway)
        if guest is not None and record.state is CommandState.ACCEPTED:
            self._send(record, guest)

    def _again(self, known: Record, record: Record, settle: Settle) -> None:
        """A copy of a command that is known."""
        course = self._courses.get(known.id)
        if course is not None and course.waiting:
            course.waiting.append(settle)
        elif course is not None and known.undecided and not known.provisional:
            course.waiting.append(settle)
            self._ask(known, self._present(known.gateway))
        elif known.state is CommandState.REJECTED and known.told:
            settle(rejected(NOT_ALLOWED, f"it was refused before ({known.why}); send it with a new message-id"))
        else:
            settle(ACCEPTED)
            if known.state.terminal and record.reply_to:
                asked = msgspec.structs.replace(known, told=False, reply_to=record.reply_to, correlation=record.correlation)
                self._replies.send(asked)

    def _confirm(self, known: Record, record: Record, settle: Settle) -> None:
        """A copy of a command that only its gateway's reply speaks of: answered if the journal has the same command."""
        guest = self._present(known.gateway)
        if guest is None or guest.control is None:
            settle(MODIFIED)
            return
        given = {name: getattr(record, name) for name in ("operator", "digest", "correlation", "reply_to", "durable")}
        claim = msgspec.structs.replace(known, **given, told=False)
        ask(guest.control, claim, partial(self._on_confirmed, claim, settle))

    def _on_confirmed(self, claim: Record, settle: Settle, finding: Finding) -> None:
        shard = ready_shard(self._shards, self._gateways.shard_of(claim.gateway))
        if finding is Finding.NO_WORD or shard is None:
            settle(MODIFIED)
        elif finding is Finding.HELD:
            committed = self._on_loop(self._committed, settle, claim.digest)
            shard.submit(Change(claim, committed, lambda: self._from_thread(settle, MODIFIED)))
        elif finding is Finding.OTHER:
            settle(rejected(CONFLICT, f"command {claim.id} is known at its gateway with another body"))
        else:
            settle(ACCEPTED)
            doubt = Answer(int(Status.NO_ANSWER), b"its gateway cannot confirm it", "text/plain")
            self._replies.send(ended(claim, CommandState.IN_DOUBT, doubt, _now_ms(), provisional=True))

    # --- gateways

    def _present(self, gateway: str) -> Guest | None:
        guest = self._gateways.get(gateway)
        return guest if guest is not None and guest.welcomed else None

    def _arrived(self, guest: Guest) -> None:
        """A gateway is there: it is sent the durable commands that it has not accepted, and asked for the direct ones."""
        for record in self._registry.open_for(guest.principal.name):
            if record.undecided:
                self._ask(record, guest)
            elif record.state is CommandState.ACCEPTED:
                self._send(record, guest)

    def _ask(self, record: Record, guest: Guest | None) -> None:
        """Ask the gateway for a command that it may have got before; without an answer it stays in doubt."""
        if guest is not None and guest.control is not None:
            ask(guest.control, record, partial(self._on_finding, record))

    def _on_finding(self, record: Record, finding: Finding) -> None:
        match finding:
            case Finding.HELD if not record.provisional:
                self._change(msgspec.structs.replace(record, state=CommandState.DISPATCHED, changed_ms=_now_ms()), ACCEPTED)
            case Finding.ABSENT if record.provisional:
                self._refused(record, RELEASED, CommandState.EXPIRED, Status.EXPIRED, "the gateway did not get it")
            case Finding.ABSENT:
                self._refused(record, RELEASED, CommandState.REJECTED, Status.OFFLINE, "the gateway did not get it")
            case Finding.OTHER:
                why = f"command {record.id} is known at its gateway with another body"
                self._refused(record, rejected(CONFLICT, why), CommandState.REJECTED, Status.CONFLICT, why)
            case Finding.CANNOT_SAY:
                _log.warning("gateway %s cannot say what became of command %s: it is too old", record.gateway, record.id)

    def _send(self, record: Record, guest: Guest) -> None:
        course = self._follow(record)
        deadline = guest.deadline(int((course.ends_s - self._loop.time()) * 1000), record.deadline)
        if guest.control is None or deadline is None:
            return
        course.sent = True
        outcome = guest.control.send(encode_command(self._signer.sign(command_of(record, deadline))))
        outcome.add_done_callback(partial(self._on_outcome, record))

    def _on_outcome(self, record: Record, future: "asyncio.Future[Outcome]") -> None:
        """What the gateway says of a command that was sent to it. Without a word it is sent again at its next hello."""
        if future.cancelled() or isinstance(future.exception(), Unreachable):
            return
        outcome = future.result()
        crash_point(CrashPoint.BEFORE_COMMAND_END_COMMIT)
        match outcome.state:
            case State.ACCEPTED:
                self._change(msgspec.structs.replace(record, state=CommandState.DISPATCHED, changed_ms=_now_ms()), ACCEPTED)
            case State.RELEASED:
                self._refused(record, RELEASED, CommandState.REJECTED, Status.OFFLINE, "the device is not connected")
            case State.REJECTED:
                outcome = rejected(outcome.condition[:MAX_NAME], outcome.description[:MAX_TEXT])
                _log.info("gateway %s refuses command %s: %s", record.gateway, record.id, outcome)
                state, status = _REFUSALS.get(outcome.condition, (CommandState.REJECTED, Status.UNDELIVERABLE))
                self._refused(record, outcome, state, status, outcome.description[:MAX_TEXT])

    # --- the truth, and its copy here

    def tell(self, records: Sequence[Record]) -> None:
        """A shard's thread knows something new of these commands."""
        for record in records:
            self._from_thread(self._learn, record)

    def _learn(self, record: Record) -> None:
        """From a shard: the end of a command, or one of a former bridge, which may have sent it."""
        self._take(record)
        if record.id in self._courses:
            self._courses[record.id].sent = True

    def _change(self, record: Record, outcome: Outcome | None = None) -> None:
        """Have a record written, unless what is known by then forbids it.

        `outcome` is what operators that wait for the command are told, after the commit. If it is not known to be
        committed they are told to send again (`MODIFIED`).
        """
        shard = ready_shard(self._shards, self._gateways.shard_of(record.gateway))
        if shard is not None:
            unsure = partial(self._from_thread, self._settle_waiting, record.id, MODIFIED)
            committed = self._on_loop(self._changed, outcome, record.state)
            shard.submit(Change(record, committed, unsure if outcome is not None else lambda: None))
        elif outcome is not None:
            self._settle_waiting(record.id, MODIFIED)

    def _changed(self, outcome: Outcome | None, state: CommandState, record: Record) -> None:
        """A change is committed (`record` is what stands)."""
        if outcome is not None and record.state is state:
            crash_point(CrashPoint.BEFORE_COMMAND_SETTLED)
            self._settle_waiting(record.id, outcome)
        self._take(record)

    def _take(self, record: Record) -> None:
        """What is true of a command."""
        known = self._registry.get(record.id)
        if known is not None and (outdated(known, record) or follows(record, known)):
            return  # it is older: a verdict is told before its commit, and overtakes what was committed before it
        unfetched = self._registry.unfetched
        self._registry.put(record)
        if self._registry.unfetched > unfetched:
            _answers_log.warning("answers that no operator took are forgotten here; fogline command show still has them")
        if record.state.terminal:
            self._settle_waiting(record.id, ACCEPTED)
            if record.owes_answer:
                self._replies.send(record)
            self._forget(record.id)
        else:
            course = self._follow(record)
            course.sent = course.sent or record.state is not CommandState.ACCEPTED

    def _told(self, record: Record) -> None:
        """The operator has the answer."""
        known = self._registry.get(record.id)
        if known is None or same_verdict(known, record):  # else there is news, and the operator is owed that
            told = msgspec.structs.replace(record, told=True)
            self._registry.put(told)
            self._change(told)

    def _refused(self, record: Record, outcome: Outcome, state: CommandState, status: Status, why: str) -> None:
        """The gateway did not take it. The operator of a direct command is told so by the `outcome` alone."""
        over = ended(record, state, Answer(int(status), why.encode(), "text/plain"), _now_ms(), why=why)
        told = record.told if record.provisional else not record.durable
        self._change(msgspec.structs.replace(over, told=told), outcome)

    def _end(self, record: Record, state: CommandState, status: Status, why: str) -> None:
        """The bridge's own verdict, final if the gateway cannot have the command."""
        answer = Answer(int(status), why.encode(), "text/plain")
        provisional = state is CommandState.IN_DOUBT
        self._change(ended(record, state, answer, _now_ms(), why=why, provisional=provisional))

    # --- time

    def _follow(self, record: Record) -> Course:
        """Watch a command until it is over."""
        course = self._courses.get(record.id)
        if course is None:
            left_s = left_ms(record, _now_ms()) / 1000
            course = self._courses[record.id] = Course(self._loop.time() + left_s)
            self._registry.put(record)
            self._arm(course, record.id, left_s)
        return course

    def _arm(self, course: Course, command_id: str, in_s: float) -> None:
        course.timer = self._loop.call_later(max(0.0, in_s), self._on_time, command_id)

    def _on_time(self, command_id: str) -> None:
        """The time to live is over: certain if the gateway cannot have it, else its word is waited for a while longer."""
        record, course = self._registry.get(command_id), self._courses.get(command_id)
        if record is None or course is None or record.state.terminal:
            return
        late_s = self._loop.time() - course.ends_s
        again_s = AGAIN_S  # until it is written: Kafka may be away
        if not course.sent:
            self._end(record, CommandState.EXPIRED, Status.EXPIRED, "the gateway was not connected in time")
        elif late_s >= self._settings.grace_s:
            self._end(record, CommandState.IN_DOUBT, Status.NO_ANSWER, "no word from the gateway")
        else:
            again_s = self._settings.grace_s - late_s
        self._arm(course, command_id, again_s)

    def _forget(self, command_id: str) -> None:
        course = self._courses.pop(command_id, None)
        if course is not None and course.timer is not None:
            course.timer.cancel()

    def _settle_waiting(self, command_id: str, outcome: Outcome) -> None:
        course = self._courses.get(command_id)
        if course is not None:
            waiting, course.waiting = course.waiting, []
            for settle in waiting:
                settle(outcome)

    # --- between the threads

    def _on_loop(self, call: Callable[..., None], *first: object) -> Callable[[Record], None]:
        return lambda record: self._from_thread(call, *first, record)

    def _from_thread(self, call: Callable[..., None], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(call, *arguments)


_REFUSALS = {
    EXPIRED: (CommandState.EXPIRED, Status.EXPIRED),
    CONFLICT: (CommandState.REJECTED, Status.CONFLICT),
    RESOURCE_LIMIT: (CommandState.REJECTED, Status.QUOTA),
}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
