"""Logins of devices (Basic, RFC 7617), and the rule for listening beyond this machine."""

import asyncio
import re
from functools import partial
from pathlib import Path

import msgspec

from fogline.address import device_identifier, shown
from fogline.errors import Misconfigured, Poison, SlowDown
from fogline.process.files.settings_file import is_loopback
from fogline.process.files.tls_files import ReadAgain
from fogline.process.login_turns import LoginTurns
from fogline.transport.http_login import CHALLENGE, basic_credentials
from fogline_edge.adapters.device_acl import DeviceAcl
from fogline_edge.adapters.http.wire import HttpRefused, HttpRequest
from fogline_edge.adapters.users import Users, UserSecret, load_users
from fogline_edge.settings import HttpSettings

_VERIFICATIONS = 2  # the most passwords that are checked at once; addresses take turns


class HttpLogin(msgspec.Struct, frozen=True):
    """Who sends. `name`: the device that logged in; None without logins. `others`: names of further devices it speaks for."""

    name: str | None = None
    others: re.Pattern[str] | None = None
    proof: tuple[str, UserSecret | None] | None = None
    """The user, and what the password was compared with."""

    def device(self, named: str | None) -> str:
        """Return the device that a path names, or else the sender itself. Raises `HttpRefused` (400, 403)."""
        if self.name is None:
            if named is None:
                raise HttpRefused(
                    400, "no-device", "without logins (http.users), name the device: /telemetry/{tenant}/{device}"
                )
            return named
        if named in (None, self.name):
            return self.name
        if self.others is None or self.others.fullmatch(named) is None:
            raise HttpRefused(403, "not-authorised", f"{self.name} does not speak for device {named}: see http.acl")
        return named


class HttpLogins:
    """Checks the logins of requests. The file is read again when it changes. Raises `Misconfigured`, see `check_http`."""

    def __init__(self, tenant: str, settings: HttpSettings) -> None:
        check_http(settings)
        users = settings.users
        self._tenant = tenant
        self._acl = DeviceAcl(settings.acl, "http.acl")
        self._users = None if users is None else ReadAgain[Users](partial(load_users, Path(users), "http.users"), [users])
        self._verifications = LoginTurns(_VERIFICATIONS)

    @property
    def needed(self) -> bool:
        """True if requests must have a login."""
        return self._users is not None

    async def login(self, request: HttpRequest, address: str) -> HttpLogin:
        """Return who sends a request from `address`. Raises `HttpRefused` (401; 503 if too many others log in)."""
        if self._users is None:
            return HttpLogin()
        try:
            username, password = basic_credentials(request.headers.get("authorization", ""))
            device = self._device(username)
        except Poison as error:
            raise HttpRefused(401, error.reason, str(error), (CHALLENGE,)) from None
        try:
            async with self._verifications.turn(address):
                proof = username, self._users.get().secret_of(username)
                known = await asyncio.to_thread(self._verify, username, password)
        except SlowDown as error:
            raise HttpRefused(503, "busy", str(error), (("retry-after", f"{error.retry_after_s:.0f}"),)) from None
        if not known:
            raise HttpRefused(401, "bad-login", f"user {shown(username)} is unknown, or the password is wrong", (CHALLENGE,))
        return HttpLogin(device, self._acl.others(device), proof)

    def counts(self, login: HttpLogin) -> bool:
        """Return True if a login counts still: its user was not deleted, and has the same password."""
        return self._users is None or login.proof is None or self._users.get().secret_of(login.proof[0]) == login.proof[1]

    def _device(self, username: str) -> str:
        """Return the device of a user, written `device` or `device@tenant`. Raises `Poison`."""
        name, at, tenant = username.rpartition("@")
        if at and tenant != self._tenant:
            raise Poison("foreign-tenant", f"user {shown(username)} does not belong to tenant {self._tenant}")
        return device_identifier(name if at else username, "user")

    def _verify(self, username: str, password: bytes) -> bool:
        assert self._users is not None
        return self._users.get().verify(username, password)


def check_http(settings: HttpSettings) -> None:
    """Raise `Misconfigured` if others than this machine's programs could send, and the user has not accepted how."""
    DeviceAcl(settings.acl, "http.acl")
    if settings.users is not None:
        load_users(Path(settings.users), "http.users")
    elif settings.acl:
        raise Misconfigured("http.acl names users, and nobody logs in: set http.users")
    if is_loopback(settings.host):
        return
    where = f"http.host = {settings.host!r}"
    if settings.users is None:
        raise Misconfigured(f"{where}: without a login only loopback is safe. Use 127.0.0.1, or set http.users")
    if not settings.plain_on_lan:
        raise Misconfigured(
            f"{where}: passwords and events would cross the network in clear text. Use 127.0.0.1 behind a server that "
            "speaks HTTPS, or accept it with plain_on_lan = true in [http]"
        )
