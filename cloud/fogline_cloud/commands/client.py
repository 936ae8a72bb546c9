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
from dataclasses import dataclass
from typing import Any, Self

from fogline import address
from fogline.amqp.backoff import Backoff
from fogline.amqp.driver import AmqpConnection, connect
from fogline.amqp.engine import Engine
from fogline.amqp.events import AmqpPeer, Delivery, Link
from fogline.amqp.outcome import (
    ACCEPTED,
    NOT_ALLOWED,
    RELEASED,
    RESOURCE_LIMIT,
    UNAUTHORIZED,
    Condition,
    DeliveryState,
    Outcome,
)
from fogline.amqp.scheduler import Share
from fogline.amqp.security import ClientSecurity
from fogline.amqp.sending import Sender
from fogline.amqp.wire import decode
from fogline.cancel import TOO_LATE
from fogline.command import EXPIRED, CommandState, Status
from fogline.connection_clock import monotonic_ms, offset_of, with_time_left
from fogline.errors import Poison, Unreachable
from fogline.message import Message
from fogline_cloud.commands.refusals import NOT_CONNECTED, status_of

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


@dataclass(frozen=True, slots=True)
class CommandVerdict:
    """The end of a command. `state` is terminal, or ACCEPTED for a one-way command that the bridge has taken.

    `status` is the device's own, or a `fogline.command.Status` if no device gave one. `data` and `content_type` are the
    device's reply. `why` gives the reason in words if the command failed without the device. `provisional`: the gateway has
    not reported a verdict in time, so the device may have run the command.
    """

    state: CommandState
    status: int
    command_id: str = ""
    data: bytes = b""
    content_type: str | None = None
    provisional: bool = False
    why: str = ""


@dataclass(frozen=True, slots=True)
class CancelVerdict:
    """The answer to a request to cancel. `state`: the end of the command, `None` if the request was refused.

    CANCELLED means that the device has not seen the command and never will. With any other state it was too late. `status` is
    200, 404 (no such command), 403 (no grant), 409 (too late) or 429 (over the quota); `why` gives the reason in words.
    """

    state: CommandState | None
    status: int
    why: str = ""


@dataclass(slots=True)
class _Pending:
    """A command without a verdict. `maybe_taken`: a bridge has taken a copy, or may have: its outcome is unknown."""

    message: Message
    ask: Ask
    verdict: "asyncio.Future[CommandVerdict]"
    give_up_at: float
    maybe_taken: bool = False
    retry: asyncio.TimerHandle | None = None


class Operator:
    """A connection to the bridge at `host`:`port`, as an asynchronous context manager. Use it on one event loop.

    `name` is the AMQP container id; by default each `Operator` makes a new one. `reply_id` names the address of the replies,
    by default `name`. The bridge keeps replies that were not delivered; a program that restarts with the same `name`,
    `reply_id` and message ids gets them. `security`: by default plain text, for a bridge on loopback. `why` is the reason
    why the last connection failed or ended.
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
        self._offset_ms: int | None = None  # of the bridge's clock
        self._sender: Sender | None = None
        self._closed: asyncio.Future[str] | None = None
        self._task: asyncio.Task[None] | None = None
        self._attached = asyncio.Event()
        self._closing = False
        self.why = ""

    async def __aenter__(self) -> Self:
        """Start to connect. `request` may be called at once: its command waits for the connection."""
        self._task = asyncio.create_task(self._run(), name="operator")
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connection. Every `request` in progress raises `Unreachable`."""
        self._closing = True
        self._attached.set()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        for each in self._pending.values():
            if not each.verdict.done():
                each.verdict.set_exception(Unreachable("the operator's connection was closed"))

    async def attached(self) -> None:
        """Wait until the links to the bridge are attached. Safe to cancel; `why` then gives the reason for the delay."""
        await self._attached.wait()

    async def request(self, ask: Ask) -> CommandVerdict:
        """Send a command and return its verdict. Raises `Unreachable` if the `Operator` is closed first.

        It resends until there is a verdict, so limit the wait yourself. Each copy has what is left of the time to live.
        Cancelling stops the wait, but not the command.
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
            properties={"idempotent": ask.idempotent, "newest_wins": ask.newest_wins},
        )
        loop = asyncio.get_running_loop()
        pending = _Pending(message, ask, loop.create_future(), loop.time() + (ask.ttl_s or 0))
        self._pending[message_id] = pending
        try:
            self._send(pending)
            return await pending.verdict
        finally:
            del self._pending[message_id]
            if pending.retry is not None:
                pending.retry.cancel()

    async def cancel(self, command_id: str = "", *, message_id: str = "", reply: bool = True) -> CancelVerdict:
        """Cancel a command, and return its end. Raises `Unreachable` if the `Operator` is closed first.

        Give the command's id; or the `message_id` of this operator's own command, with `reply` as in its `Ask`. The request is
        sent again until the command is over, so limit the wait yourself. Cancelling the call stops only the wait.
        """
        request = Message(
            to=str(address.CommandAddress(self._tenant, "")),
            correlation_id=message_id or None,
            reply_to=str(self._reply_to) if reply else None,
            properties={"cancel": True if message_id else command_id},
        )
        while True:
            await self._attached.wait()
            if self._closing:
                raise Unreachable("the operator's connection was closed")
            try:
                outcome = await self._sender.send(request) if self._sender is not None else RELEASED
            except Unreachable:
                outcome = RELEASED
            if (verdict := _cancel_verdict(outcome)) is not None:
                return verdict
            await asyncio.sleep(RETRY_S)

    def _send(self, pending: _Pending) -> None:
        if self._sender is None or self._sender.closed or pending.verdict.done():
            return
        message, left_s = pending.message, pending.give_up_at - asyncio.get_running_loop().time()
        if message.ttl_ms is not None:
            if left_s <= 0 and not pending.maybe_taken:
                pending.verdict.set_result(_NOT_IN_TIME)
                return
            now_ms = monotonic_ms()
            message = with_time_left(message, now_ms + round(left_s * 1000), now_ms, self._offset_ms)
        self._sender.send(message).add_done_callback(lambda future: self._on_outcome(pending, future))

    def _on_outcome(self, pending: _Pending, future: "asyncio.Future[Outcome]") -> None:
        if pending.verdict.done() or future.cancelled():
            return
        if isinstance(future.exception(), Unreachable):
            pending.maybe_taken = True
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
        while True:
            self._closed = asyncio.get_running_loop().create_future()
            engine = Engine(self._name, hostname=host, properties={"tenant": self._tenant}, security=self._security)
            try:
                connection = await connect(host, port, engine, self)
                try:
                    self.why = f"the connection to {host}:{port} ended: {await self._closed}"
                finally:
                    connection.close()
                    connection.abort()
            except Unreachable as error:
                self.why = str(error)
            _log.info("%s", self.why)
            if self._attached.is_set():
                backoff.stable()
            self._sender = None
            self._attached.clear()
            await asyncio.sleep(backoff.next_s())

    def opened(self, connection: AmqpConnection, peer: AmqpPeer) -> None:
        """Attach the links, and send every command that has no verdict yet."""
        self._offset_ms = offset_of(peer.properties, monotonic_ms())
        session: Any = connection.open_session()
        connection.open_receiver(session, "replies", str(self._reply_to), CREDIT)
        target = str(address.CommandAddress(self._tenant, ""))
        self._sender = connection.open_sender(session, "commands", target, Share(), {})
        for pending in list(self._pending.values()):
            self._send(pending)
        self._attached.set()

    def link_requested(self, connection: AmqpConnection, link: Link) -> None:
        """Refuse: a bridge opens no links to an operator."""
        connection.refuse_link(link, Condition(NOT_ALLOWED, "an operator serves no links"))

    def link_closed(self, connection: AmqpConnection, link: Link, condition: Condition | None) -> None:
        """Reconnect: commands need both links."""
        self.closed(connection, f"link {link.name} was closed: {condition or 'no reason given'}")

    def received(self, connection: AmqpConnection, delivery: Delivery, data: bytes) -> None:
        """Read the reply to a command."""
        connection.settle(delivery, ACCEPTED)
        connection.grant(delivery.link, 1)
        with contextlib.suppress(Poison, ValueError):
            message = decode(data)
            pending = self._pending.get(str(message.correlation_id))
            if pending is not None and not pending.verdict.done():
                pending.verdict.set_result(verdict_of(message))

    def closed(self, connection: AmqpConnection, why: str) -> None:  # noqa: ARG002 - the handler's interface
        """End this connection; `_run` opens the next one."""
        if self._closed is not None and not self._closed.done():
            self._closed.set_result(why)


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


def _cancel_verdict(outcome: Outcome) -> CancelVerdict | None:
    if outcome.state is DeliveryState.ACCEPTED:
        return CancelVerdict(CommandState.CANCELLED, 200)
    if outcome.state is not DeliveryState.REJECTED:
        return None
    if outcome.condition == TOO_LATE:
        state = next((each for each in CommandState if each == outcome.description.partition(":")[0]), None)
        return CancelVerdict(state, int(Status.CONFLICT), outcome.description)
    return CancelVerdict(None, status_of(outcome), outcome.description or outcome.condition)


_SAYS_NOTHING = (UNAUTHORIZED, RESOURCE_LIMIT)
"""Why a copy was refused by a bridge that may not have looked for the command: an earlier copy may have been taken."""
_NOT_IN_TIME = CommandVerdict(CommandState.EXPIRED, int(Status.EXPIRED), why="the bridge could not take it in time")


def verdict_of(message: Message) -> CommandVerdict:
    """Read the verdict in a reply message. Raises `ValueError` if the message is not a reply to a command."""
    properties = message.properties
    state, _, provisional = str(properties.get("state", "")).partition(" ")
    status = properties.get("status")
    if not isinstance(status, int):
        raise ValueError("a reply has no status")  # noqa: TRY004 - the message is wrong, not the program
    is_reason = not 200 <= status < 300 and message.content_type == "text/plain"
    return CommandVerdict(
        state=CommandState(state),
        status=status,
        command_id=str(properties.get("command_id", "")),
        data=message.body,
        content_type=message.content_type,
        provisional=bool(provisional),
        why=message.body.decode("utf-8", "replace") if is_reason else "",
    )
