"""`/v1/parsers`: deployments of parsers by the teams that write them (docs/parsers.md)."""

import re
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from fogline.address import ParserAddress, is_identifier, shown
from fogline.errors import Misconfigured, Poison, Unreachable
from fogline.events.event import rfc3339
from fogline.message import Message
from fogline_cloud.access.policy import Action
from fogline_cloud.api import requests
from fogline_cloud.api.context import ApiContext
from fogline_cloud.api.logins import User
from fogline_cloud.api.problems import Problem, not_at_present
from fogline_cloud.api.sending import send
from fogline_cloud.flows.deployed.parser_set import DeployedParser, ParserEntry
from fogline_cloud.flows.deployed.wheel import MAX_WHEEL_BYTES
from fogline_cloud.parser_kit.deploying import CheckFailed

JSON = "application/json"
MAX_ENTRIES = 100
"""Entries of the log that are listed: the newest ones."""
_STATUS = {"wheel": 422, "conflict": 409, "unknown-parser": 404}
_CONTENT_TYPES = re.compile(r"[!-+\--~]{1,128}(,[!-+\--~]{1,128}){0,19}", re.ASCII)
_FLAGS = {"true": True, "false": False, None: False}


class ParserRoutes:
    """The handlers of parsers. The bridge decides about each change, and writes it to the audit."""

    def __init__(self, context: ApiContext) -> None:
        self._context = context

    async def listing(self, request: Request) -> Response:
        """Show the deployed parsers that the user may deploy, and the newest changes of them."""
        user = await self._context.user(request)
        requests.allow(request)
        try:
            history = await self._context.deployments.history()
        except (Misconfigured, Unreachable) as error:
            raise not_at_present(str(error)) from None
        mine = [each for each in history if self._may(user, each.name)]
        now = history[-1].parsers if history else {}
        parsers = [{"name": name, **_facts(each)} for name, each in sorted(now.items()) if self._may(user, name)]
        return _response({"parsers": parsers, "changes": [_change(each) for each in reversed(mine[-MAX_ENTRIES:])]})

    async def put(self, request: Request) -> Response:
        """Deploy the wheel in the body. 200 once the next micro-batch of a running flow takes it."""
        user = await self._context.user(request)
        requests.allow(request, "content_types", "accept_dead")
        name = await self._require(user, request, "deploy")
        content_types, accept_dead = _options(request)
        data = await requests.read_body(request, MAX_WHEEL_BYTES)

        async def allow(digest: str) -> None:
            await self._note(user, name, "deploy", digest)

        try:
            entry, check = await self._context.deployments.deploy(
                name, data, content_types, str(user.principal), allow, accept_dead=accept_dead
            )
        except CheckFailed as error:
            raise Problem(422, f"the check of the parser failed: {error}"[:4000]) from None
        except (Poison, Misconfigured, Unreachable) as error:
            raise _problem(error) from None
        return _response({**_change(entry), "check": msgspec.to_builtins(check)})

    async def roll_back(self, request: Request) -> Response:
        """Take the parser again that was in use before the present one."""
        user = await self._context.user(request)
        requests.allow(request)
        name = await self._require(user, request, "rollback")

        async def allow(digest: str) -> None:
            await self._note(user, name, "rollback", digest)

        try:
            entry = await self._context.deployments.roll_back(name, str(user.principal), allow)
        except (Poison, Misconfigured, Unreachable) as error:
            raise _problem(error) from None
        return _response(_change(entry))

    def _may(self, user: User, name: str) -> bool:
        context = self._context
        return context.policy.may(user.principal, Action.SEND, ParserAddress(context.tenant, name))

    async def _require(self, user: User, request: Request, change: str) -> str:
        """Return the parser in the path. Raises `Problem` (403) if the user may not deploy it; the audit has that too."""
        name = str(request.path_params["parser"])
        if not is_identifier(name):
            raise Problem(400, f"parser {shown(name)} is no name of a parser")
        if not self._may(user, name):
            await self._note(user, name, change, "")
            raise Problem(403, f"{user.principal} may not deploy parser {name}")
        return name

    async def _note(self, user: User, name: str, change: str, digest: str) -> None:
        """Ask the bridge, which writes its decision to the audit. Raises `Problem`."""
        to = str(ParserAddress(self._context.tenant, name))
        await send(user.session, Message(to=to, subject=change, properties={"digest": digest}), again=True, waits=True)


def _options(request: Request) -> tuple[list[str], bool]:
    kinds, accept = (request.query_params.get(each) for each in ("content_types", "accept_dead"))
    if kinds is not None and not _CONTENT_TYPES.fullmatch(kinds):
        raise Problem(400, "content_types: expected up to 20 media types with commas between them")
    if accept not in _FLAGS:
        raise Problem(400, "accept_dead: expected true or false")
    return kinds.split(",") if kinds else [], _FLAGS[accept]


def _problem(error: Exception) -> Problem:
    if isinstance(error, Poison):
        return Problem(_STATUS.get(error.reason, 400), str(error))
    return not_at_present(str(error))


def _facts(parser: DeployedParser) -> dict[str, Any]:
    return {
        "digest": parser.digest or None,
        "former": parser.former or None,
        "content_types": list(parser.content_types),
    }


def _change(entry: ParserEntry) -> dict[str, Any]:
    return {
        "number": entry.number,
        "time": rfc3339(entry.at_ms * 1_000_000),
        "who": entry.who,
        "change": entry.change.value,
        "name": entry.name,
        "digest": entry.digest or None,
        "why": entry.why,
    }


def _response(body: dict[str, Any]) -> Response:
    return Response(requests.as_json(body), media_type=JSON)
