"""The operators' AMQP links: commands in, what became of them out."""

import time
from functools import partial

from fogline import address
from fogline.amqp.events import Delivery, Link
from fogline.amqp.scheduler import Share
from fogline.message import Message
from fogline_cloud.bridge.guest import Guest
from fogline_cloud.commands.command_id import CommandIds
from fogline_cloud.commands.dispatch import Dispatcher
from fogline_cloud.commands.request import record_of
from fogline_cloud.settings import CommandSettings

CREDIT = 100
"""Commands that an operator may have unsettled on one link."""


class CommandDesk:
    """Serves `command/` and `command_response/`."""

    def __init__(self, dispatcher: Dispatcher, settings: CommandSettings, ids: CommandIds) -> None:
        self._dispatcher = dispatcher
        self._settings = settings
        self._ids = ids

    def attach(self, guest: Guest, link: Link, place: address.Address) -> None:
        """See `Desk`."""
        if isinstance(place, address.CommandResponse):
            sender = guest.connection.accept_link(link, share=Share(strict=0))
            assert sender is not None
            self._dispatcher.listens(place.reply_id, sender)
        else:
            guest.addresses[link] = place
            guest.connection.accept_link(link, credit=CREDIT)

    def received(self, guest: Guest, delivery: Delivery, message: Message, place: address.Address) -> None:
        """See `Desk`."""
        assert isinstance(place, address.Commands)
        now_ms = time.time_ns() // 1_000_000
        record = record_of(message, place, guest.principal, now_ms, self._settings, ids=self._ids)
        self._dispatcher.submit(record, partial(guest.settle, delivery))

    def detached(self, guest: Guest, link: Link) -> None:  # noqa: ARG002 - the interface
        """See `Desk`."""
        self._dispatcher.stops_listening(link)

    def gone(self, guest: Guest) -> None:  # noqa: ARG002 - the interface
        """See `Desk`."""
        self._dispatcher.stops_listening(None)
