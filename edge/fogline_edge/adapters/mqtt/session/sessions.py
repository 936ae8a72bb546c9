"""All sessions of a listener (5: 3.1.2.11.2, 4.1): pure. A session may end at any time: its client sees that in CONNACK."""

import secrets
from collections.abc import Callable, Iterable
from math import inf
from typing import NamedTuple

from fogline_edge.adapters.mqtt.hono.intake import ClientKey
from fogline_edge.adapters.mqtt.session.session_state import SessionState

MAX_EXPIRY_S = 48 * 3600
"""The longest Session Expiry Interval: as long as the outbox recognises a retransmission."""


class SessionLookup(NamedTuple):
    """The session of a connection. `present`: an existing session continues. `ended`: sessions that the call ended."""

    state: SessionState
    present: bool
    ended: list[SessionState]


class Sessions:
    """At most `most` sessions that outlive their connections. A new one ends the session that expires next."""

    def __init__(self, new_epoch: Callable[[], bytes] = lambda: secrets.token_bytes(8), most: int = 2_000) -> None:
        self._new_epoch = new_epoch
        self._most = most
        self._states: dict[ClientKey, SessionState] = {}

    def open(
        self,
        key: ClientKey,
        *,
        clean: bool,
        expiry_s: int,
        now: float,
        may_resume: Callable[[SessionState], bool] = lambda _: True,
        make: Callable[[ClientKey, bytes, int], SessionState] = SessionState,
    ) -> SessionLookup:
        """Continue or begin the session of a connection. `clean`: Clean Start (3.1.1: Clean Session). `make`: a new state."""
        former = self._states.pop(key, None)
        if former is not None and (clean or former.expires_at <= now or not may_resume(former)):
            ended, present = [former], None
        else:
            ended, present = [], former
        state = present or make(key, self._new_epoch() if expiry_s else b"", expiry_s)
        state.expiry_s, state.expires_at = expiry_s, inf
        if expiry_s:
            ended += self._make_room()
            self._states[key] = state
        return SessionLookup(state, present is not None, ended)

    def close(self, state: SessionState, now: float, *, may_resume: bool = True) -> bool:
        """Note the end of the session's connection. Returns True if the session outlives it."""
        if self._states.get(state.key) is not state:
            return False
        if not (state.expiry_s and may_resume):
            del self._states[state.key]
            return False
        state.expires_at = now + state.expiry_s
        return True

    def expire(self, now: float) -> list[SessionState]:
        """Remove and return the expired sessions."""
        expired = [each for each in self._states.values() if each.expires_at <= now]
        for each in expired:
            del self._states[each.key]
        return expired

    def next_expiry(self) -> float | None:
        """Return the time of the next expiry, or `None`."""
        return min((each.expires_at for each in self._states.values() if each.expires_at < inf), default=None)

    def restore(self, states: Iterable[SessionState], now: float) -> list[SessionState]:
        """Add stored sessions; their Session Expiry Interval begins again. Returns the sessions without room."""
        restored = list(states)
        room = max(0, self._most - len(self._states))
        for state in restored[:room]:
            state.expires_at = now + state.expiry_s
            self._states[state.key] = state
        return restored[room:]

    def carrying(self, command_id: str) -> SessionState | None:
        """Return the session with this command in flight."""
        return next((each for each in self._states.values() if each.outbound.carries(command_id)), None)

    def _make_room(self) -> list[SessionState]:
        if len(self._states) < self._most:
            return []
        first = min(self._states.values(), key=lambda each: each.expires_at)
        return [self._states.pop(first.key)]
