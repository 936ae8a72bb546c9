"""The pages of commands: a form for each, the list, and the life of one as it happens."""

import asyncio
import secrets
from typing import Any
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from fogline.address import CommandAddress, shown
from fogline.commands.command import CommandState
from fogline_cloud.access.policy import Action
from fogline_cloud.api import requests
from fogline_cloud.api.command_routes import CommandRoutes
from fogline_cloud.api.context import ApiContext
from fogline_cloud.api.problems import Problem
from fogline_cloud.api.requests import MAX_KEY_CHARS, CommandRequest
from fogline_cloud.commands.approval import approval_refusal
from fogline_cloud.commands.record import CommandRecord
from fogline_cloud.console.guard import Fields, Guard, Viewer
from fogline_cloud.console.live_pages import EVERY_S, LivePages
from fogline_cloud.console.pages.argument_form import ArgumentField, arguments_of, fields_of
from fogline_cloud.console.pages.device_commands import DeviceCommands
from fogline_cloud.console.rendering import PARTS, ROOT, Rendering

SHOWN = 50
"""Commands on one page."""
TTL_S = 30.0
"""The time to live that the form begins with."""
_OPTIONS = ("durable", "idempotent", "newest_wins")


class CommandPages:
    """The handlers."""

    def __init__(
        self, context: ApiContext, rendering: Rendering, guard: Guard, commands: DeviceCommands, live: LivePages
    ) -> None:
        self._context = context
        self._rendering = rendering
        self._guard = guard
        self._of_device = commands
        self._commands = CommandRoutes(context)
        self._live = live

    async def listing(self, request: Request, viewer: Viewer) -> Response:
        """Show the newest commands."""
        requests.allow(request, "device", "state", "after")
        query = {name: value for name, value in request.query_params.items() if value}
        device, state = query.get("device"), query.get("state")
        if state is not None and state not in CommandState.__members__:
            raise Problem(400, f"state={shown(state)}: expected one of {', '.join(CommandState.__members__)}")

        def matches(record: CommandRecord) -> bool:
            return device in (None, record.device) and state in (None, record.state)

        found, after = await self._commands.select(viewer.principal, matches, SHOWN, query.get("after"))
        return self._rendering.page(
            "commands.html",
            request,
            viewer,
            commands=found,
            device=device or "",
            state=state or "",
            states=list(CommandState.__members__),
            next=None if after is None else f"{ROOT}/commands?{urlencode({**query, 'after': after})}",
        )

    async def ask(self, request: Request, viewer: Viewer) -> Response:
        """Show the form of a command."""
        requests.allow(request, "name")
        return self._form(request, viewer, request.query_params.get("name", ""), {})

    async def send(self, request: Request, viewer: Viewer) -> Response:
        """Send the command of a form, and lead to its page; or show the form again with what is wrong."""
        requests.allow(request, "name")
        device = requests.device_of(request)
        given = await self._guard.form(request, viewer)
        name = given.get("name", "")
        try:
            fields = fields_of(self._of_device.schema_of(device, name))
            wanted = _request(name, fields, given)
            record = await self._commands.place(viewer.session.user, device, wanted, _key(given))
        except Problem as problem:
            if problem.status == 401:
                raise
            return self._form(request, viewer, name, given, problem)
        return RedirectResponse(f"{ROOT}/commands/{record.id}", 303)

    async def show(self, request: Request, viewer: Viewer) -> Response:
        """Show a command."""
        requests.allow(request)
        return self._page("command.html", request, viewer, secrets.token_hex(8))

    async def renew(self, request: Request, viewer: Viewer) -> Response:
        """Send the part of a command's page that changes."""
        requests.allow(request, "page")
        return self._page("command_life.html", request, viewer, request.query_params.get("page", ""))

    async def cancel(self, request: Request, viewer: Viewer) -> Response:
        """Cancel a command, and lead to its page."""
        requests.allow(request)
        await self._guard.form(request, viewer)
        record, _ = await self._commands.withdraw(viewer.session.user, str(request.path_params["id"]))
        return RedirectResponse(f"{ROOT}/commands/{record.id}", 303)

    async def approve(self, request: Request, viewer: Viewer) -> Response:
        """Approve a command of another operator, and lead to its page."""
        requests.allow(request)
        await self._guard.form(request, viewer)
        record = await self._commands.release(viewer.session.user, str(request.path_params["id"]))
        return RedirectResponse(f"{ROOT}/commands/{record.id}", 303)

    def _page(self, template: str, request: Request, viewer: Viewer, name: str) -> Response:
        self._context.require_records()
        record = self._commands.find(viewer.principal, str(request.path_params["id"]))
        now_s = asyncio.get_running_loop().time()
        renews = not record.final and self._live.may_renew(viewer.session.csrf, name, now_s)
        address = CommandAddress(self._context.tenant, record.device)
        may_send = self._context.policy.may(viewer.principal, Action.SEND, address, record.name)
        return self._rendering.page(
            template,
            request,
            viewer,
            command=record,
            steps=self._context.commands.steps(record.id),
            may_cancel=may_send and not record.final,
            may_approve=may_send and approval_refusal(record, viewer.principal) is None,
            renew=f"{PARTS}/commands/{record.id}?{urlencode({'page': name})}" if renews else None,
            every_s=EVERY_S,
        )

    def _form(self, request: Request, viewer: Viewer, name: str, given: Fields, problem: Problem | None = None) -> Response:
        device = requests.device_of(request)
        offered = self._of_device.offered(viewer.principal, device)
        if offered is None:
            raise Problem(403, f"you may not send commands to {device}")
        name = name or next(iter(offered), "")
        return self._rendering.page(
            "command_form.html",
            request,
            viewer,
            200 if problem is None else problem.status,
            device=device,
            name=name,
            offered=offered,
            fields=fields_of(self._of_device.schema_of(device, name)),
            given=given,
            options={each: each in given if given else each == "durable" for each in _OPTIONS},
            ttl_s=given.get("ttl_s", f"{TTL_S:g}"),
            key=_key(given),
            why="" if problem is None else str(problem),
        )


def _key(form: Fields) -> str:
    """Return the key of a form, with which it is one command however often it is sent."""
    key = form.get("key", "")
    return key if key.isascii() and key.isalnum() and len(key) <= MAX_KEY_CHARS else secrets.token_hex(16)


def _request(name: str, fields: list[ArgumentField], form: Fields) -> CommandRequest:
    """Return the command of a form. Raises `Problem` (400)."""
    members: dict[str, Any] = {"name": name, **{each: each in form for each in _OPTIONS}}
    if text := form.get("ttl_s", "").strip():
        try:
            members["ttl_s"] = float(text)
        except ValueError:
            raise Problem(400, f"Time to live: {shown(text)} is not a number of seconds") from None
    data = arguments_of(fields, form)
    if data:
        members["data"] = msgspec.Raw(data)
    return requests.decode_json(msgspec.json.encode(members), CommandRequest, "the command")
