"""Sessions of the operator's page: the users who are logged in, each by a random cookie. No IO; the caller gives the time."""

import hashlib
import secrets
from collections import OrderedDict

import msgspec

from fogline_cloud.api.logins import User

MAX_SESSIONS = 1000
"""Sessions at a time. Beyond that, the one whose last request is the oldest ends."""
MAX_OF_USER = 20
"""Sessions of one user. Beyond that, the oldest one of the same user ends."""
IDLE_S = 3600.0
"""A session ends after so long without a request. A page that shows what happens makes requests."""
LIFE_S = 12 * 3600.0
"""A session ends after so long in any case."""


class ConsoleSession(msgspec.Struct, eq=False, kw_only=True):
    """One login by the page. Times are seconds of the event loop's clock.

    `authorization`: what the API gets with each of its requests, in memory only. `user`: who the API said that it is, the last
    time that it could say, at `checked_s`. `csrf`: what each form of the session must have.
    """

    authorization: str
    user: User
    opened_s: float
    used_s: float
    checked_s: float
    csrf: str = msgspec.field(default_factory=lambda: secrets.token_urlsafe(24))
    failed_s: float = float("-inf")
    """The last time that no bridge could check the password, and why."""
    why_failed: str = ""


class ConsoleSessions:
    """Sessions by the digest of their cookie."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[bytes, ConsoleSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, user: User, authorization: str, now_s: float) -> str:
        """Begin a session, and return its cookie."""
        for key in [key for key, each in self._sessions.items() if _is_over(each, now_s)]:
            del self._sessions[key]
        own = [key for key, each in self._sessions.items() if each.user.principal == user.principal]
        if len(own) >= MAX_OF_USER:
            del self._sessions[min(own, key=lambda key: self._sessions[key].opened_s)]
        if len(self._sessions) >= MAX_SESSIONS:
            self._sessions.popitem(last=False)
        cookie = secrets.token_urlsafe(32)
        self._sessions[_digest(cookie)] = ConsoleSession(
            authorization=authorization, user=user, opened_s=now_s, used_s=now_s, checked_s=now_s
        )
        return cookie

    def find(self, cookie: str, now_s: float) -> ConsoleSession | None:
        """Return the session of a cookie, which has made a request now, or None if there is none any more."""
        key = _digest(cookie)
        found = self._sessions.get(key)
        if found is None:
            return None
        if _is_over(found, now_s):
            del self._sessions[key]
            return None
        found.used_s = now_s
        self._sessions.move_to_end(key)
        return found

    def close(self, cookie: str) -> None:
        """End a session, if there is one."""
        self._sessions.pop(_digest(cookie), None)


def _is_over(session: ConsoleSession, now_s: float) -> bool:
    return now_s - session.used_s > IDLE_S or now_s - session.opened_s > LIFE_S


def _digest(cookie: str) -> bytes:
    return hashlib.sha256(cookie.encode()).digest()
