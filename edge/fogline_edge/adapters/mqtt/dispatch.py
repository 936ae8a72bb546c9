"""Commands between the gateway and the connections: which device is reached through which, and what else outlives a packet.

A connection hears of a command by `Carrier.execute`; what became of it goes back by `run`.
"""

from collections.abc import Callable
from typing import Protocol

from fogline.command import Command
from fogline.errors import SlowDown
from fogline.event import EMPTY_NOTIFICATION, Arrival, Lane, Receipt
from fogline_edge.adapters.mqtt.counters import Counters
from fogline_edge.adapters.mqtt.effects import Effect, Fate, Forget, Keep, Reach, Respond, Tell, Then
from fogline_edge.adapters.mqtt.intake import ADAPTER
from fogline_edge.adapters.mqtt.sessions import Sessions
from fogline_edge.adapters.port import Commands, Executor, Port

_UNTIL_FURTHER_NOTICE = -1


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

    def __init__(self, port: Port, commands: Commands | None, by: Executor, sessions: Sessions, counters: Counters) -> None:
        self._port = port
        self._commands = commands
        self._by = by
        self._sessions = sessions
        self._counters = counters
        self._carriers: dict[str, dict[Carrier, None]] = {}
        self._unput: dict[object, Arrival] = {}

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

    def publish(self, arrival: Arrival, latest: str | None = None) -> None:
        """Put what nobody waits for, in order, as soon as there is room; of those for one `latest`, the newest."""
        self._unput[latest or object()] = arrival
        if len(self._unput) == 1:
            self._put()

    def _put(self) -> None:
        while self._unput:
            key = next(iter(self._unput))
            try:
                self._port.put(self._unput[key], _unheard)
            except SlowDown:
                self._port.when_room(self._put)
                return
            del self._unput[key]
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
        self.publish(
            Arrival(
                device=device,
                channel="command",
                lane=Lane.ALARM,
                type="notification",
                content_type=EMPTY_NOTIFICATION,
                data=b"",
                adapter=ADAPTER,
                ttd_s=ttd_s,
            ),
            latest=device,
        )


def _continuation(carrier: Carrier | None, then: Then) -> Callable[[], None]:
    return _nothing if carrier is None else lambda: carrier.go_on(then)


def _nothing() -> None:
    """Nobody waits for this commit."""


def _unheard(receipt: Receipt) -> None:
    """Whoever sent it cannot be told any more."""
