"""The operator's page: its routes, each behind the guard."""

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from fogline_cloud.api import requests
from fogline_cloud.api.context import ApiContext
from fogline_cloud.api.problems import Problem
from fogline_cloud.console.guard import Guard, Viewer
from fogline_cloud.console.live_pages import LivePages
from fogline_cloud.console.one_thread import OneThread
from fogline_cloud.console.pages.audit_page import AuditPage
from fogline_cloud.console.pages.command_pages import CommandPages
from fogline_cloud.console.pages.coverage_page import CoveragePage
from fogline_cloud.console.pages.device_commands import DeviceCommands
from fogline_cloud.console.pages.device_page import DevicePage
from fogline_cloud.console.pages.device_rows import DeviceRows
from fogline_cloud.console.pages.fleet_page import FleetPage
from fogline_cloud.console.pages.flow_page import FlowPage
from fogline_cloud.console.pages.gateways_page import GatewaysPage
from fogline_cloud.console.pages.line_page import LinePage
from fogline_cloud.console.proof.proof_desk import ProofDesk
from fogline_cloud.console.proof.proof_page import ADDRESS as PROOF
from fogline_cloud.console.proof.proof_page import PART, ProofPage
from fogline_cloud.console.rendering import LOGIN, PARTS, ROOT, Entry, Rendering, next_of, secured
from fogline_cloud.console.rollouts.rollout_desk import RolloutDesk
from fogline_cloud.console.rollouts.rollout_pages import ADDRESS as ROLLOUTS
from fogline_cloud.console.rollouts.rollout_pages import RolloutPages
from fogline_cloud.console.static_files import ROUTE, serve_file
from fogline_cloud.devices.types_file import read_types
from fogline_cloud.settings import CloudSettings

Handler = Callable[[Request, Viewer], Awaitable[Response]]
ENTRIES = (
    Entry(f"{ROOT}/line", "Line", oversight=True),
    Entry(f"{ROOT}/gateways", "Gateways", oversight=True),
    Entry(f"{ROOT}/devices", "Devices"),
    Entry(f"{ROOT}/coverage", "Coverage", oversight=True),
    Entry(f"{ROOT}/commands", "Commands"),
    Entry(ROLLOUTS, "Roll-outs"),
    Entry(PROOF, "Proof"),
    Entry(f"{ROOT}/flow", "Flow", oversight=True),
    Entry(f"{ROOT}/audit", "Audit", oversight=True),
)
"""The menu."""


class Console:
    """The operator's page of one API process."""

    def __init__(self, settings: CloudSettings, context: ApiContext) -> None:
        self.guard = Guard(context, tls=settings.api.tls is not None)
        self._context = context
        self._rendering = Rendering(ENTRIES, context.policy.oversees)
        commands = DeviceCommands(context, {} if settings.devices.types is None else read_types(settings.devices.types))
        self._fleet = FleetPage(context, self._rendering)
        tables, kafka, bridge = OneThread("the tables"), OneThread("Kafka"), OneThread("the bridge")
        self._coverage = CoveragePage(settings, context, self._rendering, tables)
        self._gateways = GatewaysPage(settings, context, self._rendering, bridge)
        live, desk = LivePages(), ProofDesk(settings)
        context.closing.append(desk.close)
        self._device = DevicePage(context, self._rendering, DeviceRows(settings, tables), commands, desk)
        self._audit = AuditPage(settings, context, self._rendering, kafka)
        self._flow = FlowPage(settings, context, self._rendering, tables, guard=self.guard, live=live)
        self._commands = CommandPages(context, self._rendering, self.guard, commands, live)
        rollouts = RolloutDesk(context, settings.api.rollouts)
        context.closing.append(rollouts.close)
        self._rollouts = RolloutPages(context, self._rendering, self.guard, rollouts, live)
        self._proof = ProofPage(context, self._rendering, self.guard, desk, live)
        self._line = LinePage(settings, context, self._rendering, live, (kafka, tables, bridge))

    def routes(self) -> list[Route]:
        """Return the routes."""
        fleet, device, commands, proof = self._fleet, self._device, self._commands, self._proof
        return [
            Route(ROOT, self._guarded(self._home), methods=["GET"]),
            Route(LOGIN, self._open(self._ask), methods=["GET"]),
            Route(LOGIN, self._open(self._log_in), methods=["POST"]),
            Route(f"{ROOT}/logout", self._guarded(self._log_out), methods=["POST"]),
            Route(ROUTE, self._open(serve_file), methods=["GET"]),
            Route(f"{ROOT}/line", self._guarded(self._line.show), methods=["GET"]),
            Route(f"{PARTS}/line", self._guarded(self._line.renew), methods=["GET"]),
            Route(f"{ROOT}/gateways", self._guarded(self._gateways.show), methods=["GET"]),
            Route(f"{ROOT}/gateways.csv", self._guarded(self._gateways.csv), methods=["GET"]),
            Route(f"{ROOT}/coverage", self._guarded(self._coverage.show), methods=["GET"]),
            Route(f"{ROOT}/coverage.csv", self._guarded(self._coverage.csv), methods=["GET"]),
            Route(f"{ROOT}/find", self._guarded(fleet.find), methods=["GET"]),
            Route(f"{ROOT}/devices", self._guarded(fleet.listing), methods=["GET"]),
            Route(f"{ROOT}/devices.csv", self._guarded(fleet.csv), methods=["GET"]),
            Route(f"{ROOT}/devices/{{device}}", self._guarded(device.show), methods=["GET"]),
            Route(f"{ROOT}/devices/{{device}}/readings.json", self._guarded(device.readings), methods=["GET"]),
            Route(f"{ROOT}/devices/{{device}}/send", self._guarded(commands.ask), methods=["GET"]),
            Route(f"{ROOT}/devices/{{device}}/send", self._guarded(commands.send), methods=["POST"]),
            Route(f"{ROOT}/commands", self._guarded(commands.listing), methods=["GET"]),
            Route(f"{ROOT}/commands/{{id}}", self._guarded(commands.show), methods=["GET"]),
            Route(f"{PARTS}/commands/{{id}}", self._guarded(commands.renew), methods=["GET"]),
            Route(f"{ROOT}/commands/{{id}}/cancel", self._guarded(commands.cancel), methods=["POST"]),
            Route(f"{ROOT}/commands/{{id}}/approve", self._guarded(commands.approve), methods=["POST"]),
            *self._of_rollouts(),
            Route(PROOF, self._guarded(proof.show), methods=["GET"]),
            Route(PROOF, self._guarded(proof.order), methods=["POST"]),
            Route(PART, self._guarded(proof.renew), methods=["GET"]),
            Route(f"{PROOF}.jws", self._guarded(proof.document), methods=["GET"]),
            Route(f"{ROOT}/flow", self._guarded(self._flow.show), methods=["GET"]),
            Route(f"{PARTS}/redrives", self._guarded(self._flow.renew), methods=["GET"]),
            Route(f"{ROOT}/flow/redrive", self._guarded(self._flow.redrive), methods=["POST"]),
            Route(f"{ROOT}/audit", self._guarded(self._audit.show), methods=["GET"]),
            Route(f"{ROOT}/audit.csv", self._guarded(self._audit.csv), methods=["GET"]),
            Route(f"{ROOT}/{{rest:path}}", self._guarded(self._miss), methods=["GET"]),
        ]

    def _of_rollouts(self) -> list[Route]:
        pages = self._rollouts
        return [
            Route(ROLLOUTS, self._guarded(pages.listing), methods=["GET"]),
            Route(f"{ROLLOUTS}/new", self._guarded(pages.ask), methods=["GET"]),
            Route(f"{ROLLOUTS}/new", self._guarded(pages.begin), methods=["POST"]),
            Route(f"{ROLLOUTS}/{{id}}", self._guarded(pages.show), methods=["GET"]),
            Route(f"{PARTS}/rollouts/{{id}}", self._guarded(pages.renew), methods=["GET"]),
            Route(f"{ROLLOUTS}/{{id}}/stop", self._guarded(pages.stop), methods=["POST"]),
            Route(f"{ROLLOUTS}/{{id}}/go-on", self._guarded(pages.go_on), methods=["POST"]),
        ]

    def _guarded(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        """Return the handler for users who are logged in."""

        async def serve(request: Request) -> Response:
            viewer = None
            try:
                viewer = await self.guard.viewer(request)
                return secured(await handler(request, viewer))
            except Problem as problem:
                return self._rendering.problem(request, viewer, problem)

        return serve

    def _open(self, handler: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        """Return the handler for anyone."""

        async def serve(request: Request) -> Response:
            try:
                return secured(await handler(request))
            except Problem as problem:
                return self._rendering.problem(request, None, problem)

        return serve

    async def _home(self, request: Request, viewer: Viewer) -> Response:
        requests.allow(request)
        return RedirectResponse(self._rendering.menu(viewer)[0].address, 303)

    async def _miss(self, request: Request, _: Viewer) -> Response:
        raise Problem(404, f"there is no page {request.url.path}")

    async def _ask(self, request: Request) -> Response:
        requests.allow(request, "next")
        return self._login_page(request, next_of(request.query_params.get("next", "")))

    async def _log_in(self, request: Request) -> Response:
        fields = await self.guard.login_form(request)
        where, name = next_of(fields.get("next", "")), fields.get("name", "").strip()
        response = RedirectResponse(where, 303)
        try:
            await self.guard.log_in(request, response, name, fields.get("password", ""))
        except Problem as problem:
            if problem.status not in (401, 503):
                raise
            return self._login_page(request, where, name, problem)
        return response

    def _login_page(self, request: Request, where: str, name: str = "", problem: Problem | None = None) -> Response:
        page = Response()
        values = {
            "next": where,
            "name": name,
            "why": "" if problem is None else str(problem),
            "passwords": self._context.logins.has_passwords,
            "token": self.guard.login_token(request, page),
        }
        response = self._rendering.page("login.html", request, None, 200 if problem is None else problem.status, **values)
        response.raw_headers += [each for each in page.raw_headers if each[0] == b"set-cookie"]
        return response

    async def _log_out(self, request: Request, viewer: Viewer) -> Response:
        await self.guard.form(request, viewer)
        response = RedirectResponse(LOGIN, 303)
        self.guard.log_out(request, response)
        return response


def console_routes(settings: CloudSettings, context: ApiContext) -> list[Route]:
    """Return the routes of the operator's page beside those of the API."""
    return Console(settings, context).routes()
