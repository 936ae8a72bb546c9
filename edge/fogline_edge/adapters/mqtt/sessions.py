"""Which sessions exist (5: 3.1.2.11.2, 4.1): pure. A client that is told that its is gone may forget what it has in flight."""

from collections.abc import Callable, Iterable
from math import inf
from typing import NamedTuple

from fogline_edge.adapters.mqtt.effects import Key
from fogline_edge.adapters.mqtt.kept import State

MAX_EXPIRY_S = 48 * 3600
"""The longest a session outlives its connection: as long as a resend is recognised."""


class Found(NamedTuple):
    """A session for a connection. `present`: it was there already and goes on. `gone`: those that are over by that."""

    state: State
    present: bool
    gone: list[State]


class Sessions:
    """At most `most` sessions that outlive their connections; beyond, the one that is away for longest is given up."""

    def __init__(self, new_epoch: Callable[[], bytes], most: int = 2_000) -> None:
        self._new_epoch = new_epoch
        self._most = most
        self._states: dict[Key, State] = {}

    def open(self, key: Key, *, clean: bool, expiry_s: int, now: float) -> Found:
        """A connection opens `key`."""
        former = self._states.pop(key, None)
        if former is not None and (clean or former.until <= now):
            gone, present = [former], None
        else:
            gone, present = [], former
        state = present or State(key, self._new_epoch() if expiry_s else b"", expiry_s)
        state.expiry_s, state.until = expiry_s, inf
        if expiry_s:
            gone += self._make_room()
            self._states[key] = state
        return Found(state, present is not None, gone)

    def close(self, state: State, now: float) -> bool:
        """The session's connection has ended. Returns whether it lives on."""
        if not state.expiry_s or self._states.get(state.key) is not state:
            if self._states.get(state.key) is state:
                del self._states[state.key]
            return False
        state.until = now + state.expiry_s
        return True

    def expire(self, now: float) -> list[State]:
        """Take out those whose time is up."""
        over = [each for each in self._states.values() if each.until <= now]
        for each in over:
            del self._states[each.key]
        return over

    def next_expiry(self) -> float:
        """When the next one's time is up; `inf`: none's."""
        return min((each.until for each in self._states.values()), default=inf)

    def restore(self, states: Iterable[State], now: float) -> list[State]:
        """Take in those that were kept; their time begins anew. Returns those for which there is no room."""
        gone = []
        for state in states:
            if len(self._states) >= self._most:
                gone.append(state)
            else:
                state.until = now + state.expiry_s
                self._states[state.key] = state
        return gone

    def carrying(self, command_id: str) -> State | None:
        """The session that has a command under way."""
        return next((each for each in self._states.values() if each.outbound.carries(command_id)), None)

    def _make_room(self) -> list[State]:
        if len(self._states) < self._most:
            return []
        away = min(self._states.values(), key=lambda each: each.until)
        return [self._states.pop(away.key)]
