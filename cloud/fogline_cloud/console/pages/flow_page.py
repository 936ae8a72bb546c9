"""The page of the flow: what it has read, what stops it, and the events that no parser could read."""

import time
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from fogline.address import shown
from fogline_cloud.api import requests
from fogline_cloud.api.context import ApiContext
from fogline_cloud.api.problems import Problem
from fogline_cloud.console.guard import Viewer
from fogline_cloud.console.one_thread import OneThread
from fogline_cloud.console.pages.line_state import FlowView, view_of
from fogline_cloud.console.rendering import Rendering
from fogline_cloud.flows.start.flow_state import read_states
from fogline_cloud.flows.tables.dead_letters import Count, DeadLetters
from fogline_cloud.flows.tables.files import tables_in
from fogline_cloud.settings import CloudSettings
from fogline_cloud.store.options import storage_of

SHOWN: Final = 20
"""Events with their bytes."""
SPANS: Final = {"1d": ("1 day", timedelta(days=1)), "7d": ("7 days", timedelta(days=7)), "30d": ("30 days", timedelta(days=30))}
_USUAL: Final = "1d"
_FRESH_S: Final = 2.0
"""An answer for so old is sent again, so that many readers cost as much as one."""


class FlowPage:
    """The handler."""

    def __init__(self, settings: CloudSettings, context: ApiContext, rendering: Rendering, thread: OneThread) -> None:
        self._settings = settings
        self._context = context
        self._rendering = rendering
        self._thread = thread
        self._known: tuple[float, FlowView] | None = None

    async def show(self, request: Request, viewer: Viewer) -> Response:
        """Show the flow, and what it could not read."""
        if not self._context.policy.oversees(viewer.principal):
            raise Problem(403, "you may not see the flow: that is for an [[admin]] of access.toml")
        requests.allow(request, "span", "reason", "parser")
        span = request.query_params.get("span", _USUAL)
        if span not in SPANS:
            raise Problem(400, f"span={shown(span)}: expected one of {', '.join(SPANS)}")
        reason, parser = request.query_params.get("reason") or None, request.query_params.get("parser") or None
        view, counts, events, why = None, list[Count](), list[dict[str, Any]](), ""
        try:
            view = await self._thread.ask(self._look)
            since = datetime.now(UTC) - SPANS[span][1]
            counts, events = await self._thread.ask(partial(self._dead, since, reason, parser))
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
            why=why,
            span=span,
            spans={name: text for name, (text, _) in SPANS.items()},
            reason=reason or "",
            parser=parser or "",
        )

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
