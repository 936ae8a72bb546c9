"""Lets requests of the operator's page in: cookie, user, and proof that a form is one of ours. Rights are the API's."""

import asyncio
import base64
import secrets
from typing import NamedTuple
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import Response

from fogline_cloud.access.principal import Principal
from fogline_cloud.api import requests
from fogline_cloud.api.context import ApiContext
from fogline_cloud.api.logins import LOGIN_S
from fogline_cloud.api.problems import Problem
from fogline_cloud.console.sessions import ConsoleSession, ConsoleSessions

MAX_FORM_BYTES = 256 * 1024
MAX_FIELDS = 200
AGAIN_S = 5.0
"""While no bridge answers, a session asks for its user's login again after so long."""
CSRF = "csrf"
"""The field of a form that proves that this process made it for this session."""
_FORM = "application/x-www-form-urlencoded"
_LOGIN = "-login"

Fields = dict[str, str]


class Viewer(NamedTuple):
    """Who looks at a page."""

    session: ConsoleSession

    @property
    def principal(self) -> Principal:
        """Who it is, for the policy."""
        return self.session.user.principal


class Guard:
    """Knows the sessions. `tls`: cookies go over TLS only. Used on the loop."""

    def __init__(self, context: ApiContext, *, tls: bool) -> None:
        self.sessions = ConsoleSessions()
        self._context = context
        self._tls = tls
        # Of another host's or path's making, a browser takes no cookie with this prefix (RFC 6265bis, section 4.1.3.2).
        self._cookie = "__Host-fogline" if tls else "fogline"

    async def viewer(self, request: Request) -> Viewer:
        """Return who makes a request. Raises `Problem`: 401 without a session, or if its user's login is over; 403, 503.

        While no bridge can check the password, who was logged in may go on reading for as long as a login counts.
        """
        cookie = request.cookies.get(self._cookie, "")
        now_s = asyncio.get_running_loop().time()
        session = self.sessions.find(cookie, now_s) if cookie else None
        if session is None:
            raise Problem(401, "log in first")
        may_go_on = request.method == "GET" and now_s - session.checked_s < LOGIN_S and not self._context.stopping
        if may_go_on and now_s - session.failed_s < AGAIN_S:
            return Viewer(session)
        try:
            session.user = await self._context.user(request, session.authorization)
        except Problem as problem:
            if problem.status == 401:
                self.sessions.close(cookie)
                raise Problem(401, "your login is over: the user or the password has changed") from None
            if problem.status != 503 or not may_go_on:
                raise
            session.failed_s, session.why_failed = asyncio.get_running_loop().time(), str(problem)
        else:
            session.checked_s = asyncio.get_running_loop().time()
        return Viewer(session)

    async def log_in(self, request: Request, response: Response, name: str, password: str) -> None:
        """Log a user in as the API does, and give the response the cookie. Raises `Problem` (401, 403, 503)."""
        authorization = "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()
        user = await self._context.user(request, authorization)
        self._close(request)
        cookie = self.sessions.open(user, authorization, asyncio.get_running_loop().time())
        self._set(response, self._cookie, cookie)
        self._drop(response, self._cookie + _LOGIN)

    def log_out(self, request: Request, response: Response) -> None:
        """End the session of a request, and take the cookie away."""
        self._close(request)
        self._drop(response, self._cookie)

    async def form(self, request: Request, viewer: Viewer) -> Fields:
        """Return the fields of a form of a session. Raises `Problem` if the form is not ours (403), or too long."""
        return await self._fields(request, viewer.session.csrf)

    def login_token(self, request: Request, response: Response) -> str:
        """Return what the form of the log-in must have, and give the browser the same as a cookie."""
        token = request.cookies.get(self._cookie + _LOGIN) or secrets.token_urlsafe(24)
        self._set(response, self._cookie + _LOGIN, token)
        return token

    async def login_form(self, request: Request) -> Fields:
        """Return the fields of the form of the log-in. Raises `Problem` if the form is not ours (403), or too long."""
        return await self._fields(request, request.cookies.get(self._cookie + _LOGIN, ""))

    async def _fields(self, request: Request, expected: str) -> Fields:
        if request.headers.get("origin") is None:
            raise Problem(403, "a form is sent from a page of this site: the browser must send Origin")
        self._context.check_origin(request)
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
            raise Problem(415, f"expected {_FORM}")
        body = await requests.read_body(request, MAX_FORM_BYTES)
        try:
            pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict")
        except ValueError:
            raise Problem(400, "the form cannot be read") from None
        fields = dict(pairs)
        given = fields.pop(CSRF, "")
        if not expected or not secrets.compare_digest(given.encode(), expected.encode()):
            raise Problem(403, "this form is not of your session: load the page again")
        return fields

    def _close(self, request: Request) -> None:
        self.sessions.close(request.cookies.get(self._cookie, ""))

    def _set(self, response: Response, name: str, value: str) -> None:
        response.set_cookie(name, value, path="/", secure=self._tls, httponly=True, samesite="strict")

    def _drop(self, response: Response, name: str) -> None:
        response.delete_cookie(name, path="/", secure=self._tls, httponly=True, samesite="strict")
