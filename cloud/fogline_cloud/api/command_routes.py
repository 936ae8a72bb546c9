"""`/v1/commands`: sends commands, and shows their states."""

import asyncio
import base64
import hashlib
import time
import uuid
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from fogline.address import CommandAddress, CommandResponse, is_identifier, shown
from fogline.commands.command import CommandState
from fogline.events.event import rfc3339
from fogline.message import Message, pack_id
from fogline.process.kernel_clock import wall_clock_ms
from fogline_cloud.access.principal import Principal
from fogline_cloud.api import requests
from fogline_cloud.api.command_index import request_of
from fogline_cloud.api.context import ApiContext
from fogline_cloud.api.logins import User
from fogline_cloud.api.problems import Problem, not_at_present
from fogline_cloud.api.requests import CommandRequest
from fogline_cloud.api.sending import approve, cancel, send
from fogline_cloud.api.user_session import REPLY_ID
from fogline_cloud.commands.client.verdict import verdict_of
from fogline_cloud.commands.record import CommandRecord
from fogline_cloud.commands.request import REQUEST, reply_owner

JSON = "application/json"
APPEAR_S = 5.0
"""The time in which a command that was accepted can be read: its record is on Kafka."""
MAX_LISTED = 200
MAX_PAGE_BYTES = 4 * 1024 * 1024
"""Replies in one page of a list; a page has at least one command."""
TURN = 500
"""Commands that are looked at in one turn of the event loop."""


class CommandRoutes:
    """The handlers of commands."""

    def __init__(self, context: ApiContext) -> None:
        self._context = context

    async def post(self, request: Request) -> Response:
        """Send a command. 201 and `Location` once it is written down; with `wait`, also its verdict if that comes in time."""
        context = self._context
        user = await context.user(request)
        requests.allow(request, "wait")
        wait_s, device = requests.wait_s(request), requests.device_of(request)
        key = requests.idempotency_key(request)
        body = await requests.read_body(request, requests.MAX_COMMAND_BYTES)
        wanted = requests.decode_json(body, CommandRequest, "the command")
        record = await self.place(user, device, wanted, key, wait_s)
        return _response(record, 201, {"location": f"/v1/commands/{record.id}"})

    async def place(
        self, user: User, device: str, wanted: CommandRequest, key: str | None = None, wait_s: float = 0.0
    ) -> CommandRecord:
        """Send a command. Return it once it is written down, with its verdict if that comes within `wait_s`.

        `key`: names the command; with the same one it is sent once. Raises `Problem`.
        """
        context = self._context
        context.require_records()
        message = message_of(context.tenant, device, wanted, key or uuid.uuid4().hex)
        draft = _draft(message, device, str(user.principal), reply_owner(user.principal))
        name = draft.operator, draft.correlation
        known = context.commands.find(name)
        _check_copy(known, draft)
        context.count(user.principal, commands=1, size_bytes=len(message.body))
        context.drafts[name] = draft
        try:
            verdict = asyncio.create_task(self._until_ended(name, wait_s)) if wait_s and known is None else None
            try:
                await self._send_or_verdict(send(user.session, message, again=True, waits=wanted.durable), verdict)
                record = await self._appeared(name)
                _check_copy(record, draft)
            finally:
                if verdict is not None:
                    verdict.cancel()
            if wait_s:
                record = await self._ended(record, wait_s)
        finally:
            context.drafts.pop(name, None)
        return record

    async def _send_or_verdict(self, sending: Any, verdict: "asyncio.Task[None] | None") -> None:
        """Wait for the outcome, or for the reply, which may come first: then the command was taken."""
        task = asyncio.ensure_future(sending)
        waiting = {task} if verdict is None else {task, verdict}
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if task.done() or verdict is None:
                await task
        finally:
            if not task.done():
                task.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def _until_ended(self, name: tuple[str, str], limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        while (left_s := deadline - time.monotonic()) > 0 and not self._context.stopping:
            record = self._context.commands.find(name)
            if record is not None and record.final:
                return
            await self._context.commands.change(name, left_s)
        await asyncio.get_running_loop().create_future()  # no verdict in time: the outcome of sending decides

    async def _appeared(self, name: tuple[str, str]) -> CommandRecord:
        deadline = time.monotonic() + APPEAR_S
        while (record := self._context.commands.find(name)) is None:
            left_s = deadline - time.monotonic()
            if left_s <= 0 or self._context.stopping:
                why = "the command is accepted, but cannot be read yet; send it again with the same Idempotency-Key"
                raise not_at_present(why)
            await self._context.commands.change(name, left_s)
        return record

    async def _ended(self, record: CommandRecord, limit_s: float) -> CommandRecord:
        """Return the command once it has a verdict, or as it is when the time is over."""
        deadline = time.monotonic() + limit_s
        while not record.final and (left_s := deadline - time.monotonic()) > 0:
            await self._context.commands.change(record.id, left_s)
            if self._context.stopping:
                raise not_at_present("the API is stopping")
            record = self._context.commands.get(record.id) or record
        return record

    async def get(self, request: Request) -> Response:
        """Show a command; with `wait`, once it has a verdict."""
        context = self._context
        user = await context.user(request)
        requests.allow(request, "wait")
        command_id, wait_s = str(request.path_params["id"]), requests.wait_s(request)
        context.require_records()
        if context.commands.get(command_id) is None and wait_s and is_identifier(command_id):
            await context.commands.change(command_id, min(wait_s, APPEAR_S))  # another API process may have just sent it
        return _response(await self._ended(self.find(user.principal, command_id), wait_s), 200)

    def find(self, principal: Principal, command_id: str) -> CommandRecord:
        """Return a command. Raises `Problem` (404) if it is not known, or none that a user may read."""
        record = self._context.commands.get(command_id)
        if record is None or not self._context.may_see(principal, record.device, record.name):
            raise Problem(404, f"command {shown(command_id)} is not known here")
        return record

    async def delete(self, request: Request) -> Response:
        """Cancel a command. 200: the device never saw it; 202: its gateway has not decided yet."""
        context = self._context
        user = await context.user(request)
        requests.allow(request)
        record, is_cancelled = await self.withdraw(user, str(request.path_params["id"]))
        return _response(record, 200 if is_cancelled else 202)

    async def withdraw(self, user: User, command_id: str) -> tuple[CommandRecord, bool]:
        """Cancel a command. Return it, and False if its gateway has not decided yet. Raises `Problem`."""
        context = self._context
        if not is_identifier(command_id):
            raise Problem(404, f"command {shown(command_id)} is not known here")
        context.require_records()
        context.count(user.principal, commands=1)
        is_cancelled = await cancel(user.session, context.tenant, command_id)
        deadline = time.monotonic() + APPEAR_S
        while (record := context.commands.get(command_id)) is None or (is_cancelled and not record.final):
            left_s = deadline - time.monotonic()
            if left_s <= 0 or context.stopping:
                raise not_at_present("the command is cancelled, but cannot be read yet")
            await context.commands.change(command_id, left_s)
        return record, is_cancelled

    async def approve(self, request: Request) -> Response:
        """Approve a command of another operator, which waits for that."""
        context = self._context
        user = await context.user(request)
        requests.allow(request)
        return _response(await self.release(user, str(request.path_params["id"])), 200)

    async def release(self, user: User, command_id: str) -> CommandRecord:
        """Approve a command of another operator. Return it as it is then. Raises `Problem`."""
        context = self._context
        if not is_identifier(command_id):
            raise Problem(404, f"command {shown(command_id)} is not known here")
        context.require_records()
        context.count(user.principal, commands=1)
        await approve(user.session, context.tenant, command_id)
        deadline = time.monotonic() + APPEAR_S
        while (record := context.commands.get(command_id)) is None or record.state is CommandState.PROPOSED:
            left_s = deadline - time.monotonic()
            if left_s <= 0 or context.stopping:
                raise not_at_present("the command is approved, but cannot be read yet")
            await context.commands.change(command_id, left_s)
        return record

    async def listing(self, request: Request) -> Response:
        """List commands, the newest first."""
        context = self._context
        user = await context.user(request)
        requests.allow(request, "device", "state", "since", "limit", "after")
        query = request.query_params
        device, state, after = query.get("device"), query.get("state"), query.get("after")
        if state is not None and state not in CommandState.__members__:
            raise Problem(400, f"state={shown(state)}: expected one of {', '.join(CommandState.__members__)}")
        since_ms, most = requests.since_ms(request), requests.limit(request, MAX_LISTED)

        def matches(record: CommandRecord) -> bool:
            return device in (None, record.device) and state in (None, record.state) and record.accepted_ms >= since_ms

        found, next_id = await self.select(user.principal, matches, most, after)
        return Response(requests.as_json({"commands": [facts_of(each) for each in found], "next": next_id}), media_type=JSON)

    async def select(
        self, principal: Principal, matches: Callable[[CommandRecord], bool], most: int, after: str | None = None
    ) -> tuple[list[CommandRecord], str | None]:
        """Return the newest commands that match and that a user may read, and `after` of the next page, if there is one.

        Raises `Problem` if `after`, the last command of the page before, is not known.
        """
        context = self._context
        context.require_records()
        if after is not None and context.commands.get(after) is None:
            raise Problem(400, f"after={shown(after)}: command {shown(after)} is not known here")
        found: list[CommandRecord] = []
        is_more, size = False, 0
        newest_first = sorted(context.commands.newest_first(), key=attrgetter("accepted_ms"), reverse=True)
        for number, record in enumerate(newest_first):
            if number % TURN == 0:
                await asyncio.sleep(0)  # other requests have their turn
            if after is not None:
                after = None if record.id == after else after
            elif matches(record) and context.may_see(principal, record.device, record.name):
                size += len(record.reply_base64)
                if is_more := len(found) == most or bool(found and size > MAX_PAGE_BYTES):
                    break
                found.append(record)
        return found, found[-1].id if is_more else None


def take_reply(context: ApiContext, operator: str, message: Message) -> None:
    """Take a reply to a command of an operator. Raises `ValueError` if it is none."""
    name = operator, pack_id(message.correlation_id if message.correlation_id is not None else "")
    context.commands.take_verdict(name, context.drafts.get(name), verdict_of(message))


def facts_of(record: CommandRecord) -> dict[str, Any]:
    """Return what the API shows of a command."""
    reply: dict[str, Any] | None = None
    if record.reply_body and not record.why:
        reply = {"content_type": record.reply_type, **_data(record.reply_body, record.reply_type)}
    return {
        "id": record.id,
        "device": record.device,
        "name": record.name,
        "state": record.state.value,
        "provisional": record.provisional,
        "status": record.status,
        "why": record.why,
        "gateway": record.gateway,
        "operator": record.operator,
        "approved_by": record.approved_by,
        "accepted": rfc3339(record.accepted_ms * 1_000_000),
        "expires": rfc3339(record.expires_ms * 1_000_000),
        "changed": rfc3339(record.changed_ms * 1_000_000),
        "reply": reply,
    }


def _data(body: bytes, content_type: str | None) -> dict[str, Any]:
    if content_type is not None and content_type.partition(";")[0].strip() == JSON:
        try:
            return {"data": msgspec.json.decode(body)}
        except (msgspec.MsgspecError, RecursionError):
            pass
    return {"data_base64": base64.b64encode(body).decode()}


def _response(record: CommandRecord, status: int, headers: dict[str, str] | None = None) -> Response:
    return Response(requests.as_json(facts_of(record)), status, headers, JSON)


def message_of(tenant: str, device: str, wanted: CommandRequest, message_id: str) -> Message:
    """Return the message of a command. Raises `Problem`."""
    data, content_type = bytes(wanted.data), wanted.content_type
    if wanted.data_base64 is not None:
        if data:
            raise Problem(400, "the command: expected `data` or `data_base64`, not both")
        data = wanted.data_base64
    elif data:
        content_type = content_type or JSON
    message = Message(
        to=str(CommandAddress(tenant, device)),
        subject=wanted.name,
        message_id=message_id,
        correlation_id=message_id,
        reply_to=None if wanted.one_way else str(CommandResponse(tenant, REPLY_ID)),
        content_type=content_type,
        body=data,
        durable=wanted.durable,
        ttl_ms=round((wanted.ttl_s or 30.0) * 1000) if wanted.durable or wanted.ttl_s else None,
        properties={"idempotent": wanted.idempotent, "newest_wins": wanted.newest_wins},
    )
    request = hashlib.blake2b(msgspec.json.encode(message), digest_size=16).hexdigest()
    return msgspec.structs.replace(message, properties={**message.properties, REQUEST: request})


def _draft(message: Message, device: str, operator: str, owner: str) -> CommandRecord:
    """Return the command as it is sent, until its record is on Kafka."""
    now_ms = wall_clock_ms()
    _, correlation = request_of(operator, str(message.message_id))
    return CommandRecord(
        id="",
        tenant="",
        gateway="",
        device=device,
        name=message.subject or "",
        state=CommandState.ACCEPTED,
        operator=operator,
        accepted_ms=now_ms,
        expires_ms=now_ms + (message.ttl_ms or 0),
        changed_ms=now_ms,
        digest="",
        correlation=correlation,
        reply_to=REPLY_ID if message.reply_to else "",
        reply_owner=owner,
        durable=message.durable,
        idempotent=message.properties.get("idempotent") is True,
        request=str(message.properties[REQUEST]),
    )


def _check_copy(known: CommandRecord | None, draft: CommandRecord) -> None:
    """Raise `Problem` (409) if the key names a command that another request has made: the bridge compares a part of it."""
    if known is not None and (known.reply_to != draft.reply_to or known.request not in ("", draft.request)):
        raise Problem(409, f"command {known.id} is known with another body")
