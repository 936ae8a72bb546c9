"""Commands to HTTP clients: a device reports with `hono-ttd=N`, and the response carries a command that comes within N seconds.

The format is Eclipse Hono's: 200 with the headers `hono-command` and, if a reply is wanted, `hono-cmd-req-id`; the body has the
command's arguments. The connection ends with that response, because only its orderly end proves that the device has read it.
"""

import asyncio
from dataclasses import dataclass
from functools import partial
from urllib.parse import quote

from fogline.address import device_name
from fogline.commands.command import Command
from fogline.documents.media_type import is_media_type
from fogline.errors import Poison
from fogline_edge.adapters.http.counters import HttpCounters
from fogline_edge.adapters.http.exchange import HttpExchange
from fogline_edge.adapters.http.wire import ACCEPTED, HttpResponse
from fogline_edge.adapters.port import CommandPort
from fogline_edge.machine.boot import beacon


@dataclass(eq=False)
class HttpPolls:
    """An `Executor` for the devices that wait for a command now, at most `most`."""

    commands: CommandPort
    most: int
    counters: HttpCounters

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[str, HttpExchange] = {}
        self._sent: dict[str, HttpExchange] = {}

    def hold(self, device: str, exchange: HttpExchange, ttd_s: int) -> None:
        """Respond with a command, or after `ttd_s` seconds without one. A former request of the device is answered at once."""
        former = self._waiting.pop(device, None)
        if former is not None:
            former.respond(ACCEPTED)
        if exchange.eof or len(self._waiting) >= self.most:
            self.counters.asks_over_limit += not exchange.eof
            exchange.respond(ACCEPTED)
            if former is not None:
                self.commands.unreachable(device, self)
            return
        self.counters.asks += 1
        exchange.timer = self._loop.call_later(ttd_s, self._end, device)
        exchange.on_gone = partial(self._left, device, exchange)
        exchange.on_eof = partial(self._end, device)
        self._waiting[device] = exchange
        self.commands.reachable(device, self)

    def execute(self, command: Command) -> None:
        """As `Executor.execute`."""
        exchange = self._waiting.get(command.device)
        if exchange is None or not command.deadline.is_ahead(beacon):
            self.commands.not_sent(command.id)
            return
        del self._waiting[command.device]
        self.commands.unreachable(command.device, self)
        self.counters.commands += 1
        self._sent[command.id] = exchange
        exchange.limit.until(command.deadline)
        exchange.respond(_response(command, exchange.login.name), partial(self._on_outcome, command.id))

    def abandon(self, command: Command) -> None:
        """As `Executor.abandon`: a response that the device has not certainly read is discarded with its connection."""
        exchange = self._sent.pop(command.id, None)
        if exchange is not None:
            exchange.limit.discard()

    def close(self) -> None:
        """Respond to every waiting device. Commands that the device has not certainly read are lost."""
        for device in list(self._waiting):
            self._end(device)
        for command_id in list(self._sent):
            self._on_outcome(command_id, False)

    def _on_outcome(self, command_id: str, read: bool) -> None:  # noqa: FBT001 - called by position
        if self._sent.pop(command_id, None) is None:
            return
        if read:
            self.counters.commands_taken += 1
            self.commands.taken(command_id)
        else:
            self.counters.commands_lost += 1
            self.commands.lost(command_id)

    def _end(self, device: str) -> None:
        exchange = self._waiting.pop(device)
        self.commands.unreachable(device, self)
        exchange.respond(ACCEPTED)

    def _left(self, device: str, exchange: HttpExchange) -> None:
        if self._waiting.get(device) is exchange:
            del self._waiting[device]
            self.commands.unreachable(device, self)


def _media_type(given: str | None) -> str | None:
    try:
        return given if given is not None and is_media_type(given) else None
    except Poison:
        return None


def _response(command: Command, login: str | None) -> HttpResponse:
    headers = [("hono-command", command.name)]
    if command.reply:
        headers.append(("hono-cmd-req-id", command.id))
    if login is not None and command.device != login:
        headers.append(("hono-cmd-target-device", quote(device_name(command.device))))
    content_type = _media_type(command.content_type)
    if content_type is not None:
        headers.append(("content-type", content_type))
    return HttpResponse(200, tuple(headers), command.data)
