"""The page of the flow: what it has read, what stops it, slow parsers, and the events that no parser could read.

An order to parse such events again is put beside the tables, after the bridge has allowed it and written it to the audit.
"""

import asyncio
import secrets
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

import pyarrow.compute as pc
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from fogline.address import FlowAddress, shown
from fogline.message import Message
from fogline_cloud.api import requests
from fogline_cloud.api.context import ApiContext
from fogline_cloud.api.problems import Problem, not_at_present
from fogline_cloud.api.sending import send
from fogline_cloud.console.guard import Fields, Guard, Viewer
from fogline_cloud.console.live_pages import EVERY_S, LivePages
from fogline_cloud.console.one_thread import OneThread, within_limit
from fogline_cloud.console.pages.line_state import FlowView, view_of
from fogline_cloud.console.pages.parser_times import COLUMNS, ParserTime, parser_times
from fogline_cloud.console.rendering import PARTS, ROOT, Rendering
from fogline_cloud.flows.orders.redrive_orders import RedriveOrder, RedriveOrders
from fogline_cloud.flows.start.flow_state import read_states
from fogline_cloud.flows.tables.dead_letters import NOT_PARSED, Count, DeadLetters
from fogline_cloud.flows.tables.files import tables_in
from fogline_cloud.flows.tables.table_log import TableLog
from fogline_cloud.settings import CloudSettings
from fogline_cloud.store.options import storage_of

SHOWN: Final = 20
"""Events with their bytes."""
ORDERS: Final = 10
"""Orders to parse events again, the newest."""
MAX_WAITING: Final = 8
"""Orders that wait for the flow. Further ones get 503."""
SPANS: Final = {"1d": ("1 day", timedelta(days=1)), "7d": ("7 days", timedelta(days=7)), "30d": ("30 days", timedelta(days=30))}
_USUAL: Final = "1d"
_FRESH_S: Final = 2.0
"""An answer for so old is sent again, so that many readers cost as much as one."""
_MAX_CHARS: Final = 200


class FlowPage:
    """The handlers."""

    def __init__(
        self,
        settings: CloudSettings,
        context: ApiContext,
        rendering: Rendering,
        thread: OneThread,
        *,
        guard: Guard,
        live: LivePages,
    ) -> None:
        self._settings = settings
        self._context = context
        self._rendering = rendering
        self._guard = guard
        self._live = live
        self._thread = thread
        self._orders = RedriveOrders(settings)
        self._known: tuple[float, FlowView] | None = None

    async def show(self, request: Request, viewer: Viewer) -> Response:
        """Show the flow, slow parsers, and what it could not read."""
        self._require_oversight(viewer)
        requests.allow(request, "span", "reason", "parser")
        span = _span(request.query_params.get("span", _USUAL))
        reason, parser = request.query_params.get("reason") or None, request.query_params.get("parser") or None
        view, counts, events, times, why = None, list[Count](), list[dict[str, Any]](), list[ParserTime](), ""
        try:
            view = await self._thread.ask(self._look)
            since = datetime.now(UTC) - SPANS[span][1]
            counts, events = await self._thread.ask(partial(self._dead, since, reason, parser))
            times = await self._thread.ask(partial(self._times, since))
        except Problem as problem:
            why = str(problem)
        return self._rendering.page(
            "flow.html",
            request,
            viewer,
            flow=self._settings.flow.name,
            view=view,
            now_s=time.time(),
            counts=counts,
            events=events,
            times=times,
            limit_us=self._settings.flow.parse_limit_ms * 1000,
            why=why,
            span=span,
            spans={name: text for name, (text, _) in SPANS.items()},
            reason=reason or "",
            parser=parser or "",
            **await self._redrives(viewer, secrets.token_hex(8)),
        )

    async def renew(self, request: Request, viewer: Viewer) -> Response:
        """Send the part of the page that says what came of orders."""
        self._require_oversight(viewer)
        requests.allow(request, "page")
        found = await self._redrives(viewer, request.query_params.get("page", ""))
        return self._rendering.page("redrives.html", request, viewer, **found)

    async def redrive(self, request: Request, viewer: Viewer) -> Response:
        """Order that events are parsed again, and lead to the page."""
        requests.allow(request)
        order = _order(await self._guard.form(request, viewer), viewer)
        to = str(FlowAddress(self._context.tenant, self._settings.flow.name))
        notice = Message(to=to, subject="redrive", properties={"which": order.text})
        await send(viewer.session.user.session, notice, again=True, waits=True)
        await self._thread.ask(partial(self._put, order))
        return RedirectResponse(f"{ROOT}/flow#redrives", 303)

    def _require_oversight(self, viewer: Viewer) -> None:
        if not self._context.policy.oversees(viewer.principal):
            raise Problem(403, "you may not see the flow: that is for an [[admin]] of access.toml")

    async def _redrives(self, viewer: Viewer, name: str) -> dict[str, Any]:
        """Return what the template of the orders names."""
        orders, problem = [], ""
        try:
            orders = await self._thread.ask(partial(self._orders.newest, ORDERS))
        except Problem as error:
            problem = str(error)
        now_s, waits = asyncio.get_running_loop().time(), any(end is None for _, end in orders)
        renews = waits and self._live.may_renew(viewer.session.csrf, name, now_s)
        renew = f"{PARTS}/redrives?page={name}" if renews else None
        return {"orders": orders, "orders_problem": problem, "renew": renew, "every_s": EVERY_S}

    def _put(self, order: RedriveOrder) -> None:
        """Put an order beside the tables. On the thread."""
        if len(self._orders.waiting()) >= MAX_WAITING:
            raise not_at_present(f"{MAX_WAITING} orders to parse events again wait for the flow already")
        self._orders.put(order)

    def _look(self) -> FlowView:
        """Return the state of the flow. On the thread."""
        now_s = time.time()
        if self._known is None or now_s - self._known[0] > _FRESH_S:
            self._known = now_s, view_of(read_states(self._settings), now_s)
        return self._known[1]

    def _dead(self, since: datetime, reason: str | None, parser: str | None) -> tuple[list[Count], list[dict[str, Any]]]:
        """Return what was not parsed, counted, and the newest of it with the bytes. On the thread."""
        tables = tables_in(self._settings.flow.tables, storage_of(self._settings))
        counts = DeadLetters(tables.events, self._settings.flow.name, since=since).counts()
        newest = DeadLetters(tables.events, self._settings.flow.name, since=since, reason=reason, parser=parser).newest(SHOWN)
        return counts, newest[::-1]

    def _times(self, since: datetime) -> list[ParserTime]:
        """Return what parsers took. On the thread."""
        events = TableLog("events", tables_in(self._settings.flow.tables, storage_of(self._settings)).events)
        where = (pc.field("day") >= since.date()) & (pc.field("ingested") >= since) & pc.field("parse_us").is_valid()
        where &= pc.field("flow") == self._settings.flow.name
        scanner = events.rows().scanner(list(COLUMNS), filter=where, use_threads=False)
        return parser_times(within_limit(scanner.to_batches()))


def _span(text: str) -> str:
    if text not in SPANS:
        raise Problem(400, f"span={shown(text)}: expected one of {', '.join(SPANS)}")
    return text


def _order(form: Fields, viewer: Viewer) -> RedriveOrder:
    """Return the order of a form. Raises `Problem` (400)."""
    outcome, now = form.get("outcome", ""), datetime.now(UTC)
    if outcome not in NOT_PARSED:
        raise Problem(400, f"outcome={shown(outcome)}: expected one of {', '.join(sorted(NOT_PARSED))}")
    reason, parser = (form.get(name, "") or None for name in ("reason", "parser"))
    if any(each is not None and len(each) > _MAX_CHARS for each in (reason, parser)):
        raise Problem(400, f"reason and parser have at most {_MAX_CHARS} characters")
    since = now - SPANS[_span(form.get("span", _USUAL))][1]
    return RedriveOrder(
        at_ms=int(now.timestamp() * 1000),
        who=str(viewer.principal),
        outcomes=[outcome],
        since_ms=int(since.timestamp() * 1000),
        reason=reason,
        parser=parser,
    )
