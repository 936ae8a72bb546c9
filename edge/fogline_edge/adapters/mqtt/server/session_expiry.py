"""Restores the stored sessions at the start, and ends each session when its Session Expiry Interval is over."""

import asyncio
import logging
from collections.abc import Iterable

from fogline_edge.adapters.mqtt.counters import MqttCounters
from fogline_edge.adapters.mqtt.server.deadline_timer import DeadlineTimer
from fogline_edge.adapters.mqtt.server.dispatch import Dispatch
from fogline_edge.adapters.mqtt.session.effects import Keep
from fogline_edge.adapters.mqtt.session.session_state import PREFIX, SessionState, restored
from fogline_edge.adapters.mqtt.session.sessions import Sessions
from fogline_edge.adapters.port import Port

_log = logging.getLogger(__name__)


class SessionExpiry:
    """The lifetimes of all sessions of a listener. Restart `timer` after a session's connection has ended."""

    def __init__(self, port: Port, sessions: Sessions, dispatch: Dispatch, counters: MqttCounters) -> None:
        self._port = port
        self._sessions = sessions
        self._dispatch = dispatch
        self._counters = counters
        self.timer = DeadlineTimer(sessions.next_expiry, self._expire)

    def restore(self) -> None:
        """Restore the stored sessions. An unreadable record is logged and deleted."""
        found = []
        for name, value in self._port.kept(PREFIX).items():
            state = restored(name, value)
            if state is None:
                self._counters.sessions_unreadable += 1
                _log.warning("the session record %s is unreadable: deleting it", ascii(name)[:80])
                self._dispatch.run(Keep(name, None), None)
            else:
                found.append(state)
        rejected = self._sessions.restore(found, asyncio.get_running_loop().time())
        self._counters.sessions_restored += len(found) - len(rejected)
        self._counters.sessions_dropped += len(rejected)
        self._discard(rejected)
        self.timer.restart()

    def _expire(self) -> None:
        self._discard(self._sessions.expire(asyncio.get_running_loop().time()))
        self.timer.restart()

    def _discard(self, states: Iterable[SessionState]) -> None:
        for state in states:
            for effect in state.discard():
                self._dispatch.run(effect, None)
