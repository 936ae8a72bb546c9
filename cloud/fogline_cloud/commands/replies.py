"""Answers on their way to operators: by reply id, at once if somebody listens, kept until somebody does."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from fogline.address import CommandResponse
from fogline.amqp.events import Link
from fogline.amqp.outcome import Outcome, State
from fogline.amqp.sending import Sender
from fogline.amqp.wire import as_int
from fogline.errors import Unreachable
from fogline.message import Message, unpack_id
from fogline_cloud.commands.record import Record


class Replies:
    """The operators that listen. `told` is called when one has accepted an answer."""

    def __init__(self, told: Callable[[Record], None]) -> None:
        self._told = told
        self._links: dict[str, Sender] = {}
        self._on_the_way: set[str] = set()

    def listens(self, reply_id: str, sender: Sender, owed: Sequence[Record]) -> None:
        """An operator attached: from now on its answers go there, beginning with those that it is owed."""
        self._links[reply_id] = sender
        for record in owed:
            self.send(record)

    def stops_listening(self, link: Link | None) -> None:
        """A link is gone (`None`: whichever is closed)."""
        gone = [name for name, sender in self._links.items() if sender.closed or sender.link is link]
        for name in gone:
            del self._links[name]

    def send(self, record: Record) -> None:
        """Send an answer, if its operator listens and it is not on its way."""
        sender = self._links.get(record.reply_to)
        if sender is None or sender.closed or record.id in self._on_the_way:
            return
        self._on_the_way.add(record.id)
        sender.send(reply_message(record)).add_done_callback(partial(self._on_outcome, record))

    def _on_outcome(self, record: Record, future: "asyncio.Future[Outcome]") -> None:
        self._on_the_way.discard(record.id)
        if future.cancelled() or isinstance(future.exception(), Unreachable):
            return
        if future.result().state in (State.ACCEPTED, State.REJECTED):
            self._told(record)


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
