"""Commands to devices that are CoAP servers: a POST to `{uri}/{name}`, sent by aiocoap's client.

Its own sockets keep its Message IDs apart from the listener's. Connected ones (`simple6`) report ICMP errors and cut nothing.
Each command has a context of its own, because aiocoap retransmits a request that was cancelled until its context is shut down.
A command to a device with a key of OSCORE goes sealed. To a device with other keys, or whose keys were revoked, none goes.
"""

import asyncio
import logging
from collections.abc import Iterable
from urllib.parse import quote, unquote, urlsplit

import aiocoap
from aiocoap import error as aiocoap_error
from aiocoap.numbers.constants import TransportTuning

from fogline.commands.command import MAX_COMMAND_BYTES, Command, Deadline, Reply
from fogline.errors import Misconfigured, Poison
from fogline_edge.adapters.coap.counters import CoapCounters
from fogline_edge.adapters.coap.oscore.context_table import ContextTable, LiveContext
from fogline_edge.adapters.coap.oscore.sealed_command import MAX_SEALED_BYTES, SealedCommand, SealedResponse, ready_context
from fogline_edge.adapters.coap.wire import OCTETS, Code, Option, Options, media_type, number_of, uint
from fogline_edge.adapters.port import CommandPort, answer_when_room
from fogline_edge.credentials.credential_store import CredentialStore
from fogline_edge.machine.boot import beacon
from fogline_edge.settings import CoapSettings, ServingSettings

_log = logging.getLogger(__name__)

_FIRST_PAUSE_S = 5.0
_LONGEST_PAUSE_S = 300.0


class CoapCommandClient:
    """An `Executor` for the devices in `coap.devices`. Raises `Misconfigured` for an invalid URI."""

    def __init__(
        self,
        commands: CommandPort,
        settings: CoapSettings,
        counters: CoapCounters,
        credentials: CredentialStore,
        table: ContextTable | None = None,
    ) -> None:
        self._commands = commands
        self._credentials = credentials
        self._table = table
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
                live = await ready_context(self._table, command.device) if self._table is not None else None
                if live is None and not self._credentials.complete:
                    self._failed(command, "the gateway has lost the keys of devices, and waits for a bridge", sent=False)
                    return
                if (why := self._why_unfit(command, live)) is not None:
                    self._commands.refused(command.id, why)
                    return
                context = await aiocoap.Context.create_client_context(transports=["simple6"])
                sent = True
                try:
                    await self._request(context, command, live)
                finally:
                    await context.shutdown()
        except asyncio.CancelledError:
            (self._commands.lost if sent else self._commands.not_sent)(command.id)
            raise

    def _why_unfit(self, command: Command, live: LiveContext | None) -> str | None:
        """Return why a command cannot go to its device; None if it can."""
        if live is None and self._credentials.is_protected(command.device):
            if not self._credentials.keys(command.device):
                return "the keys of the device are revoked"
            if self._table is None and self._credentials.newest_oscore(command.device) is not None:
                return "the device has a key of OSCORE, and the gateway has no oscore = true in [coap]"
            return (
                "the device has keys, and none of OSCORE, so a command would go to coap.devices in clear text. Give it a "
                "key of OSCORE, or take it out of coap.devices and let it observe over DTLS"
            )
        if live is not None and len(command.data) > MAX_SEALED_BYTES:
            return f"a command under OSCORE has at most {MAX_SEALED_BYTES} bytes"
        return None

    async def _request(self, context: aiocoap.Context, command: Command, live: LiveContext | None) -> None:
        started_s = self._loop.time()
        try:
            async with asyncio.timeout(self._timeout_s):
                if live is None:
                    reply = _reply_of(await context.request(self._message(command)).response)
                else:
                    reply = await self._exchange_sealed(context, command, live)
        except aiocoap_error.ResolutionError as error:
            self._failed(command, f"its address is not known: {error}", sent=False)
        except aiocoap_error.NetworkError as error:
            icmp_or_no_route = isinstance(error.__cause__, OSError)
            refused_at_once = icmp_or_no_route and self._loop.time() - started_s < self._ack_timeout_s
            self._failed(command, str(error), sent=not refused_at_once)
        except (TimeoutError, Poison, aiocoap_error.Error) as error:
            self._failed(command, f"no answer: {error}", sent=True)
        else:
            self._pauses.pop(command.device, None)
            await answer_when_room(self._commands, command, reply)

    async def _exchange_sealed(self, context: aiocoap.Context, command: Command, live: LiveContext) -> Reply:
        """Send a command sealed, once more if the device challenges it. Raises `Poison` if the answer is not the device's."""
        assert self._table is not None
        parts = urlsplit(self._uris[command.device])
        path = [unquote(each) for each in parts.path.split("/") if each]
        content_format = number_of(command.content_type)
        options: Options = (
            *((int(Option.URI_PATH), each.encode()) for each in (*path, command.name)),
            *(((int(Option.CONTENT_FORMAT), uint(content_format)),) if content_format is not None else ()),
        )
        echo, challenges = None, 0
        while True:
            sealed = SealedCommand(live, self._table.gateway)
            self._table.reserve(live)
            message = aiocoap.Message(
                code=aiocoap.POST,
                uri=f"{parts.scheme}://{parts.netloc}",
                payload=sealed.seal(options, command.data, echo),
                transport_tuning=_Tuning(self._ack_timeout_s, command.deadline),
            )
            message.opt.oscore = sealed.option
            response = await context.request(message).response
            opened = sealed.open(response.opt.oscore, bytes(response.payload))
            echo, challenges = opened.option(Option.ECHO), challenges + 1
            # The device has not run a command that it challenges (RFC 9175, section 2.3).
            if opened.code != Code.UNAUTHORIZED or echo is None or challenges > 1:
                return _sealed_reply(opened)
            if not command.deadline.is_ahead(beacon):
                raise Poison("oscore", "its deadline passed at a challenge")

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
    return _reply(int(response.code), response.opt.content_format, bytes(response.payload))


def _sealed_reply(response: SealedResponse) -> Reply:
    found = response.option(Option.CONTENT_FORMAT)
    return _reply(response.code, None if found is None else int.from_bytes(found), response.payload)


def _reply(code: int, content_format: int | None, data: bytes) -> Reply:
    status = (code >> 5) * 100 + (code & 31)
    if len(data) > MAX_COMMAND_BYTES:
        _log.warning(
            "a response of %d bytes is longer than %d: its payload is discarded, its status %d is kept",
            len(data),
            MAX_COMMAND_BYTES,
            status,
        )
        data = b""
    kind = media_type(int(content_format)) if content_format is not None else None
    return Reply(status, data, (kind or OCTETS) if data else None)
