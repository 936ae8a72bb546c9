"""Dispatches commands to the connections of their devices, and puts wills and notifications, which nobody acknowledges."""

from collections.abc import Callable
from functools import partial
from typing import Protocol

from fogline.commands.command import Command
from fogline.errors import SlowDown
from fogline.events.event import EMPTY_NOTIFICATION, Arrival, Lane, Receipt
from fogline_edge.adapters.mqtt.counters import MqttCounters
from fogline_edge.adapters.mqtt.hono.intake import ADAPTER
from fogline_edge.adapters.mqtt.hono.responses import MqttResponse
from fogline_edge.adapters.mqtt.server.event_feed import EventFeed
from fogline_edge.adapters.mqtt.session.effects import (
    Continuation,
    DeliveryResult,
    Effect,
    Forget,
    Keep,
    LastWill,
    Listen,
    ReportDelivery,
    SetReachable,
)
from fogline_edge.adapters.mqtt.session.sessions import Sessions
from fogline_edge.adapters.mqtt.session.wills import WillBudget
from fogline_edge.adapters.port import CommandPort, Port

_UNTIL_FURTHER_NOTICE = -1
MAX_NOTES = 10_000
"""The most notifications that wait for room in the port. Beyond that the oldest is discarded."""


class Carrier(Protocol):
    """One client's connection."""

    def execute(self, command: Command) -> None:
        """Send a command to the client."""

    def abandon(self, command_id: str) -> bool:
        """Give a command up. Returns False if it is not queued or in flight here."""

    def resume(self, then: Continuation) -> None:
        """Continue after a commit, if the connection is still open."""


class Dispatch:
    """Commands, wills and notifications of one listener, which it represents as an `Executor`. `feed`: for subscribers."""

    def __init__(
        self, port: Port, commands: CommandPort | None, sessions: Sessions, *, counters: MqttCounters, wills: WillBudget
    ) -> None:
        self._port = port
        self.wills = wills
        self._commands = commands
        self._sessions = sessions
        self._counters = counters
        self._carriers: dict[str, dict[Carrier, None]] = {}
        self._parked: dict[object, tuple[Arrival, int]] = {}  # a later arrival with the same key replaces the former
        self._waits_for_room = False
        self.feed = EventFeed(port)

    def run(self, effect: Effect, carrier: Carrier | None) -> None:
        """Perform an effect of a connection, or (`None`) of a session without a connection."""
        match effect:
            case Forget(slot, packet_id, then):
                self._port.forget(slot, _resume(carrier, then), packet_id)
            case Keep(key, value, then):
                self._port.keep(key, value, _resume(carrier, then))
            case ReportDelivery():
                self._report(effect)
            case Listen():
                self.feed.run(effect, carrier)
            case SetReachable(device, reachable) if carrier is not None:
                self._set_reachable(device, carrier, reachable=reachable)

    def execute(self, command: Command) -> None:
        """See `Executor.execute`."""
        self._counters.commands += 1
        carriers = self._carriers.get(command.device)
        if carriers:
            next(reversed(carriers)).execute(command)
        else:
            self._report(ReportDelivery(DeliveryResult.NOT_SENT, command.id))

    def abandon(self, command: Command) -> None:
        """See `Executor.abandon`."""
        if any(each.abandon(command.id) for each in self._carriers.get(command.device, ())):
            return
        if (state := self._sessions.carrying(command.id)) is not None:
            for effect in state.outbound.abandon(command.id):
                self.run(effect, None)

    def answer(self, response: MqttResponse, done: Callable[[Receipt], None]) -> None:
        """Give a command response to the journal. Raises `SlowDown` as `Port.put` does."""
        assert self._commands is not None
        self._commands.answer(response.device, response.command_id, response.reply, done)
        self._counters.answers += 1

    def publish_will(self, will: LastWill) -> None:
        """Put a will, in order, as soon as there is room, then free its share of the budget."""
        self._put_when_room(object(), will.arrival, will.cost)

    def _put_when_room(self, key: object, arrival: Arrival, cost: int = 0) -> None:
        self._parked[key] = arrival, cost
        if not self._waits_for_room:
            self._put()

    def _put(self) -> None:
        self._waits_for_room = False
        while self._parked:
            key = next(iter(self._parked))
            arrival, cost = self._parked[key]
            try:
                self._port.put(arrival, lambda _: None)  # there is no client to acknowledge it to
            except SlowDown:
                self._waits_for_room = True
                self._port.when_room(self._put)
                return
            del self._parked[key]
            self.wills.give_back(cost)
            self._counters.received += 1

    def _report(self, report: ReportDelivery) -> None:
        if self._commands is None:
            return
        name = f"commands_{report.result}"
        setattr(self._counters, name, getattr(self._counters, name) + 1)
        match report.result:
            case DeliveryResult.TAKEN:
                self._commands.taken(report.command_id)
            case DeliveryResult.NOT_SENT:
                self._commands.not_sent(report.command_id)
            case DeliveryResult.LOST:
                self._commands.lost(report.command_id)
            case DeliveryResult.REFUSED:
                self._commands.refused(report.command_id, report.detail)

    def _set_reachable(self, device: str, carrier: Carrier, *, reachable: bool) -> None:
        """Reach a device through its newest connection, until its last one ends."""
        if self._commands is None:
            return
        carriers = self._carriers.setdefault(device, {})
        carriers.pop(carrier, None)
        if reachable:
            carriers[carrier] = None
            self._notify(device, _UNTIL_FURTHER_NOTICE)
            self._commands.reachable(device, self)
        elif not carriers:
            del self._carriers[device]
            self._notify(device, 0)
            self._commands.unreachable(device, self)

    def _notify(self, device: str, ttd_s: int) -> None:
        """Put Hono's empty notification: from now on commands for the device may be sent, or (`ttd_s` is 0) no longer."""
        notification = Arrival(
            device=device,
            channel="command",
            lane=Lane.ALARM,
            type="notification",
            content_type=EMPTY_NOTIFICATION,
            data=b"",
            adapter=ADAPTER,
            ttd_s=ttd_s,
        )
        if device not in self._parked and len(self._parked) >= MAX_NOTES:
            oldest = next((key for key in self._parked if isinstance(key, str)), None)  # a will's key is no string
            self._parked.pop(oldest, None)
            self._counters.notes_dropped += 1
        self._put_when_room(device, notification)


def _resume(carrier: Carrier | None, then: Continuation | None) -> Callable[[], None]:
    return (lambda: None) if then is None or carrier is None else partial(carrier.resume, then)
