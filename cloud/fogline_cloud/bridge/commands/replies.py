"""Sends replies to commands to their operators, by reply address. All methods run on the loop.

A reply is sent once its operator has attached a link for it, and again until accepted. Until then the registry keeps it.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from fogline.address import CommandResponse
from fogline.amqp.events import Link
from fogline.amqp.outcome import DeliveryState, Outcome
from fogline.amqp.sending import Sender
from fogline.amqp.wire import as_int
from fogline.errors import Unreachable
from fogline.message import Message, unpack_id
from fogline_cloud.commands.client.id_notice import id_notice
from fogline_cloud.commands.record import CommandRecord, ReplyAddress, same_verdict

MAX_IN_FLIGHT = 32
"""Replies that an operator may leave unsettled. The others wait for their outcomes."""
FIRST_RETRY_S = 1.0
MAX_RETRY_S = 60.0

_log = logging.getLogger("fogline.commands")


@dataclass(slots=True, eq=False)
class _ReplyQueue:
    """The replies for one address, by command id. Of `senders`, newest last, the newest open one is used."""

    senders: list[Sender] = field(default_factory=list)
    waiting: dict[str, CommandRecord] = field(default_factory=dict)
    in_flight: dict[str, CommandRecord] = field(default_factory=dict)  # until settled
    paused: dict[str, tuple[CommandRecord, asyncio.TimerHandle]] = field(default_factory=dict)  # before a retry
    failures: Counter[str] = field(default_factory=Counter)

    @property
    def sender(self) -> Sender | None:
        return next((each for each in reversed(self.senders) if not each.closed), None)

    def next(self) -> CommandRecord | None:
        """Move the next reply that may be sent now to `in_flight`, and return it."""
        if len(self.in_flight) >= MAX_IN_FLIGHT:
            return None
        record = next((each for each in self.waiting.values() if each.id not in self.in_flight), None)
        if record is not None:
            del self.waiting[record.id]
            self.in_flight[record.id] = record
        return record

    def cancel_retries(self) -> None:
        """Forget all paused replies."""
        for _, timer in self.paused.values():
            timer.cancel()
        self.paused.clear()


class ReplySender:
    """Sends replies over the operators' links. `on_delivered` is called when an operator has accepted one."""

    def __init__(self, on_delivered: Callable[[CommandRecord], None]) -> None:
        self._on_delivered = on_delivered
        self._queues: dict[ReplyAddress, _ReplyQueue] = {}

    def add_link(self, address: ReplyAddress, sender: Sender, owed: Sequence[CommandRecord]) -> None:
        """Use a new link for an address, and send the replies that are `owed`, the paused ones included."""
        queue = self._queues.setdefault(address, _ReplyQueue())
        queue.senders.append(sender)
        queue.cancel_retries()
        for record in owed:
            self.send(record)

    def remove_link(self, link: Link | None) -> None:
        """Forget a link that was detached, and all links that are closed."""
        for address, queue in list(self._queues.items()):
            queue.senders = [each for each in queue.senders if not each.closed and each.link is not link]
            if not queue.senders:
                queue.cancel_retries()
                del self._queues[address]

    def send(self, record: CommandRecord) -> None:
        """Send a reply, unless it has no link, is in flight, or is paused."""
        queue = self._queues.get(record.reply_address)
        if queue is None:
            return
        paused, timer = queue.paused.get(record.id, (None, None))
        former = queue.in_flight.get(record.id, paused)
        if former is not None and former.correlation == record.correlation and same_verdict(former, record):
            return
        if timer is not None:
            timer.cancel()
            del queue.paused[record.id]
        queue.waiting[record.id] = record
        self._advance(queue)

    def tell_id(self, record: CommandRecord, *, proposed: bool) -> None:
        """Tell the operator the id of its command, if it listens, and if it waits for an approval.

        Nothing is repeated: a copy of the command asks again.
        """
        queue = self._queues.get(record.reply_address)
        if queue is not None and (sender := queue.sender) is not None:
            sender.send(id_notice(record, proposed=proposed)).add_done_callback(_retrieve)

    def _advance(self, queue: _ReplyQueue) -> None:
        while (sender := queue.sender) is not None and (record := queue.next()) is not None:
            try:
                outcome = sender.send(reply_message(record))
            except (ValueError, OverflowError) as error:  # AMQP cannot encode it, so a retry would fail too
                del queue.in_flight[record.id]
                _log.warning("the reply to command %s cannot be sent: %s", record.id, error)
            else:
                outcome.add_done_callback(partial(self._on_outcome, queue, sender, record))

    def _on_outcome(self, queue: _ReplyQueue, sender: Sender, record: CommandRecord, future: "asyncio.Future[Outcome]") -> None:
        queue.in_flight.pop(record.id, None)
        if future.cancelled():
            return
        if isinstance(future.exception(), Unreachable):
            queue.senders = [each for each in queue.senders if each is not sender]
            queue.waiting.setdefault(record.id, record)
        elif future.result().state is DeliveryState.ACCEPTED:
            del queue.failures[record.id]
            self._on_delivered(record)
        else:
            self._pause(queue, record)
        self._advance(queue)

    def _pause(self, queue: _ReplyQueue, record: CommandRecord) -> None:
        if record.id in queue.waiting or not queue.senders:  # a newer verdict waits, or all links are gone
            return
        queue.failures[record.id] += 1
        timer = asyncio.get_running_loop().call_later(retry_s(queue.failures[record.id]), self._retry, queue, record)
        queue.paused[record.id] = record, timer

    def _retry(self, queue: _ReplyQueue, record: CommandRecord) -> None:
        del queue.paused[record.id]
        self.send(record)


def _retrieve(sent: "asyncio.Future[Outcome]") -> None:
    if not sent.cancelled():
        sent.exception()


def retry_s(failures: int) -> float:
    """Return the pause before a reply is sent again that was not accepted `failures` times."""
    return float(min(MAX_RETRY_S, FIRST_RETRY_S * 2 ** min(failures - 1, 16)))


def reply_message(record: CommandRecord) -> Message:
    """Return a reply in the form of Eclipse Hono's API, where `status` is an `int`. `state` and `command_id` are Fogline's."""
    return Message(
        body=record.reply_body,
        to=str(CommandResponse(record.tenant, record.reply_to)),
        subject=record.name,
        correlation_id=unpack_id(record.correlation),
        content_type=record.reply_type,
        created_ms=record.changed_ms,
        properties={
            "status": None if record.status is None else as_int(record.status),
            "device_id": record.device,
            "tenant_id": record.tenant,
            "command_id": record.id,
            "state": f"{record.state} (provisional)" if record.provisional else record.state.value,
        },
    )
