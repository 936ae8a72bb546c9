"""Logins of devices: by password (Basic, RFC 7617) or certificate."""

import asyncio
import re
import ssl
from functools import partial
from pathlib import Path

import msgspec

from fogline.address import device_identifier, shown
from fogline.errors import Poison, SlowDown
from fogline.process.files.tls_files import ReadAgain
from fogline.process.login_turns import LoginTurns
from fogline.transport.certificate_names import CertificateNames
from fogline.transport.http_login import CHALLENGE, basic_credentials
from fogline_edge.adapters.device_acl import DeviceAcl
from fogline_edge.adapters.http.wire import HttpRefused, HttpRequest
from fogline_edge.adapters.sockets.access_rules import check_access
from fogline_edge.adapters.sockets.certificate import certified_device
from fogline_edge.adapters.sockets.listener_tls import listener_context
from fogline_edge.adapters.users import Users, UserSecret, load_users
from fogline_edge.settings import HttpSettings

PROTOCOLS = ("http/1.1",)
"""What is spoken over TLS (ALPN)."""
_VERIFICATIONS = 2  # the most passwords that are checked at once; addresses take turns


class HttpLogin(msgspec.Struct, frozen=True):
    """Who sends. `name`: the device that logged in; None without logins. `others`: names of further devices it speaks for.

    `proof`: see below; None if it needs none, or is the certificate of the connection.
    """

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
        check_access("http", settings)
        users = settings.users
        self._tenant = tenant
        self._acl = DeviceAcl(settings.acl, "http.acl")
        self._users = None if users is None else ReadAgain[Users](partial(load_users, Path(users), "http.users"), [users])
        self._verifications = LoginTurns(_VERIFICATIONS)
        tls, passwords = settings.tls, users is not None
        self._tls = None if tls is None else listener_context(tls, "http.tls", passwords=passwords, protocols=PROTOCOLS)

    @property
    def needed(self) -> bool:
        """True if requests must have a login, unless the connection has a certificate."""
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

    def certified(self, names: CertificateNames) -> HttpLogin:
        """Return who sends over a connection with this verified certificate. Raises `HttpRefused` (403)."""
        try:
            device = device_identifier(certified_device(names, self._tenant), "the common name")
        except Poison as error:
            raise HttpRefused(403, error.reason, str(error)) from None
        return HttpLogin(device, self._acl.others(device))

    def counts(self, login: HttpLogin, *, is_same: bool) -> bool:
        """Return True if a login of the connection counts still: its user was not deleted, and has the same password.

        `is_same`: the request has the same field Authorization.
        """
        if login.proof is None:
            return True
        assert self._users is not None
        return is_same and self._users.get().secret_of(login.proof[0]) == login.proof[1]

    def tls_context(self) -> ssl.SSLContext:
        """Return the context for a new connection. Only with `[http.tls]`."""
        assert self._tls is not None
        return self._tls.get()

    def _device(self, username: str) -> str:
        """Return the device of a user, written `device` or `device@tenant`. Raises `Poison`."""
        name, at, tenant = username.rpartition("@")
        if at and tenant != self._tenant:
            raise Poison("foreign-tenant", f"user {shown(username)} does not belong to tenant {self._tenant}")
        return device_identifier(name if at else username, "user")

    def _verify(self, username: str, password: bytes) -> bool:
        assert self._users is not None
        return self._users.get().verify(username, password)


class ConnectionLogin:
    """Who the client of one connection is, from request to request. `address`: the client's.

    `present`: the login of the present request. `certificate`: the names in the client's verified certificate; set it before
    the first request.
    """

    def __init__(self, logins: HttpLogins, address: str) -> None:
        self.present = HttpLogin()
        self.certificate: CertificateNames | None = None
        self._logins = logins
        self._address = address
        self._known: str | None = None  # the field Authorization that `present` has proved
        self._is_known = False

    @property
    def payer(self) -> str:
        """The name under which the client's bytes are counted."""
        return self.present.name or self._address

    def is_known(self, request: HttpRequest) -> bool:
        """Return True if `present` is the login of this request, without a password to check. Raises `HttpRefused` (403)."""
        if self._is_known and self._logins.counts(self.present, is_same=self._known == request.headers.get("authorization")):
            return True
        if self.certificate is not None:
            self.present = self._logins.certified(self.certificate)
            self._is_known = True
        return self.certificate is not None or not self._logins.needed

    async def check(self, request: HttpRequest) -> None:
        """Check the password of a request. Raises `HttpRefused`, see `HttpLogins.login`."""
        self._is_known = False
        self.present = await self._logins.login(request, self._address)
        self._known, self._is_known = request.headers.get("authorization"), True


def check_http(settings: HttpSettings) -> None:
    """Check the settings of a server and their files. Raises `Misconfigured`."""
    HttpLogins("", settings)
