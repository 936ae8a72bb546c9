"""Commands to CoAP clients: a device polls with `hono-ttd=N`, and the response carries a command that comes within N seconds.

The format is Eclipse Hono's: 2.04 with Location-Query `hono-command={name}`, the command's arguments as payload, and, if a
reply is wanted, Location-Path `command_response/{tenant}/{device}/{command id}`. It is always a separate Confirmable response
(RFC 7252, section 5.2.2), because only its acknowledgement proves that the device has the command.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from fogline.commands.command import Command
from fogline.events.codec import Beacon
from fogline_edge.adapters.coap.access import still_speaks
from fogline_edge.adapters.coap.command_response import command_options, why_unfit
from fogline_edge.adapters.coap.counters import CoapCounters
from fogline_edge.adapters.coap.exchanges import Exchange
from fogline_edge.adapters.coap.message_layer import Confirmation, MessageLayer
from fogline_edge.adapters.coap.requests import Request
from fogline_edge.adapters.coap.wire import CoapResponse, Code, Endpoint, Options
from fogline_edge.adapters.port import CommandPort
from fogline_edge.credentials.credential_store import CredentialStore
from fogline_edge.machine.boot import beacon


@dataclass(slots=True)
class _Poll:
    exchange: Exchange
    request: Request
    echo: Options
    timer: asyncio.TimerHandle


@dataclass(eq=False)
class CommandPolls:
    """An `Executor` for the devices that wait for a command now, at most `most`."""

    commands: CommandPort
    tenant: str
    most: int
    messages: MessageLayer
    counters: CoapCounters
    credentials: CredentialStore
    now: Callable[[], Beacon] = beacon  # the clock of deadlines

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[str, _Poll] = {}
        self._sent: dict[str, Exchange] = {}

    def hold(self, device: str, request: Request, exchange: Exchange, ttd_s: int, echo: Options) -> None:
        """Respond with a command, or after `ttd_s` seconds without one. A former poll of the device is answered at once."""
        former = self._waiting.pop(device, None)
        if former is not None:
            self._release(former)
        if len(self._waiting) >= self.most:
            self.counters.asks_over_limit += 1
            self.messages.reply(exchange, CoapResponse(Code.CHANGED, echo))
            if former is not None:
                self.commands.unreachable(device, self)
            return
        self.counters.asks += 1
        timer = self._loop.call_later(ttd_s, self._end, device)
        self._waiting[device] = _Poll(exchange, request, echo, timer)
        self.commands.reachable(device, self)

    def endpoint_gone(self, device: str, endpoint: Endpoint) -> None:
        """Note that a session of the device has ended: a poll in it ends too."""
        poll = self._waiting.get(device)
        if poll is not None and poll.exchange.endpoint == endpoint:
            self._end(device)

    def key_ended(self, device: str, number: int) -> None:
        """End the poll of a device if its key counts no longer."""
        poll = self._waiting.get(device)
        protection = poll.exchange.protection if poll is not None else None
        if protection is not None and protection.key_number == number:
            self._end(device)

    def execute(self, command: Command) -> None:
        """As `Executor.execute`."""
        poll = self._waiting.get(command.device)
        if poll is not None and not still_speaks(self.credentials, command.device, poll.exchange):
            self._end(command.device)  # the device asks again, with its key
            poll = None
        if poll is None or not self.messages.can_confirm or not command.deadline.is_ahead(self.now):
            self.commands.not_sent(command.id)
            return
        why = why_unfit(command, poll.request)
        if why is not None:
            self.commands.refused(command.id, why)
            return
        del self._waiting[command.device]
        poll.timer.cancel()
        self.commands.unreachable(command.device, self)
        self.counters.commands += 1
        self._sent[command.id] = poll.exchange
        reply = CoapResponse(Code.CHANGED, (*poll.echo, *command_options(command, self.tenant)), command.data)
        in_time = partial(command.deadline.is_ahead, self.now)
        self.messages.reply(poll.exchange, reply, partial(self._on_outcome, command.id), in_time=in_time)

    def abandon(self, command: Command) -> None:
        """As `Executor.abandon`: no further retransmission of a command that the device has not acknowledged."""
        exchange = self._sent.pop(command.id, None)
        if exchange is not None:
            self.messages.withdraw(exchange)

    def close(self) -> None:
        """Respond to every waiting device. Commands that are not acknowledged are lost."""
        for device in list(self._waiting):
            self._end(device)
        for command_id in list(self._sent):
            self._on_outcome(command_id, Confirmation.UNKNOWN)

    def _on_outcome(self, command_id: str, outcome: Confirmation) -> None:
        if self._sent.pop(command_id, None) is not None:
            # A Reset proves nothing: aiocoap resets a duplicate of the response to a request that it has ended (RFC 7252, 4.2).
            (self.commands.taken if outcome is Confirmation.ACKNOWLEDGED else self.commands.lost)(command_id)

    def _end(self, device: str) -> None:
        self._release(self._waiting.pop(device))
        self.commands.unreachable(device, self)

    def _release(self, poll: _Poll) -> None:
        poll.timer.cancel()
        self.messages.reply(poll.exchange, CoapResponse(Code.CHANGED, poll.echo))
