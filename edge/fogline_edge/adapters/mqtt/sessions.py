"""Which sessions exist (5: 3.1.2.11.2, 4.1): pure.

A session here is its own existence and no more: nothing is kept for a client, because what it sent is stored before
it is acknowledged. Its existence matters all the same: a client that is told that it is gone may forget what it has
in flight. Sessions live in memory; after a restart they are gone, and what was acknowledged is not.
"""

from math import inf

MAX_EXPIRY_S = 48 * 3600
"""The longest a session outlives its connection: as long as a resend is recognised."""

Key = tuple[str, str]
"""User name (or nothing) and client id: nobody can take over another user's session."""


class Sessions:
    """At most `most` sessions; beyond, the one that was opened longest ago is forgotten."""

    def __init__(self, most: int = 10_000) -> None:
        self._most = most
        self._until: dict[Key, float] = {}

    def open(self, key: Key, *, clean: bool, expiry_s: float, now: float) -> bool:
        """A connection opens `key`. Returns whether its session was there already and goes on."""
        present = self._until.pop(key, -inf) > now and not clean
        if expiry_s:
            if len(self._until) >= self._most:
                del self._until[next(iter(self._until))]
            self._until[key] = inf
        return present

    def close(self, key: Key, *, expiry_s: float, now: float) -> None:
        """The connection of `key` has ended; its session lives on for `expiry_s`."""
        if not expiry_s:
            self._until.pop(key, None)
        elif key in self._until:
            self._until[key] = now + expiry_s
