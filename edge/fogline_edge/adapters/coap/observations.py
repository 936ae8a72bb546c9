"""Commands to CoAP clients that stay awake: a device observes `command/{tenant}/{device}`, and each command is a notification.

A registration is a GET with Observe 0 (RFC 7641). The notification is 2.05, Confirmable, with the options of a command in the
response to a poll. A device has one observation, the newest. It ends with Observe 1, with a notification that is reset or not
acknowledged, with a poll of the device, or `lifetime_s` after its registration, which the response says as Max-Age.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from fogline.commands.command import Command
from fogline.events.codec import Beacon
from fogline.events.event import EMPTY_NOTIFICATION, Arrival, Lane, Receipt
from fogline_edge.adapters.coap.access import still_speaks
from fogline_edge.adapters.coap.command_response import command_options, why_unfit
from fogline_edge.adapters.coap.counters import CoapCounters
from fogline_edge.adapters.coap.exchanges import Exchange
from fogline_edge.adapters.coap.intake import ADAPTER, retransmission_of
from fogline_edge.adapters.coap.message_layer import Confirmation, MessageLayer
from fogline_edge.adapters.coap.requests import Request
from fogline_edge.adapters.coap.wire import CoapResponse, Code, Endpoint, Option, uint
from fogline_edge.adapters.port import CommandPort
from fogline_edge.credentials.credential_store import CredentialStore
from fogline_edge.machine.boot import beacon

REGISTER = 0
DEREGISTER = 1
STOPPING = CoapResponse(Code.SERVICE_UNAVAILABLE, ((Option.MAX_AGE, uint(5)),))
"""The last notification when the gateway stops: the device registers again."""
_SEQUENCES = 1 << 24


@dataclass(slots=True, eq=False)
class _Observation:
    device: str
    request: Request
    exchange: Exchange
    timer: asyncio.TimerHandle

    def is_of(self, exchange: Exchange) -> bool:
        return (self.exchange.endpoint, self.exchange.token) == (exchange.endpoint, exchange.token)


@dataclass(eq=False)
class Observations:
    """An `Executor` for the devices that observe, at most `most`. `put` stores an arrival."""

    commands: CommandPort
    put: Callable[[Arrival, Callable[[Receipt], None]], None]
    tenant: str
    most: int
    lifetime_s: int
    messages: MessageLayer
    counters: CoapCounters
    credentials: CredentialStore
    now: Callable[[], Beacon] = beacon  # the clock of deadlines

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._observed: dict[str, _Observation] = {}
        self._sent: dict[str, _Observation] = {}
        self._sequence = 0

    def serve(self, device: str, request: Request, exchange: Exchange) -> None:
        """Register, deregister, or respond without a command. Raises `SlowDown`.

        A registration is an event of the device, so that the bridge knows which gateway reaches it.
        """
        if request.observe == REGISTER:
            notification = Arrival(
                device=device,
                channel="command",
                lane=Lane.ALARM,
                type="notification",
                content_type=EMPTY_NOTIFICATION,
                data=b"",
                adapter=ADAPTER,
                retransmission=retransmission_of(exchange),
                ttd_s=self.lifetime_s,
            )
            self.put(notification, lambda _: self._register(device, request, exchange))
            return
        known = self._observed.get(device)
        if request.observe == DEREGISTER and known is not None and known.is_of(exchange):
            self.end(device)
        self.messages.reply(exchange, CoapResponse(Code.CONTENT))

    def _register(self, device: str, request: Request, exchange: Exchange) -> None:
        """Observe in place of the former observation. Beyond the limit, the response has no Observe (RFC 7641, section 4.1)."""
        self.end(device)
        if len(self._observed) >= self.most:
            self.counters.observations_over_limit += 1
            self.messages.reply(exchange, CoapResponse(Code.CONTENT))
            return
        self.counters.observations += 1
        timer = self._loop.call_later(self.lifetime_s, self.end, device)
        self._observed[device] = _Observation(device, request, exchange, timer)
        max_age = (int(Option.MAX_AGE), uint(self.lifetime_s))
        self.messages.reply(exchange, CoapResponse(Code.CONTENT, (self._observe(), max_age)))
        self.commands.reachable(device, self)

    def end(self, device: str) -> None:
        """End the observation of a device, if there is one. A command under way goes on."""
        observation = self._observed.pop(device, None)
        if observation is not None:
            observation.timer.cancel()
            self.commands.unreachable(device, self)

    def endpoint_gone(self, device: str, endpoint: Endpoint) -> None:
        """Note that a session of the device has ended: an observation in it ends too."""
        observation = self._observed.get(device)
        if observation is not None and observation.exchange.endpoint == endpoint:
            self.end(device)

    def key_ended(self, device: str, number: int) -> None:
        """End the observation of a device if its key counts no longer."""
        observation = self._observed.get(device)
        protection = observation.exchange.protection if observation is not None else None
        if protection is not None and protection.key_number == number:
            self.end(device)

    def execute(self, command: Command) -> None:
        """As `Executor.execute`."""
        observation = self._observed.get(command.device)
        if observation is not None and not still_speaks(self.credentials, command.device, observation.exchange):
            self.end(command.device)  # the device registers again, with its key
            observation = None
        if observation is None or not self.messages.can_confirm or not command.deadline.is_ahead(self.now):
            self.commands.not_sent(command.id)
            return
        why = why_unfit(command, observation.request)
        if why is not None:
            self.commands.refused(command.id, why)
            return
        self.counters.commands += 1
        self._sent[command.id] = observation
        options = (self._observe(), *command_options(command, self.tenant))
        notification = CoapResponse(Code.CONTENT, options, command.data)
        outcome = partial(self._on_outcome, command.id)
        in_time = partial(command.deadline.is_ahead, self.now)
        self.messages.reply(observation.exchange, notification, outcome, notification=True, in_time=in_time)

    def abandon(self, command: Command) -> None:
        """As `Executor.abandon`: no further retransmission of a command that the device has not acknowledged."""
        observation = self._sent.pop(command.id, None)
        if observation is not None:
            self.messages.withdraw(observation.exchange)

    def close(self) -> None:
        """End all observations, and say so. Commands that are not acknowledged are lost."""
        for device, observation in list(self._observed.items()):
            self.end(device)
            self.messages.reply(observation.exchange, STOPPING, notification=True)
        for command_id in list(self._sent):
            self._on_outcome(command_id, Confirmation.UNKNOWN)

    def _on_outcome(self, command_id: str, outcome: Confirmation) -> None:
        observation = self._sent.pop(command_id, None)
        if observation is None:
            return
        if outcome is Confirmation.ACKNOWLEDGED:
            self.commands.taken(command_id)
            return
        if self._observed.get(observation.device) is observation:
            self.end(observation.device)
        # The device has rejected the only copy: it was restarted or observes no more, and has not read the command.
        (self.commands.not_sent if outcome is Confirmation.RESET else self.commands.lost)(command_id)

    def _observe(self) -> tuple[int, bytes]:
        """Return the next Observe option. Its numbers go on after a restart of the process (RFC 7641, section 4.4)."""
        self._sequence = max(self._sequence + 1, int(self._loop.time()))
        return int(Option.OBSERVE), uint(self._sequence % _SEQUENCES)
