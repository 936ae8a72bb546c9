"""Sends the answers to commands to their operators, by reply id.

An answer is sent at once if a link listens at its reply id, and again until the operator has accepted it. While no link
listens, the registry keeps it. Everything is called on the loop.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from fogline.address import CommandResponse
from fogline.amqp.events import Link
from fogline.amqp.outcome import Outcome, State
from fogline.amqp.sending import Sender
from fogline.amqp.wire import as_int
from fogline.errors import Unreachable
from fogline.message import Message, unpack_id
from fogline_cloud.commands.record import Record

MAX_ON_THE_WAY = 32
"""The most answers that an operator may leave unsettled; the others wait for their outcomes."""
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0

_log = logging.getLogger("fogline.commands")


@dataclass(slots=True, eq=False)
class _Listener:
    """Who listens at one reply id. `senders`: its links, newest last; the newest that is open gets the answers.

    Answers are kept by command id: `waiting` to be sent, `sent` and not settled, `paused` before they are sent again.
    `failures`: how often an answer was not accepted.
    """

    senders: list[Sender] = field(default_factory=list)
    waiting: dict[str, Record] = field(default_factory=dict)
    sent: dict[str, Record] = field(default_factory=dict)
    paused: dict[str, tuple[Record, asyncio.TimerHandle]] = field(default_factory=dict)
    failures: Counter[str] = field(default_factory=Counter)

    @property
    def sender(self) -> Sender | None:
        return next((each for each in reversed(self.senders) if not each.closed), None)

    def next(self) -> Record | None:
        """The answer that may be sent now. It counts as sent from now on."""
        if len(self.sent) >= MAX_ON_THE_WAY:
            return None
        record = next((each for each in self.waiting.values() if each.id not in self.sent), None)
        if record is not None:
            del self.waiting[record.id]
            self.sent[record.id] = record
        return record

    def resume(self) -> None:
        """End all pauses: whoever gives the answers to send now gives those that were paused, too."""
        for _, timer in self.paused.values():
            timer.cancel()
        self.paused.clear()


class Replies:
    """The operators that listen. `told` is called when one has accepted an answer."""

    def __init__(self, told: Callable[[Record], None]) -> None:
        self._told = told
        self._listeners: dict[str, _Listener] = {}

    def listens(self, reply_id: str, sender: Sender, owed: Sequence[Record]) -> None:
        """An operator attached: from now on its answers go there, beginning with those that it is owed."""
        listener = self._listeners.setdefault(reply_id, _Listener())
        listener.senders.append(sender)
        listener.resume()
        for record in owed:
            self.send(record)

    def stops_listening(self, link: Link | None) -> None:
        """A link is gone (`None`: whichever is closed)."""
        for reply_id, listener in list(self._listeners.items()):
            listener.senders = [each for each in listener.senders if not each.closed and each.link is not link]
            if not listener.senders:
                listener.resume()
                del self._listeners[reply_id]

    def send(self, record: Record) -> None:
        """Send an answer, unless nobody listens, or it is on its way or about to be sent again."""
        listener = self._listeners.get(record.reply_to)
        if listener is None:
            return
        paused, timer = listener.paused.get(record.id, (None, None))
        former = listener.sent.get(record.id, paused)
        if former is not None and _verdict(former) == _verdict(record):
            return
        if timer is not None:
            timer.cancel()
            del listener.paused[record.id]
        listener.waiting[record.id] = record
        self._advance(listener)

    def _advance(self, listener: _Listener) -> None:
        while (sender := listener.sender) is not None and (record := listener.next()) is not None:
            try:
                outcome = sender.send(reply_message(record))
            except (ValueError, OverflowError) as error:  # it is not written as AMQP, now or ever
                del listener.sent[record.id]
                _log.warning("the answer to command %s cannot be sent: %s", record.id, error)
            else:
                outcome.add_done_callback(partial(self._on_outcome, listener, sender, record))

    def _on_outcome(self, listener: _Listener, sender: Sender, record: Record, future: "asyncio.Future[Outcome]") -> None:
        listener.sent.pop(record.id, None)
        if future.cancelled():
            return
        if isinstance(future.exception(), Unreachable):
            listener.senders = [each for each in listener.senders if each is not sender]
            listener.waiting.setdefault(record.id, record)
        elif future.result().state is State.ACCEPTED:
            del listener.failures[record.id]
            self._told(record)
        else:
            self._pause(listener, record)
        self._advance(listener)

    def _pause(self, listener: _Listener, record: Record) -> None:
        """The operator did not accept an answer: it gets it again, ever more rarely."""
        if record.id in listener.waiting or not listener.senders:  # a newer verdict, or nobody listens any more
            return
        listener.failures[record.id] += 1
        in_s = pause_s(listener.failures[record.id])
        timer = asyncio.get_running_loop().call_later(in_s, self._go_on, listener, record)
        listener.paused[record.id] = record, timer

    def _go_on(self, listener: _Listener, record: Record) -> None:
        del listener.paused[record.id]
        listener.waiting[record.id] = record
        self._advance(listener)


def pause_s(failures: int) -> float:
    """How long to wait before an answer is sent again that was not accepted `failures` times."""
    return float(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(failures - 1, 16)))


def _verdict(record: Record) -> tuple[object, ...]:
    return record.state, record.provisional, record.correlation


def reply_message(record: Record) -> Message:
    """The answer as Eclipse Hono's API has it (its `status` is an `int`); `state` and `command_id` are ours."""
    return Message(
        body=record.answer,
        to=str(CommandResponse(record.tenant, record.reply_to)),
        subject=record.name,
        correlation_id=unpack_id(record.correlation),
        content_type=record.answer_type,
        properties={
            "status": None if record.status is None else as_int(record.status),
            "device_id": record.device,
            "tenant_id": record.tenant,
            "command_id": record.id,
            "state": f"{record.state} (provisional)" if record.provisional else record.state.value,
        },
    )
