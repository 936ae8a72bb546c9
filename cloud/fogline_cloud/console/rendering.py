"""Renders the pages of the operator's page, with the headers that keep a browser from doing anything but showing them."""

from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

import jinja2
from markupsafe import escape
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from fogline_cloud.access.principal import Principal
from fogline_cloud.api.problems import Problem
from fogline_cloud.console import shown
from fogline_cloud.console.guard import Viewer
from fogline_cloud.console.static_files import address_of

ROOT: Final = "/console"
LOGIN: Final = f"{ROOT}/login"
PARTS: Final = f"{ROOT}/parts"
"""Below it are the parts of pages that renew themselves."""
HEADERS: Final = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "same-origin",  # without any, browsers send no Origin with a form
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
_NO_STORE: Final = {"cache-control": "no-store"}
_FRAGMENT: Final = "hx-request"


class Entry(NamedTuple):
    """An entry of the menu. `oversight`: it is for those who oversee the tenant."""

    address: str
    name: str
    oversight: bool = False


class Rendering:
    """The templates. `entries`: the menu. `oversees` tells for whom its entries with `oversight` are."""

    def __init__(self, entries: Sequence[Entry], oversees: Callable[[Principal], bool]) -> None:
        self._entries = entries
        self._oversees = oversees
        self._templates = jinja2.Environment(
            loader=jinja2.PackageLoader("fogline_cloud.console"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            finalize=shown.shown,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters |= {
            "moment": shown.moment,
            "age": shown.age,
            "pretty": shown.pretty,
            "lines_of": shown.lines_of,
            "whole": escape,
        }
        self._templates.globals |= {"root": ROOT, "static": address_of}

    def menu(self, viewer: Viewer) -> list[Entry]:
        """Return the entries for a user."""
        may_oversee = self._oversees(viewer.principal)
        return [each for each in self._entries if may_oversee or not each.oversight]

    def page(self, template: str, request: Request, viewer: Viewer | None, status: int = 200, **values: Any) -> Response:
        """Return a page, or a part of one. `values`: what the template names."""
        text = self._templates.get_template(template).render(
            entries=[] if viewer is None else self.menu(viewer),
            path=request.url.path,
            user=None if viewer is None else viewer.principal.name,
            csrf="" if viewer is None else viewer.session.csrf,
            **values,
        )
        return secured(Response(text, status, media_type="text/html"))

    def problem(self, request: Request, viewer: Viewer | None, problem: Problem) -> Response:
        """Return the page of a problem; without a login, the way to it."""
        if problem.status == 401:
            return to_login(request)
        title = HTTPStatus(problem.status).phrase if problem.status in set(HTTPStatus) else "Error"
        response = self.page("problem.html", request, viewer, problem.status, title=title, detail=str(problem))
        if "retry-after" in problem.headers:
            response.headers["retry-after"] = problem.headers["retry-after"]
        return response


def to_login(request: Request) -> Response:
    """Return the way to the log-in, and from there back to this page."""
    target = f"{request.url.path}?{request.url.query}" if request.url.query else request.url.path
    where = f"{LOGIN}?{urlencode({'next': target})}" if request.method == "GET" and _FRAGMENT not in request.headers else LOGIN
    if _FRAGMENT in request.headers:  # a part of a page: the whole page is to go
        return secured(Response(status_code=204, headers={"hx-redirect": LOGIN}))
    return secured(RedirectResponse(where, 303))


def next_of(text: str) -> str:
    """Return the page to go to after the log-in: one of ours, whatever a link says."""
    is_own = text.startswith(f"{ROOT}/") and text.isprintable() and "\\" not in text and not text.startswith(LOGIN)
    return text if is_own else ROOT


def secured(response: Response) -> Response:
    """Return the response with the headers of every page."""
    for name, value in {**_NO_STORE, **HEADERS}.items():
        response.headers.setdefault(name, value)
    return response
