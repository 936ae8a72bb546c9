"""The pages of roll-outs: the form with the list of who gets the command first, the list, and the life of one."""

import asyncio
import secrets
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from fogline.address import CommandAddress, DeviceAddress, shown
from fogline.commands.command import CommandState
from fogline.process.kernel_clock import wall_clock_ms
from fogline_cloud.access.policy import Action
from fogline_cloud.api import requests
from fogline_cloud.api.context import ApiContext
from fogline_cloud.api.problems import Problem
from fogline_cloud.console.guard import Guard, Viewer
from fogline_cloud.console.live_pages import EVERY_S, LivePages
from fogline_cloud.console.rendering import PARTS, ROOT, Rendering
from fogline_cloud.console.rollouts.rollout_desk import Rollout, RolloutDesk
from fogline_cloud.console.rollouts.rollout_form import RolloutForm, digest_of, read_form
from fogline_cloud.devices.device_search import TURN

ADDRESS: Final = f"{ROOT}/rollouts"
SHOWN: Final = 50
"""Devices of a list, roll-outs of a list."""
MAX_DEVICES: Final = 20_000
"""Devices of a roll-out."""
MAX_OTHERS: Final = 100
"""Devices whose command did not succeed, on the page of a roll-out."""


class RolloutPages:
    """The handlers."""

    def __init__(self, context: ApiContext, rendering: Rendering, guard: Guard, desk: RolloutDesk, live: LivePages) -> None:
        self._context = context
        self._rendering = rendering
        self._guard = guard
        self._desk = desk
        self._live = live

    async def listing(self, request: Request, viewer: Viewer) -> Response:
        """Show the roll-outs."""
        requests.allow(request)
        found = [each for each in self._desk.all() if self._may_see(viewer, each)][:SHOWN]
        may_begin = self._desk.is_open and self._may_command(viewer, "", "")
        return self._rendering.page("rollouts.html", request, viewer, rollouts=found, may_begin=may_begin)

    async def ask(self, request: Request, viewer: Viewer) -> Response:
        """Show the form."""
        requests.allow(request, "where", "name")
        self._require_begin(viewer)
        return self._form(request, viewer, read_form(dict(request.query_params)))

    async def begin(self, request: Request, viewer: Viewer) -> Response:
        """Show who gets the command; or, if that was seen, start, and lead to the page of the roll-out."""
        requests.allow(request, "where", "name")
        self._require_begin(viewer)
        given = await self._guard.form(request, viewer)
        form = RolloutForm(id=secrets.token_hex(8))
        try:
            form = read_form(given)
            devices, left_out = await self._devices(viewer, form)
            command = form.command(self._context.tenant, devices, str(viewer.principal), wall_clock_ms())
            seen = digest_of(devices)
            if "start" not in given or form.seen != seen:
                changed = "start" in given and bool(form.seen)
                return self._form(request, viewer, form, devices=devices, left_out=left_out, seen=seen, changed=changed)
            rollout = self._desk.begin(command, viewer.session.authorization)
        except Problem as problem:
            return self._form(request, viewer, form, problem=problem)
        return RedirectResponse(f"{ADDRESS}/{rollout.command.id}", 303)

    async def show(self, request: Request, viewer: Viewer) -> Response:
        """Show a roll-out."""
        requests.allow(request)
        return self._page("rollout.html", request, viewer, secrets.token_hex(8))

    async def renew(self, request: Request, viewer: Viewer) -> Response:
        """Send the part of the page that changes."""
        requests.allow(request, "page")
        return self._page("rollout_life.html", request, viewer, request.query_params.get("page", ""))

    async def stop(self, request: Request, viewer: Viewer) -> Response:
        """Stop a roll-out, and lead to its page."""
        requests.allow(request)
        await self._guard.form(request, viewer)
        rollout = self._find(request, viewer)
        self._desk.stop(rollout, str(viewer.principal))
        return RedirectResponse(f"{ADDRESS}/{rollout.command.id}", 303)

    async def go_on(self, request: Request, viewer: Viewer) -> Response:
        """Send what is left of a roll-out of the same user, and lead to its page."""
        requests.allow(request)
        await self._guard.form(request, viewer)
        rollout = self._find(request, viewer)
        if not _is_own(viewer, rollout):
            raise Problem(403, f"only {rollout.command.created_by} can let it go on")
        self._desk.go_on(rollout, viewer.session.authorization, wall_clock_ms())
        return RedirectResponse(f"{ADDRESS}/{rollout.command.id}", 303)

    def _form(
        self,
        request: Request,
        viewer: Viewer,
        form: RolloutForm,
        *,
        devices: list[str] | None = None,
        left_out: int = 0,
        seen: str = "",
        changed: bool = False,
        problem: Problem | None = None,
    ) -> Response:
        return self._rendering.page(
            "rollout_form.html",
            request,
            viewer,
            200 if problem is None else problem.status,
            form=form,
            devices=None if devices is None else devices[:SHOWN],
            count=0 if devices is None else len(devices),
            left_out=left_out,
            seen=seen,
            changed=changed,
            why="" if problem is None else str(problem),
        )

    def _page(self, template: str, request: Request, viewer: Viewer, name: str) -> Response:
        rollout = self._find(request, viewer)
        is_running = rollout.run is not None
        now_s = asyncio.get_running_loop().time()
        renews = is_running and self._live.may_renew(viewer.session.csrf, name, now_s)
        file = rollout.file
        others = [each for each in file.verdicts.values() if each.state != CommandState.SUCCEEDED]
        return self._rendering.page(
            template,
            request,
            viewer,
            rollout=rollout,
            command=file.command,
            states=dict(sorted(file.states.items())),
            left=len(file.left),
            others=others[-MAX_OTHERS:][::-1],
            more=max(0, len(others) - MAX_OTHERS),
            may_stop=is_running and not rollout.stopped_by,
            may_go_on=not is_running and bool(file.left) and _is_own(viewer, rollout),
            renew=f"{PARTS}/rollouts/{file.command.id}?page={name}" if renews else None,
            every_s=EVERY_S,
        )

    async def _devices(self, viewer: Viewer, form: RolloutForm) -> tuple[list[str], int]:
        """Return the devices in their order, and how many others match that the user may not send the command to.

        Raises `Problem` if there are none (404), or too many (400).
        """
        wanted, names, left_out = form.filter(), [], 0
        self._context.require_records()
        policy, tenant = self._context.policy, self._context.tenant
        for number, device in enumerate(self._context.devices):
            if number % TURN == 0:
                await asyncio.sleep(0)  # other requests have their turn
            if not wanted.matches(device):
                continue
            if not policy.may(viewer.principal, Action.RECEIVE, DeviceAddress(tenant, device.name)):
                continue
            if self._may_command(viewer, device.name, form.name):
                names.append(device.name)
            else:
                left_out += 1
        if not names:
            raise Problem(404, "Devices: no device matches that you may send this command to")
        if len(names) > MAX_DEVICES:
            raise Problem(400, f"Devices: {len(names):,} match; a roll-out has at most {MAX_DEVICES:,}")
        return form.in_order(names), left_out

    def _find(self, request: Request, viewer: Viewer) -> Rollout:
        rollout_id = str(request.path_params["id"])
        rollout = self._desk.find(rollout_id)
        if rollout is None or not self._may_see(viewer, rollout):
            raise Problem(404, f"roll-out {shown(rollout_id)} is not known here")
        return rollout

    def _require_begin(self, viewer: Viewer) -> None:
        if not self._may_command(viewer, "", ""):
            raise Problem(403, "you may not send commands")
        if not self._desk.is_open:
            raise Problem(404, "the settings of the API name no folder for roll-outs: set api.rollouts")

    def _may_command(self, viewer: Viewer, device: str, name: str) -> bool:
        address = CommandAddress(self._context.tenant, device)
        return self._context.policy.may(viewer.principal, Action.SEND, address, name)

    def _may_see(self, viewer: Viewer, rollout: Rollout) -> bool:
        """Return True for whoever has started it, if they may still send its command, and for those who oversee all."""
        may_send = self._may_command(viewer, "", rollout.command.name)
        return (_is_own(viewer, rollout) and may_send) or self._context.policy.oversees(viewer.principal)


def _is_own(viewer: Viewer, rollout: Rollout) -> bool:
    return rollout.command.created_by == str(viewer.principal)
