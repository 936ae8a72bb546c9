"""Logs HTTP users in at the bridge: each has one AMQP connection, which is used for all of their requests."""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from fogline.address import is_identifier, shown
from fogline.amqp.login import PLAIN, Login
from fogline.amqp.security import ClientSecurity
from fogline.errors import Poison, SlowDown, Unreachable
from fogline.message import Message
from fogline.process.login_turns import LoginTurns
from fogline.transport.http_login import CHALLENGE, basic_credentials
from fogline_cloud.access.principal import ASSERTED, Principal, PrincipalKind
from fogline_cloud.api.problems import Problem, not_at_present
from fogline_cloud.api.user_session import UserSession, WrongPassword

MAX_SESSIONS = 1000
"""Users that are logged in at a time. Beyond that, the one whose last request is the oldest is logged out."""
MAX_LOGINS = 8
"""Logins in progress at a time: each costs the bridge some 50 ms of a CPU. Others wait, and addresses take turns."""
LOGIN_S = 600.0
"""A login counts for so long; then the bridge checks the password again."""
REFUSED_S = 5.0
"""A wrong password is refused for so long without another question to the bridge."""
WITHOUT_PASSWORD = "http"  # noqa: S105 - a user name
"""The name of users who give none, at a bridge without TLS."""
_CHALLENGE = dict([CHALLENGE])


class User(NamedTuple):
    """A user who is logged in."""

    principal: Principal
    session: UserSession


_Key = tuple[str, bytes]


class Logins:
    """The users that are logged in at the bridge at `host`:`port`. `on_reply` gets an operator, and a reply to it.

    `security`: TLS without a login. Without TLS the bridge is on loopback and believes every name. Used on the loop.
    """

    def __init__(
        self, tenant: str, host: str, port: int, security: ClientSecurity, on_reply: Callable[[str, Message], None]
    ) -> None:
        self.refused = 0
        self._tenant = tenant
        self._endpoint = host, port
        self._security = security
        self._on_reply = on_reply
        self._sessions: OrderedDict[_Key, UserSession] = OrderedDict()
        self._turns = LoginTurns(MAX_LOGINS)
        self._opening: dict[_Key, asyncio.Task[UserSession]] = {}
        self._refused_s: OrderedDict[_Key, float] = OrderedDict()

    @property
    def has_passwords(self) -> bool:
        """True if the bridge checks passwords; else it is on loopback, and every name is believed."""
        return self._security.tls is not None

    def __len__(self) -> int:
        return len(self._sessions)

    async def user(self, authorization: str | None, address: str) -> User:
        """Return the user of a request of a client at `address`. Raises `Problem` (401, 503)."""
        name, password = self._credentials(authorization)
        key = name, hashlib.sha256(password.encode()).digest()
        now_s = asyncio.get_running_loop().time()
        session = self._sessions.get(key)
        if session is not None and (session.is_closed or now_s - session.opened_s > LOGIN_S):
            del self._sessions[key]
            session.retire()
            session = None
        if session is None:
            session = await self._log_in(key, password, address)
        if key in self._sessions:  # else others have pushed it out meanwhile; the request may still use it
            self._sessions.move_to_end(key)
        return User(self._principal(name), session)

    def _principal(self, name: str) -> Principal:
        proof = "password" if self.has_passwords else ASSERTED
        return Principal(PrincipalKind.CLIENT, self._tenant, name, proof)

    def _credentials(self, authorization: str | None) -> tuple[str, str]:
        if authorization is None and not self.has_passwords:
            return WITHOUT_PASSWORD, ""
        try:
            name, password = basic_credentials(authorization or "")
            text = password.decode()
        except (Poison, UnicodeDecodeError):
            raise Problem(401, "a user name and a password are required (HTTP Basic)", headers=_CHALLENGE) from None
        if not is_identifier(name):
            raise Problem(401, f"user {shown(name)} is no name of a user", headers=_CHALLENGE)
        return name, text

    async def _log_in(self, key: _Key, password: str, address: str) -> UserSession:
        now_s = asyncio.get_running_loop().time()
        if now_s - self._refused_s.get(key, -REFUSED_S) < REFUSED_S:
            raise self._refusal(key)
        task = self._opening.get(key)
        if task is None:
            task = self._opening[key] = asyncio.create_task(self._open(key, password, address), name="login")
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            return await asyncio.shield(task)
        except WrongPassword:
            raise self._refusal(key) from None
        except SlowDown as error:
            raise not_at_present(str(error)) from None
        except Unreachable as error:
            raise not_at_present(f"no bridge at present: {error}") from None

    async def _open(self, key: _Key, password: str, address: str) -> UserSession:
        tls = self._security.tls
        security = self._security if tls is None else ClientSecurity(Login(PLAIN, key[0], password), tls)
        session = UserSession(self._tenant, key[0], security, partial(self._on_reply, str(self._principal(key[0]))))
        try:
            async with self._turns.turn(address):
                await session.open(*self._endpoint)
        except WrongPassword:
            self._refused_s[key] = asyncio.get_running_loop().time()
            if len(self._refused_s) > MAX_SESSIONS:
                self._refused_s.popitem(last=False)
            raise
        finally:
            del self._opening[key]
        self._sessions[key] = session
        if len(self._sessions) > MAX_SESSIONS:
            self._sessions.popitem(last=False)[1].retire()
        return session

    def _refusal(self, key: _Key) -> Problem:
        self.refused += 1
        return Problem(401, f"wrong user name or password for {shown(key[0])}", headers=_CHALLENGE)

    def close(self) -> None:
        """Log all users out."""
        for task in self._opening.values():
            task.cancel()
        for session in self._sessions.values():
            session.close()
