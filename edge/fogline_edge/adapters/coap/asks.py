"""Commands to devices that only ask: a report with `hono-ttd=N` is answered with a command, if one comes in N seconds.

That is Eclipse Hono's way: 2.04 with Location-Query `hono-command={name}`, Location-Path
`command_response/{tenant}/{device}/{command id}` unless no answer is wanted, and the command's arguments as payload.
It always goes as a separate confirmable response, because only that tells whether the device has it.
"""

import asyncio
from dataclasses import dataclass
from functools import partial

from fogline.command import Command
from fogline_edge.adapters.coap.counters import Counters
from fogline_edge.adapters.coap.exchanges import Exchange
from fogline_edge.adapters.coap.formats import number_of
from fogline_edge.adapters.coap.messages import Messages
from fogline_edge.adapters.coap.paths import RESPONSES
from fogline_edge.adapters.coap.requests import Request
from fogline_edge.adapters.coap.wire import MAX_PIECE_BYTES, Code, Option, Options, Reply, uint
from fogline_edge.adapters.port import Commands
from fogline_edge.profiles.names import device_name


@dataclass(slots=True)
class _Ask:
    exchange: Exchange
    request: Request
    echo: Options
    timer: asyncio.TimerHandle


class Asks:
    """The devices that wait for a command now, at most `most`: an `Executor`. `messages` has to be set before `hold`."""

    messages: Messages

    def __init__(self, commands: Commands, tenant: str, most: int, counters: Counters) -> None:
        self._commands = commands
        self._tenant = tenant
        self._most = most
        self._counters = counters
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[str, _Ask] = {}
        self._sent: dict[str, Exchange] = {}

    def hold(self, device: str, request: Request, exchange: Exchange, ttd_s: int, echo: Options) -> None:
        """Answer this request with a command, or after `ttd_s` seconds without one. A former one is answered now."""
        former = self._waiting.pop(device, None)
        if former is not None:
            self._release(former)
        if len(self._waiting) >= self._most:
            self._counters.asks_over_limit += 1
            self.messages.reply(exchange, Reply(Code.CHANGED, echo))
            if former is not None:
                self._commands.unreachable(device, self)
            return
        self._counters.asks += 1
        timer = self._loop.call_later(ttd_s, self._on_end, device)
        self._waiting[device] = _Ask(exchange, request, echo, timer)
        self._commands.reachable(device, self)

    def execute(self, command: Command) -> None:
        """As `Executor.execute`."""
        ask = self._waiting.get(command.device)
        if ask is None or not self.messages.can_confirm:
            self._commands.not_sent(command.id)
            return
        why = _unfit(command, ask.request)
        if why is not None:
            self._commands.refused(command.id, why)
            return
        del self._waiting[command.device]
        ask.timer.cancel()
        self._commands.unreachable(command.device, self)
        self._counters.commands += 1
        self._sent[command.id] = ask.exchange
        reply = Reply(Code.CHANGED, (*ask.echo, *self._options(command)), command.data)
        self.messages.reply(ask.exchange, reply, partial(self._told, command.id))

    def abandon(self, command: Command) -> None:
        """As `Executor.abandon`: a command that the device has not acknowledged is not sent again."""
        exchange = self._sent.pop(command.id, None)
        if exchange is not None:
            self.messages.withdraw(exchange)

    def close(self) -> None:
        """Answer whoever waits; what was sent and not acknowledged is lost."""
        for device, ask in list(self._waiting.items()):
            del self._waiting[device]
            self._release(ask)
            self._commands.unreachable(device, self)
        for command_id in list(self._sent):
            self._told(command_id, False)

    def _told(self, command_id: str, acknowledged: bool) -> None:  # noqa: FBT001 - called by position
        if self._sent.pop(command_id, None) is None:
            return
        if acknowledged:
            self._commands.taken(command_id)
        else:
            self._commands.lost(command_id)

    def _on_end(self, device: str) -> None:
        self._release(self._waiting.pop(device))
        self._commands.unreachable(device, self)

    def _release(self, ask: _Ask) -> None:
        ask.timer.cancel()
        self.messages.reply(ask.exchange, Reply(Code.CHANGED, ask.echo))

    def _options(self, command: Command) -> Options:
        path = (RESPONSES, self._tenant, device_name(command.device), command.id) if command.reply else ()
        content_format = number_of(command.content_type)
        return (
            *((int(Option.LOCATION_PATH), each.encode()) for each in path),
            *(((int(Option.CONTENT_FORMAT), uint(content_format)),) if content_format is not None else ()),
            (Option.LOCATION_QUERY, f"hono-command={command.name}".encode()),
        )


def _unfit(command: Command, request: Request) -> str | None:
    """Why this command cannot be the answer to this request."""
    most = min(MAX_PIECE_BYTES, request.block2.size if request.block2 else MAX_PIECE_BYTES)
    if len(command.data) > most:
        return f"a CoAP device that asks takes commands of up to {most} bytes"
    if request.accept is not None and number_of(command.content_type) != request.accept:
        return f"the device accepts content format {request.accept} only"
    return None
