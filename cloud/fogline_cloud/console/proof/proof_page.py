"""The page of the proof: is a day complete, for all devices or for one, and why not."""

import asyncio
import secrets
from datetime import UTC, date, datetime, timedelta
from typing import Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from fogline.address import Reports, addressed_device, shown
from fogline.errors import Poison
from fogline.events.event import Lane
from fogline_cloud.access.policy import Action
from fogline_cloud.api import requests
from fogline_cloud.api.context import ApiContext
from fogline_cloud.api.problems import Problem
from fogline_cloud.console.guard import Fields, Guard, Viewer
from fogline_cloud.console.live_pages import EVERY_S, LivePages
from fogline_cloud.console.proof.proof_desk import ProofDesk
from fogline_cloud.console.rendering import PARTS, ROOT, Rendering

ADDRESS: Final = f"{ROOT}/proof"
PART: Final = f"{PARTS}/proof"
JOSE: Final = "application/jose"
"""RFC 7515, section 9.2.1."""


class ProofPage:
    """The handlers."""

    def __init__(self, context: ApiContext, rendering: Rendering, guard: Guard, desk: ProofDesk, live: LivePages) -> None:
        self._context = context
        self._rendering = rendering
        self._guard = guard
        self._desk = desk
        self._live = live

    async def show(self, request: Request, viewer: Viewer) -> Response:
        """Show the form, and what the user asked for last."""
        requests.allow(request, "device", "day")
        return self._page("proof.html", request, viewer, given=dict(request.query_params))

    async def renew(self, request: Request, viewer: Viewer) -> Response:
        """Send the part of the page that changes."""
        requests.allow(request, "page")
        return self._page("proof_result.html", request, viewer, given={})

    async def order(self, request: Request, viewer: Viewer) -> Response:
        """Begin to make a proof, and lead to the page; or show the form again with what is wrong."""
        requests.allow(request)
        given = await self._guard.form(request, viewer)
        try:
            day, device = _day(given), _device(given)
            self._require_right(viewer, device)
            self._desk.order(str(viewer.principal), day, device)
        except Problem as problem:
            return self._page("proof.html", request, viewer, given=given, problem=problem)
        return RedirectResponse(ADDRESS, 303)

    async def document(self, request: Request, viewer: Viewer) -> Response:
        """Send the signed document."""
        requests.allow(request)
        order = self._desk.newest(str(viewer.principal))
        if order is None or order.made is None or not order.made.signed:
            raise Problem(404, "there is no signed document: ask for a proof first")
        self._require_right(viewer, order.device)
        name = f"proof-{order.day.isoformat()}{'-' + order.device if order.device else ''}.jws"
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        return Response(order.made.signed + "\n", headers=headers, media_type=JOSE)

    def _require_right(self, viewer: Viewer, device: str | None) -> None:
        """Raise `Problem` (403) unless the viewer may receive the events of the device, or oversees all."""
        policy = self._context.policy
        if policy.oversees(viewer.principal):
            return
        if device is None:
            raise Problem(403, "a proof for all devices is for an [[admin]] of access.toml: name a device")
        if not policy.may(viewer.principal, Action.RECEIVE, Reports(Lane.TELEMETRY.value, self._context.tenant, device)):
            raise Problem(403, f"you may not receive the events of {device}")

    def _page(
        self, template: str, request: Request, viewer: Viewer, *, given: Fields, problem: Problem | None = None
    ) -> Response:
        order = self._desk.newest(str(viewer.principal))
        now_s, name = asyncio.get_running_loop().time(), request.query_params.get("page") or secrets.token_hex(8)
        renews = order is not None and not order.is_over and self._live.may_renew(viewer.session.csrf, name, now_s)
        yesterday = datetime.now(UTC).date() - timedelta(days=1)
        return self._rendering.page(
            template,
            request,
            viewer,
            200 if problem is None else problem.status,
            day=given.get("day") or yesterday.isoformat(),
            device=given.get("device", ""),
            problem="" if problem is None else str(problem),
            order=order,
            renew=f"{PART}?{urlencode({'page': name})}" if renews else None,
            every_s=EVERY_S,
            address=ADDRESS,
        )


def _day(form: Fields) -> date:
    text = form.get("day", "")
    try:
        found = date.fromisoformat(text.strip())
    except ValueError:
        raise Problem(400, f"Day: {shown(text)} is not a day such as 2026-11-27") from None
    if found > datetime.now(UTC).date():
        raise Problem(400, f"Day: {found.isoformat()} has not begun")
    return found


def _device(form: Fields) -> str | None:
    text = form.get("device", "").strip()
    if not text:
        return None
    try:
        return addressed_device(text, "device")
    except Poison as error:
        raise Problem(400, f"Device: {error}") from None
