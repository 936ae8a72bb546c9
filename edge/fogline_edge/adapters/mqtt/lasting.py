"""What a listener has that outlives connections: wills that wait, and sessions, from the start to their end."""

import asyncio
import logging
from math import inf

from fogline_edge.adapters.mqtt.counters import Counters
from fogline_edge.adapters.mqtt.dispatch import Dispatch
from fogline_edge.adapters.mqtt.effects import Keep, Key, LastWill
from fogline_edge.adapters.mqtt.kept import PREFIX, restored
from fogline_edge.adapters.mqtt.sessions import Sessions
from fogline_edge.adapters.port import Port

_log = logging.getLogger(__name__)


class Wills:
    """Wills of clients that are gone (5: 3.1.3.2.2). At most `most` wait; beyond, they go at once."""

    def __init__(self, dispatch: Dispatch, most: int) -> None:
        self._dispatch = dispatch
        self._most = most
        self._waiting: dict[Key, tuple[asyncio.TimerHandle, LastWill]] = {}

    def add(self, key: Key | None, will: LastWill) -> None:
        """Publish a will, now or after its delay."""
        if key is None or not will.delay_s or len(self._waiting) >= self._most:
            self._dispatch.publish_will(will)
            return
        timer = asyncio.get_running_loop().call_later(will.delay_s, self._late, key)
        self._waiting[key] = timer, will

    def reopened(self, key: Key, *, resumed: bool) -> None:
        """The client is back: its will goes unsaid if it goes on with its session, else it goes now."""
        timer, will = self._waiting.pop(key, (None, None))
        if timer is not None and will is not None:
            timer.cancel()
            if resumed:
                self._dispatch.discard_will(will)
            else:
                self._dispatch.publish_will(will)

    def close(self) -> None:
        """Publish what waits."""
        for timer, will in self._waiting.values():
            timer.cancel()
            self._dispatch.publish_will(will)
        self._waiting.clear()

    def _late(self, key: Key) -> None:
        self._dispatch.publish_will(self._waiting.pop(key)[1])


class Lives:
    """Sessions as they were kept, and the time that each has left."""

    def __init__(self, port: Port, sessions: Sessions, dispatch: Dispatch, counters: Counters) -> None:
        self._port = port
        self._sessions = sessions
        self._dispatch = dispatch
        self._counters = counters
        self._timer: asyncio.TimerHandle | None = None

    def restore(self) -> None:
        """Take in what was kept when the gateway ended. What cannot be read is dropped, and said."""
        found = []
        for name, value in self._port.kept(PREFIX).items():
            state = restored(name, value)
            if state is None:
                self._counters.sessions_unreadable += 1
                _log.warning("what was kept under %s is not readable, and is dropped", ascii(name)[:80])
                self._dispatch.run(Keep(name, None), None)
            else:
                found.append(state)
        gone = self._sessions.restore(found, asyncio.get_running_loop().time())
        self._counters.sessions_restored += len(found) - len(gone)
        self._counters.sessions_dropped += len(gone)
        for effect in [effect for each in gone for effect in each.discard()]:
            self._dispatch.run(effect, None)
        self.watch()

    def watch(self) -> None:
        """(Re)start the timer: a session's connection has ended."""
        if self._timer is not None:
            self._timer.cancel()
        when = self._sessions.next_expiry()
        self._timer = None if when == inf else asyncio.get_running_loop().call_at(when, self._expire)

    def close(self) -> None:
        """Let all of them be."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        for state in self._sessions.expire(asyncio.get_running_loop().time()):
            for effect in state.discard():
                self._dispatch.run(effect, None)
        self.watch()
