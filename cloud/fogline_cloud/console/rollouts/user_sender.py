"""Sends the commands of a roll-out as the HTTP API sends a command: with the rights, the quota and the audit of its user."""

import asyncio
from typing import Final

import msgspec

from fogline.commands.command import CommandState, Status
from fogline.errors import Unreachable
from fogline.process.kernel_clock import wall_clock_ms
from fogline_cloud.api.command_routes import CommandRoutes
from fogline_cloud.api.context import ApiContext
from fogline_cloud.api.logins import User
from fogline_cloud.api.problems import Problem
from fogline_cloud.api.requests import CommandRequest
from fogline_cloud.api.sending import cancel_message
from fogline_cloud.commands.client.operator import DOUBT_S, Ask
from fogline_cloud.commands.client.verdict import CancelVerdict, CommandVerdict
from fogline_cloud.commands.record import CommandRecord

LOOK_S: Final = 60.0
RETRY_S: Final = 1.0
"""The pause before a command is sent again that no bridge could take, or that is over the quota."""
_AGAIN: Final = {429, 503}


class UserSender:
    """Sends in the name of the user whose login is `authorization`. Used on the loop. See `GroupSender`.

    Raises `Unreachable` if the user's login is over, or the API stops: the roll-out can go on later.
    """

    def __init__(self, context: ApiContext, authorization: str) -> None:
        self._context = context
        self._authorization = authorization
        self._commands = CommandRoutes(context)

    async def request(self, ask: Ask) -> CommandVerdict:
        """Send a command until a bridge has taken it, and return its verdict. Cancelling stops the wait, not the command."""
        loop = asyncio.get_running_loop()
        give_up_s = loop.time() + (ask.ttl_s or 0) + DOUBT_S
        wanted = CommandRequest(
            name=ask.name,
            data=msgspec.Raw(ask.data),
            content_type=ask.content_type,
            ttl_s=ask.ttl_s,
            idempotent=ask.idempotent,
            newest_wins=ask.newest_wins,
        )
        while True:
            try:
                record = await self._commands.place(await self._user(), ask.device, wanted, ask.message_id)
                break
            except Problem as problem:
                if problem.status not in _AGAIN or self._context.stopping:
                    return CommandVerdict(CommandState.REJECTED, problem.status, why=str(problem))
                if loop.time() > give_up_s:
                    return CommandVerdict(CommandState.IN_DOUBT, int(Status.NO_ANSWER), provisional=True, why=str(problem))
                await asyncio.sleep(RETRY_S)
        return await self._verdict(record)

    async def cancel(self, *, message_id: str) -> CancelVerdict:
        """Cancel a command of the user, whether it was read back yet or not. Asks again until its gateway has decided."""
        while True:
            user = await self._user()
            try:
                return await cancel_message(user.session, self._context.tenant, message_id)
            except Problem as problem:
                if problem.status not in _AGAIN or self._context.stopping:
                    return CancelVerdict(None, problem.status, str(problem))
            await asyncio.sleep(RETRY_S)

    async def _verdict(self, record: CommandRecord) -> CommandVerdict:
        while not record.state.terminal:
            if wall_clock_ms() > record.expires_ms + DOUBT_S * 1000:
                return CommandVerdict(CommandState.IN_DOUBT, int(Status.NO_ANSWER), record.id, why="its end was not heard of")
            await self._context.commands.change(record.id, LOOK_S)
            if self._context.stopping:
                raise Unreachable("the API is stopping")
            record = self._context.commands.get(record.id) or record
        return CommandVerdict(
            record.state, record.status or 0, record.id, record.reply_body, provisional=record.provisional, why=record.why
        )

    async def _user(self) -> User:
        if self._context.stopping:
            raise Unreachable("the API is stopping")
        try:
            return await self._context.logins.user(self._authorization, "")
        except Problem as problem:
            if problem.status == 401:
                raise Unreachable("the login of its user is over") from None
            raise
