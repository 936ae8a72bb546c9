"""The Python client of operators: sends commands to devices and returns their verdicts.

    async with Operator("127.0.0.1", 5672, "acme") as operator:
        verdict = await operator.request(Ask("lamp-1", "switch", b'{"on": true}', "application/json"))
        print(verdict.state, verdict.status, verdict.data)

An `Operator` sends any number of commands over one AMQP connection, and reconnects when the connection is lost. It resends
each command under the same message id until a verdict arrives. Bridge and gateway recognise duplicates by that id, so that
no command runs twice unless it is idempotent.
"""

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Self

from fogline import address
from fogline.amqp.backoff import Backoff
from fogline.amqp.client import AmqpClient, Settle
from fogline.amqp.outcome import ACCEPTED, RELEASED, RESOURCE_LIMIT, UNAUTHORIZED, DeliveryState, Outcome
from fogline.amqp.refusal import refusal_in
from fogline.amqp.security import ClientSecurity
from fogline.amqp.wire import decode
from fogline.commands.command import EXPIRED, CommandState, Status
from fogline.connection_clock import monotonic_ms
from fogline.errors import Misconfigured, NotSent, Poison, Unreachable
from fogline.message import Message
from fogline.process.cancellation import end_tasks
from fogline_cloud.commands.client.id_notice import PROPOSED, TELL_ID, is_notice_of_id
from fogline_cloud.commands.client.refusals import NOT_CONNECTED, status_of
from fogline_cloud.commands.client.verdict import (
    ApprovalVerdict,
    CancelVerdict,
    CommandVerdict,
    approval_verdict,
    cancel_verdict,
    verdict_of,
)

RETRY_S = 0.5
"""The pause before a command is sent again that the bridge could not take at the time."""
DOUBT_S = 60.0
"""How long after its time to live a command that a bridge may have taken is still sent, to learn what became of it."""
CREDIT = 100
"""Replies that the bridge may send before this side settles them."""

_log = logging.getLogger("fogline.operator")


@dataclass(frozen=True, slots=True)
class Ask:
    """A command to send to `device`: the operation `name`, with the arguments `data` of type `content_type`.

    It expires after `ttl_s` seconds; `None` leaves the time to the bridge. A `durable` command with a `ttl_s` waits for an
    absent device. Any other command is direct: it is delivered now, or rejected with status 503. `idempotent` lets the
    gateway run it again if it does not know whether the device ran it. With `reply=False` the device gives no reply. With
    `newest_wins` a durable command replaces those of the same device and name that still wait: they end CANCELLED.

    `message_id` identifies the command; two requests in progress must not share one. By default each `request` makes a new
    id. The same id from an `Operator` with the same name and reply id continues the command after a restart.
    """

    device: str
    name: str
    data: bytes = b""
    content_type: str | None = None
    ttl_s: float | None = 30.0
    durable: bool = True
    idempotent: bool = False
    newest_wins: bool = False
    reply: bool = True
    message_id: str | None = None

    @property
    def waits(self) -> bool:
        """True if the command waits for an absent device."""
        return self.durable and self.ttl_s is not None


@dataclass(slots=True)
class _Pending:
    """A command without a verdict. `maybe_taken`: a bridge has taken a copy, or may have: its outcome is unknown."""

    message: Message
    ask: Ask
    verdict: "asyncio.Future[CommandVerdict]"
    give_up_at: float
    on_id: Callable[[str, bool], None] | None = None
    maybe_taken: bool = False
    retry: asyncio.TimerHandle | None = None


@dataclass(slots=True)
class _Attachment:
    """Whether the bridge takes commands on this connection. `decided`: it does, refuses the operator, or is not asked."""

    decided: asyncio.Event = field(default_factory=asyncio.Event)
    accepted: bool = False
    refused: str = ""

    def accept(self) -> None:
        """Note that the bridge has accepted the link, because it grants credit."""
        self.accepted, self.refused = True, ""
        self.decided.set()

    def end(self, why: str) -> str:
        """Note the end of the connection. Returns the bridge's words if it refuses the operator."""
        self.accepted, self.refused = False, refusal_in(why)
        if self.refused:
            self.decided.set()
        else:
            self.decided.clear()
        return self.refused


class Operator:
    """A connection to the bridge at `host`:`port`, as an asynchronous context manager. Use it on one event loop.

    `name` is the AMQP container id; by default each `Operator` makes a new one. `reply_id` names the address of the replies,
    by default `name`. The bridge keeps replies that were not delivered; a program that restarts with the same `name`,
    `reply_id` and message ids gets them. `security`: by default plain text, for a bridge on loopback. `why` is the reason
    why the last connection failed or ended. If the bridge refuses the operator (its name, password, certificate or tenant),
    calls in progress raise `Misconfigured`, unless a bridge may have their command; the `Operator` goes on to connect.
    """

    def __init__(
        self,
        host: str,
        port: int,
        tenant: str,
        *,
        name: str = "",
        reply_id: str = "",
        security: ClientSecurity | None = None,
    ) -> None:
        self._endpoint = (host, port)
        self._security = security or ClientSecurity()
        self._tenant = tenant
        self._name = name or f"operator-{uuid.uuid4().hex[:12]}"
        self._reply_to = address.CommandResponse(tenant, reply_id or self._name)
        self._pending: dict[str, _Pending] = {}
        self._client: AmqpClient | None = None  # while it is attached
        self._task: asyncio.Task[None] | None = None
        self._attachment = _Attachment()
        self._closing = False
        self.why = ""

    async def __aenter__(self) -> Self:
        """Start to connect. `request` may be called at once: its command waits for the connection."""
        self._task = asyncio.create_task(self._run(), name="operator")
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connection. Every `request` in progress raises `Unreachable`."""
        self._closing = True
        self._attachment.decided.set()
        if self._task is not None:
            await end_tasks(self._task)
        for each in self._pending.values():
            if not each.verdict.done():
                each.verdict.set_exception(Unreachable("the operator's connection was closed"))

    async def attached(self) -> None:
        """Wait until the bridge takes commands. Safe to cancel; `why` then gives the reason for the delay.

        Raises `Misconfigured` if it refuses this operator.
        """
        await self._attachment.decided.wait()
        if self._attachment.refused:
            raise Misconfigured(self._attachment.refused)

    async def request(self, ask: Ask, on_id: Callable[[str, bool], None] | None = None) -> CommandVerdict:
        """Send a command and return its verdict. Raises `Unreachable` if the `Operator` is closed first, and `Misconfigured`.

        It resends until there is a verdict, so limit the wait yourself. Each copy has what is left of the time to live.
        Cancelling stops the wait, but not the command. `on_id` gets the command's id as soon as a bridge has read the command;
        a command without a reply has none. Its second argument: the command waits for the approval of a second operator.
        """
        message_id = ask.message_id or uuid.uuid4().hex
        message = Message(
            to=str(address.CommandAddress(self._tenant, ask.device)),
            subject=ask.name,
            message_id=message_id,
            correlation_id=message_id,
            reply_to=str(self._reply_to) if ask.reply else None,
            content_type=ask.content_type,
            body=ask.data,
            durable=ask.durable,
            ttl_ms=round(ask.ttl_s * 1000) if ask.ttl_s is not None else None,
            properties={"idempotent": ask.idempotent, "newest_wins": ask.newest_wins, TELL_ID: on_id is not None},
        )
        loop = asyncio.get_running_loop()
        pending = _Pending(message, ask, loop.create_future(), loop.time() + (ask.ttl_s or 0), on_id)
        self._pending[message_id] = pending
        ttl = loop.call_at(pending.give_up_at, lambda: self._end_if_not_sent(pending))
        try:
            self._send(pending)
            return await pending.verdict
        finally:
            ttl.cancel()
            del self._pending[message_id]
            if pending.retry is not None:
                pending.retry.cancel()

    async def cancel(self, command_id: str = "", *, message_id: str = "", reply: bool = True) -> CancelVerdict:
        """Cancel a command, and return its end. Raises `Unreachable` if the `Operator` is closed first, and `Misconfigured`.

        Give the command's id; or the `message_id` of this operator's own command, with `reply` as in its `Ask`. The request is
        sent again until the command is over, so limit the wait yourself. Cancelling the call stops only the wait.
        """
        request = Message(
            to=str(address.CommandAddress(self._tenant, "")),
            correlation_id=message_id or None,
            reply_to=str(self._reply_to) if reply else None,
            properties={"cancel": True if message_id else command_id},
        )
        return cancel_verdict(await self._decided(request))

    async def approve(self, command_id: str) -> ApprovalVerdict:
        """Approve a command of another operator, which waits for that. Raises, and may be cancelled, as `cancel` does."""
        request = Message(to=str(address.CommandAddress(self._tenant, "")), properties={"approve": command_id})
        return approval_verdict(await self._decided(request))

    async def _decided(self, request: Message) -> Outcome:
        """Send a request again until a bridge has accepted or rejected it."""
        while True:
            await self.attached()
            if self._closing:
                raise Unreachable("the operator's connection was closed")
            try:
                outcome = await self._client.send(request) if self._client is not None else RELEASED
            except Unreachable:
                outcome = RELEASED
            if outcome.state in (DeliveryState.ACCEPTED, DeliveryState.REJECTED):
                return outcome
            await asyncio.sleep(RETRY_S)

    def _send(self, pending: _Pending) -> None:
        if self._client is None or pending.verdict.done():
            return
        ends_ms: int | None = None
        if pending.message.ttl_ms is not None:
            left_s = pending.give_up_at - asyncio.get_running_loop().time()
            if left_s <= 0 and not pending.maybe_taken:
                pending.verdict.set_result(_NOT_IN_TIME)
                return
            ends_ms = monotonic_ms() + round(left_s * 1000)
        self._client.send(pending.message, ends_ms).add_done_callback(lambda sent: self._on_outcome(pending, sent))

    def _end_if_not_sent(self, pending: _Pending) -> None:
        """End a command whose time to live is over while no bridge is connected, and none can have it."""
        connected = self._client is not None and not self._client.why
        if pending.message.ttl_ms is not None and not connected and not pending.maybe_taken and not pending.verdict.done():
            pending.verdict.set_result(_NOT_IN_TIME)

    def _on_outcome(self, pending: _Pending, future: "asyncio.Future[Outcome]") -> None:
        if pending.verdict.done() or future.cancelled():
            return
        if isinstance(error := future.exception(), Unreachable):
            pending.maybe_taken = pending.maybe_taken or not isinstance(error, NotSent)
            return
        outcome, loop = future.result(), asyncio.get_running_loop()
        pending.maybe_taken = pending.maybe_taken or outcome.state in (DeliveryState.ACCEPTED, DeliveryState.MODIFIED)
        patience_s = DOUBT_S if pending.maybe_taken else 0.0
        verdict = _verdict_on(pending, outcome, expired=loop.time() > pending.give_up_at + patience_s)
        if verdict is not None:
            pending.verdict.set_result(verdict)
        elif outcome.state is not DeliveryState.ACCEPTED:
            pending.retry = loop.call_later(RETRY_S, self._send, pending)

    async def _run(self) -> None:
        backoff = Backoff(base_s=0.2, cap_s=5.0)
        host, port = self._endpoint
        logged = ""
        while True:
            client = AmqpClient(self._name, {"tenant": self._tenant}, self._security)
            try:
                async with client:
                    await client.open(host, port)
                    self._attach(client)
                    await asyncio.wait([client.over])
            except Unreachable as error:
                self.why = str(error)
            finally:
                self._client = None
            if client.why:
                self.why = f"the connection to {host}:{port} ended: {client.why}"
            _log.log(logging.DEBUG if self.why == logged else logging.INFO, "%s", self.why)
            logged = self.why
            if self._attachment.accepted:
                backoff.stable()
            if refused := self._attachment.end(self.why):
                _refuse(self._pending.values(), refused)
            await asyncio.sleep(backoff.next_s())

    def _attach(self, client: AmqpClient) -> None:
        """Attach the links, and send every command that has no verdict yet."""
        client.receive("replies", str(self._reply_to), CREDIT, self._take)
        client.attach("commands", str(address.CommandAddress(self._tenant, ""))).on_credit = self._attachment.accept
        self._client = client
        for pending in list(self._pending.values()):
            self._send(pending)

    def _take(self, data: bytes, settle: Settle) -> None:
        """Read the reply to a command."""
        settle(ACCEPTED)
        with contextlib.suppress(Poison, ValueError):
            message = decode(data)
            pending = self._pending.get(str(message.correlation_id))
            if pending is None or pending.verdict.done():
                return
            if is_notice_of_id(message):
                on_id, pending.on_id = pending.on_id, None
                if on_id is not None:
                    on_id(str(message.properties["command_id"]), message.properties.get(PROPOSED) is True)
            else:
                pending.verdict.set_result(verdict_of(message))


def _refuse(commands: Iterable[_Pending], why: str) -> None:
    """End the commands that no bridge can have, because it refuses their operator."""
    for each in commands:
        if not each.maybe_taken and not each.verdict.done():
            each.verdict.set_exception(Misconfigured(why))


def _verdict_on(pending: _Pending, outcome: Outcome, *, expired: bool) -> CommandVerdict | None:
    if outcome.state is DeliveryState.ACCEPTED:
        return None if pending.ask.reply else CommandVerdict(CommandState.ACCEPTED, int(Status.TAKEN))
    if outcome.state is DeliveryState.REJECTED and not (pending.maybe_taken and outcome.condition in _SAYS_NOTHING):
        state = CommandState.EXPIRED if outcome.condition == EXPIRED else CommandState.REJECTED
        return CommandVerdict(state, status_of(outcome), why=outcome.description or outcome.condition)
    if outcome.state is DeliveryState.RELEASED and not pending.ask.waits and not pending.maybe_taken:
        return CommandVerdict(CommandState.REJECTED, int(Status.OFFLINE), why=NOT_CONNECTED)
    if not expired:
        return None
    if pending.maybe_taken:
        return CommandVerdict(CommandState.IN_DOUBT, int(Status.NO_ANSWER), provisional=True, why="a bridge may have taken it")
    return _NOT_IN_TIME


_SAYS_NOTHING = (UNAUTHORIZED, RESOURCE_LIMIT)
"""Why a copy was refused by a bridge that may not have looked for the command: an earlier copy may have been taken."""
_NOT_IN_TIME = CommandVerdict(CommandState.EXPIRED, int(Status.EXPIRED), why="the bridge could not take it in time")
