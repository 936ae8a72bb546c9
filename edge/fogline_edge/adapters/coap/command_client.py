"""Commands to devices that are CoAP servers: a POST to `{uri}/{name}`, sent by aiocoap's client.

Its own sockets keep its Message IDs apart from the listener's. Connected ones (`simple6`) report ICMP errors and cut nothing.
Each command has a context of its own, because aiocoap retransmits a request that was cancelled until its context is shut down.
"""

import asyncio
import logging
from collections.abc import Iterable
from urllib.parse import quote, urlsplit

import aiocoap
from aiocoap import error as aiocoap_error
from aiocoap.numbers.constants import TransportTuning

from fogline.commands.command import MAX_COMMAND_BYTES, Command, Deadline, Reply
from fogline.errors import Misconfigured
from fogline_edge.adapters.coap.counters import CoapCounters
from fogline_edge.adapters.coap.wire import OCTETS, media_type, number_of
from fogline_edge.adapters.port import CommandPort, answer_when_room
from fogline_edge.machine.boot import beacon
from fogline_edge.settings import CoapSettings, ServingSettings

_log = logging.getLogger(__name__)

_FIRST_PAUSE_S = 5.0
_LONGEST_PAUSE_S = 300.0


class CoapCommandClient:
    """An `Executor` for the devices in `coap.devices`. Raises `Misconfigured` for an invalid URI."""

    def __init__(self, commands: CommandPort, settings: CoapSettings, counters: CoapCounters) -> None:
        self._commands = commands
        self._uris = dict(_checked(settings.devices))
        self._timeout_s = settings.command_timeout_s
        self._ack_timeout_s = settings.ack_timeout_s
        self._counters = counters
        self._loop = asyncio.get_running_loop()
        self._open = False
        self._turns = {_endpoint(uri): asyncio.Lock() for uri in self._uris.values()}  # NSTART (RFC 7252, section 4.7)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._pauses: dict[str, tuple[float, asyncio.TimerHandle]] = {}

    async def start(self) -> None:
        """Mark all these devices as reachable; the first command shows if they are."""
        self._open = True
        for device in self._uris:
            self._commands.reachable(device, self)

    async def close(self) -> None:
        """End all commands; those under way are lost."""
        self._open = False
        for device in self._uris:
            self._commands.unreachable(device, self)
        for _, timer in self._pauses.values():
            timer.cancel()
        for task in list(self._tasks.values()):
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def execute(self, command: Command) -> None:
        """As `Executor.execute`."""
        if not self._open or command.device not in self._uris or not command.deadline.is_ahead(beacon):
            self._commands.not_sent(command.id)
            return
        self._counters.commands += 1
        task = self._loop.create_task(self._run(command), name=f"coap command {command.id}")
        self._tasks[command.id] = task
        task.add_done_callback(lambda _: self._tasks.pop(command.id, None))

    def abandon(self, command: Command) -> None:
        """As `Executor.abandon`."""
        task = self._tasks.get(command.id)
        if task is not None:
            task.cancel()

    async def _run(self, command: Command) -> None:
        turn, sent = self._turns[_endpoint(self._uris[command.device])], False
        try:
            async with turn:
                if not command.deadline.is_ahead(beacon):
                    self._commands.not_sent(command.id)
                    return
                context = await aiocoap.Context.create_client_context(transports=["simple6"])
                sent = True
                try:
                    await self._request(context, command)
                finally:
                    await context.shutdown()
        except asyncio.CancelledError:
            (self._commands.lost if sent else self._commands.not_sent)(command.id)
            raise

    async def _request(self, context: aiocoap.Context, command: Command) -> None:
        started_s = self._loop.time()
        try:
            async with asyncio.timeout(self._timeout_s):
                response = await context.request(self._message(command)).response
        except aiocoap_error.ResolutionError as error:
            self._failed(command, f"its address is not known: {error}", sent=False)
        except aiocoap_error.NetworkError as error:
            icmp_or_no_route = isinstance(error.__cause__, OSError)
            refused_at_once = icmp_or_no_route and self._loop.time() - started_s < self._ack_timeout_s
            self._failed(command, str(error), sent=not refused_at_once)
        except (TimeoutError, aiocoap_error.Error) as error:
            self._failed(command, f"no answer: {error}", sent=True)
        else:
            self._pauses.pop(command.device, None)
            await answer_when_room(self._commands, command, _reply_of(response))

    def _message(self, command: Command) -> aiocoap.Message:
        uri = f"{self._uris[command.device].rstrip('/')}/{quote(command.name)}"
        tuning = _Tuning(self._ack_timeout_s, command.deadline)
        message = aiocoap.Message(code=aiocoap.POST, uri=uri, payload=command.data, transport_tuning=tuning)
        message.opt.content_format = number_of(command.content_type)
        return message

    def _failed(self, command: Command, why: str, *, sent: bool) -> None:
        """Report a command as not sent or lost, and make the device unreachable for a pause."""
        (self._commands.lost if sent else self._commands.not_sent)(command.id)
        device = command.device
        pause_s, _ = self._pauses.get(device, (_FIRST_PAUSE_S / 2, None))
        pause_s = min(_LONGEST_PAUSE_S, pause_s * 2)
        text = "device %s at %s: %s; next try in %.0f s"
        _log.warning(text, device, self._uris[device], why, pause_s, extra={"device": device})
        self._commands.unreachable(device, self)
        self._pauses[device] = pause_s, self._loop.call_later(pause_s, self._commands.reachable, device, self)


class _Tuning(TransportTuning):  # type: ignore[misc]
    """Transmission parameters (RFC 7252, section 4.8) of a Confirmable request with a deadline."""

    reliability = True

    def __init__(self, ack_timeout_s: float, deadline: Deadline) -> None:
        self.ACK_TIMEOUT = ack_timeout_s
        self._deadline = deadline

    @property
    def MAX_RETRANSMIT(self) -> int:  # noqa: N802 - aiocoap's name, which it reads before each retransmission
        """The most retransmissions: none after the deadline."""
        return int(TransportTuning.MAX_RETRANSMIT) if self._deadline.is_ahead(beacon) else 0


def _endpoint(uri: str) -> str:
    return urlsplit(uri).netloc


def _checked(devices: Iterable[ServingSettings]) -> Iterable[tuple[str, str]]:
    known: set[str] = set()
    for each in devices:
        parts = urlsplit(each.uri)
        if parts.scheme != "coap" or not parts.hostname or parts.query or parts.fragment:
            raise Misconfigured(f"coap.devices: uri = {each.uri!r}: expected coap://host[:port][/path]")
        if each.device in known:
            raise Misconfigured(f"coap.devices: device = {each.device!r} is listed twice")
        known.add(each.device)
        yield each.device, each.uri


def _reply_of(response: aiocoap.Message) -> Reply:
    """Return a response as a reply: 2.04 is status 204. A payload that is too long is discarded."""
    status = (response.code >> 5) * 100 + (response.code & 31)
    data = bytes(response.payload)
    if len(data) > MAX_COMMAND_BYTES:
        _log.warning(
            "a response of %d bytes is longer than %d: its payload is discarded, its status %d is kept",
            len(data),
            MAX_COMMAND_BYTES,
            status,
        )
        data = b""
    content_format = response.opt.content_format
    kind = media_type(int(content_format)) if content_format is not None else None
    return Reply(status, data, (kind or OCTETS) if data else None)
