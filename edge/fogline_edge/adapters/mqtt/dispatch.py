"""Commands between the gateway and the connections: which device is reached through which, and what else outlives a packet.

A connection hears of a command by `Carrier.execute`; what became of it goes back by `run`.
"""

from collections.abc import Callable
from typing import Protocol

from fogline.command import Command
from fogline.errors import SlowDown
from fogline.event import EMPTY_NOTIFICATION, Arrival, Lane, Receipt
from fogline_edge.adapters.mqtt.counters import Counters
from fogline_edge.adapters.mqtt.effects import Effect, Fate, Forget, Keep, LastWill, Reach, Respond, Tell, Then
from fogline_edge.adapters.mqtt.intake import ADAPTER
from fogline_edge.adapters.mqtt.sessions import Sessions
from fogline_edge.adapters.mqtt.will_budget import WillBudget
from fogline_edge.adapters.port import Commands, Executor, Port

_UNTIL_FURTHER_NOTICE = -1
MAX_NOTES = 10_000
"""How many notes of devices that come and go may wait for room; beyond, the oldest is discarded."""


class Carrier(Protocol):
    """One client's connection."""

    def execute(self, command: Command) -> None:
        """Carry a command to the client."""

    def abandon(self, command_id: str) -> bool:
        """Nobody waits for it any more. Returns whether it is under way here."""

    def go_on(self, then: Then) -> None:
        """Do what was to be done after a commit, if the connection is still there."""


class Dispatch:
    """What all connections of a listener share. `by`: who the commands' side knows as their executor."""

    def __init__(
        self,
        port: Port,
        commands: Commands | None,
        by: Executor,
        sessions: Sessions,
        *,
        counters: Counters,
        wills: WillBudget,
    ) -> None:
        self._port = port
        self._wills = wills
        self._commands = commands
        self._by = by
        self._sessions = sessions
        self._counters = counters
        self._carriers: dict[str, dict[Carrier, None]] = {}
        self._unput: dict[object, tuple[Arrival, int]] = {}
        self._waits = False

    def run(self, effect: Effect, carrier: Carrier | None) -> None:
        """Have something done for a connection, or (`None`) for a session that has none."""
        match effect:
            case Forget(devices, slot, number, then):
                for device in devices[:-1]:
                    self._port.forget(device, slot, _nothing, number)
                self._port.forget(devices[-1], slot, _continuation(carrier, then), number)
            case Keep(key, value, then):
                self._port.keep(key, value, _nothing if then is None else _continuation(carrier, then))
            case Tell():
                self._tell(effect)
            case Reach(device, on) if carrier is not None:
                self._reach(device, carrier, on=on)

    def execute(self, command: Command) -> None:
        """As `Executor.execute`."""
        self._counters.commands += 1
        carriers = self._carriers.get(command.device)
        if carriers:
            next(reversed(carriers)).execute(command)
        else:
            self._tell(Tell(Fate.NOT_SENT, command.id))

    def abandon(self, command: Command) -> None:
        """As `Executor.abandon`."""
        if any(each.abandon(command.id) for each in self._carriers.get(command.device, ())):
            return
        state = self._sessions.carrying(command.id)
        if state is not None:
            for effect in state.outbound.abandon(command.id):
                self.run(effect, None)

    def answer(self, respond: Respond, done: Callable[[Receipt], None]) -> None:
        """Hand a device's answer over. Raises `SlowDown` as `Port.put` does."""
        assert self._commands is not None
        self._commands.answer(respond.device, respond.command_id, respond.answer, done)
        self._counters.answers += 1

    def publish_will(self, will: LastWill) -> None:
        """Put a will, in order, as soon as there is room. Then what it took of the budget is free."""
        self._publish(object(), will.arrival, will.cost)

    def discard_will(self, will: LastWill) -> None:
        """The will goes unsaid."""
        self._wills.give_back(will.cost)

    def _publish(self, key: object, arrival: Arrival, cost: int = 0) -> None:
        self._unput[key] = arrival, cost
        if not self._waits:
            self._put()

    def _put(self) -> None:
        self._waits = False
        while self._unput:
            key = next(iter(self._unput))
            arrival, cost = self._unput[key]
            try:
                self._port.put(arrival, _unheard)
            except SlowDown:
                self._waits = True
                self._port.when_room(self._put)
                return
            del self._unput[key]
            self._wills.give_back(cost)
            self._counters.received += 1

    def _tell(self, tell: Tell) -> None:
        if self._commands is None:
            return
        name = f"commands_{tell.fate}"
        setattr(self._counters, name, getattr(self._counters, name) + 1)
        match tell.fate:
            case Fate.TAKEN:
                self._commands.taken(tell.command_id)
            case Fate.NOT_SENT:
                self._commands.not_sent(tell.command_id)
            case Fate.LOST:
                self._commands.lost(tell.command_id)
            case Fate.REFUSED:
                self._commands.refused(tell.command_id, tell.detail)

    def _reach(self, device: str, carrier: Carrier, *, on: bool) -> None:
        """A device is reached through its newest connection, and is away when its last one is."""
        if self._commands is None:
            return
        carriers = self._carriers.setdefault(device, {})
        carriers.pop(carrier, None)
        if on:
            carriers[carrier] = None
            self._notify(device, _UNTIL_FURTHER_NOTICE)
            self._commands.reachable(device, self._by)
        elif not carriers:
            del self._carriers[device]
            self._notify(device, 0)
            self._commands.unreachable(device, self._by)

    def _notify(self, device: str, ttd_s: int) -> None:
        """Hono's empty notification: whoever waits for the device may send commands now, or no more."""
        note = Arrival(
            device=device,
            channel="command",
            lane=Lane.ALARM,
            type="notification",
            content_type=EMPTY_NOTIFICATION,
            data=b"",
            adapter=ADAPTER,
            ttd_s=ttd_s,
        )
        if device not in self._unput and len(self._unput) >= MAX_NOTES:
            oldest = next((key for key in self._unput if isinstance(key, str)), None)
            self._unput.pop(oldest, None)
            self._counters.notes_dropped += 1
        self._publish(device, note)


def _continuation(carrier: Carrier | None, then: Then) -> Callable[[], None]:
    return _nothing if carrier is None else lambda: carrier.go_on(then)


def _nothing() -> None:
    """Nobody waits for this commit."""


def _unheard(receipt: Receipt) -> None:
    """Whoever sent it cannot be told any more."""
