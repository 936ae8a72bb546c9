"""The operator's end of the command API: many commands over one connection, whatever happens to it.

Every command has a message id of its own, and is sent again with it after each reconnect until its answer is there:
bridge and gateway know it by that id, so it runs once.
"""

import asyncio
import contextlib
import logging
import uuid
from dataclasses import dataclass
from typing import Any, Self

from fogline import address
from fogline.amqp.driver import Connection, connect
from fogline.amqp.engine import Engine
from fogline.amqp.events import Delivery, Link, Peer
from fogline.amqp.outcome import ACCEPTED, NOT_ALLOWED, Condition, Outcome, State
from fogline.amqp.reconnect import Backoff
from fogline.amqp.scheduler import Share
from fogline.amqp.sending import Sender
from fogline.amqp.wire import decode
from fogline.command import State as CommandState
from fogline.command import Status
from fogline.errors import Poison, Unreachable
from fogline.message import Message

RETRY_S = 0.5
"""How long to wait before a command is sent again that the bridge could not take at present."""
CREDIT = 100

_log = logging.getLogger("fogline.operator")


@dataclass(frozen=True, slots=True)
class Ask:
    """A command to send. `ttl_s`: how long it may take, the wait for a `durable` one's device included.

    A `durable` one without a `ttl_s` does not wait: it is direct.

    `message_id`: the operator's own id of it, which none that is under way may have; by default a new one.
    """

    device: str
    name: str
    data: bytes = b""
    content_type: str | None = None
    ttl_s: float | None = 30.0
    durable: bool = True
    idempotent: bool = False
    reply: bool = True
    message_id: str | None = None

    @property
    def waits(self) -> bool:
        """Whether it waits for a device that is away."""
        return self.durable and self.ttl_s is not None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a command. `state` ACCEPTED: a one-way command that the bridge took. `why`: in words, if it failed."""

    state: CommandState
    status: int
    command_id: str = ""
    data: bytes = b""
    content_type: str | None = None
    provisional: bool = False
    why: str = ""


@dataclass(slots=True)
class _Pending:
    """A command without a verdict. `unsure`: a copy of it had no word, or none that says whether it was taken."""

    message: Message
    ask: Ask
    verdict: "asyncio.Future[Verdict]"
    until: float
    unsure: bool = False
    retry: asyncio.TimerHandle | None = None


class Operator:
    """An asynchronous context manager.

    `name`: the container id; the same name and `reply_id` after a restart get the answers that were owed.
    """

    def __init__(self, host: str, port: int, tenant: str, *, name: str = "", reply_id: str = "") -> None:
        self._where = (host, port)
        self._tenant = tenant
        self._name = name or f"operator-{uuid.uuid4().hex[:12]}"
        self._reply_to = address.CommandResponse(tenant, reply_id or self._name)
        self._pending: dict[str, _Pending] = {}
        self._sender: Sender | None = None
        self._over: asyncio.Future[str] | None = None
        self._task: asyncio.Task[None] | None = None
        self._attached = asyncio.Event()
        self.why = ""

    async def __aenter__(self) -> Self:
        """Begin to connect; `request` may be called at once."""
        self._task = asyncio.create_task(self._run(), name="operator")
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connection. Whoever still waits for a verdict gets `Unreachable`."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        for each in self._pending.values():
            if not each.verdict.done():
                each.verdict.set_exception(Unreachable("the operator's connection was closed"))

    async def attached(self) -> None:
        """Wait until the bridge has taken the links. Cancel it to give up; `why` says what is in the way."""
        await self._attached.wait()

    async def request(self, ask: Ask) -> Verdict:
        """Send a command and wait for its end. Cancelling does not take the command back."""
        message_id = ask.message_id or uuid.uuid4().hex
        message = Message(
            to=str(address.Commands(self._tenant, ask.device)),
            subject=ask.name,
            message_id=message_id,
            correlation_id=message_id,
            reply_to=str(self._reply_to) if ask.reply else None,
            content_type=ask.content_type,
            body=ask.data,
            durable=ask.durable,
            ttl_ms=round(ask.ttl_s * 1000) if ask.ttl_s is not None else None,
            properties={"idempotent": ask.idempotent},
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

    def _send(self, pending: _Pending) -> None:
        if self._sender is not None and not self._sender.closed and not pending.verdict.done():
            self._sender.send(pending.message).add_done_callback(lambda future: self._on_outcome(pending, future))

    def _on_outcome(self, pending: _Pending, future: "asyncio.Future[Outcome]") -> None:
        """The bridge's word on a command. Without one it is sent again when the connection is back."""
        if pending.verdict.done() or future.cancelled():
            return
        if isinstance(future.exception(), Unreachable):
            pending.unsure = True
            return
        outcome = future.result()
        pending.unsure = pending.unsure or outcome.state is State.MODIFIED
        if outcome.state is State.ACCEPTED:
            if not pending.ask.reply:
                pending.verdict.set_result(Verdict(CommandState.ACCEPTED, int(Status.TAKEN)))
        elif outcome.state is State.REJECTED:
            status = int(_STATUS.get(outcome.condition, Status.UNDELIVERABLE))
            pending.verdict.set_result(Verdict(CommandState.REJECTED, status, why=outcome.description or outcome.condition))
        elif outcome.state is State.RELEASED and not pending.ask.waits and not pending.unsure:
            why = "the device is not connected"
            pending.verdict.set_result(Verdict(CommandState.REJECTED, int(Status.OFFLINE), why=why))
        elif asyncio.get_running_loop().time() > pending.until:
            pending.verdict.set_result(_too_late(pending))
        else:
            pending.retry = asyncio.get_running_loop().call_later(RETRY_S, self._send, pending)

    # --- one connection after the other

    async def _run(self) -> None:
        backoff = Backoff(base_s=0.2, cap_s=5.0)
        while True:
            try:
                await self._serve(backoff)
            except Unreachable as error:
                self.why = str(error)
                _log.info("%s", error)
            self._sender = None
            self._attached.clear()
            await asyncio.sleep(backoff.next_s())

    async def _serve(self, backoff: Backoff) -> None:
        loop = asyncio.get_running_loop()
        self._over = loop.create_future()
        engine = Engine(self._name, hostname=self._where[0], properties={"tenant": self._tenant})
        connection = await connect(*self._where, engine, self)
        try:
            why = await self._over
        finally:
            connection.close()
            connection.abort()
        if self._attached.is_set():
            backoff.stable()
        raise Unreachable(f"the connection to {self._where[0]}:{self._where[1]} ended: {why}")

    def opened(self, connection: Connection, peer: Peer) -> None:  # noqa: ARG002 - the handler's interface
        """The bridge answered: attach, and send what has no answer yet."""
        session: Any = connection.open_session()
        connection.open_receiver(session, "replies", str(self._reply_to), CREDIT)
        target = str(address.Commands(self._tenant, ""))
        self._sender = connection.open_sender(session, "commands", target, Share(), {})
        for pending in list(self._pending.values()):
            self._send(pending)
        self._attached.set()

    def link_requested(self, connection: Connection, link: Link) -> None:
        """The bridge opens no links."""
        connection.refuse_link(link, Condition(NOT_ALLOWED, "an operator serves no links"))

    def link_closed(self, connection: Connection, link: Link, condition: Condition | None) -> None:
        """Without one of its links a connection is not whole: start again."""
        self.closed(connection, f"link {link.name} was closed: {condition or 'no reason given'}")

    def received(self, connection: Connection, delivery: Delivery, data: bytes) -> None:
        """The answer to a command."""
        connection.settle(delivery, ACCEPTED)
        connection.grant(delivery.link, 1)
        with contextlib.suppress(Poison, ValueError):
            message = decode(data)
            pending = self._pending.get(str(message.correlation_id))
            if pending is not None and not pending.verdict.done():
                pending.verdict.set_result(verdict_of(message))

    def closed(self, connection: Connection, why: str) -> None:  # noqa: ARG002 - the handler's interface
        """It is over."""
        if self._over is not None and not self._over.done():
            self._over.set_result(why)


def _too_late(pending: _Pending) -> Verdict:
    """The end of a command that no bridge would take in time: in doubt if one may have."""
    if pending.unsure:
        return Verdict(CommandState.IN_DOUBT, int(Status.NO_ANSWER), provisional=True, why="a bridge may have taken it")
    return Verdict(CommandState.EXPIRED, int(Status.EXPIRED), why="the bridge could not take it in time")


_STATUS = {
    "amqp:not-found": Status.UNKNOWN_DEVICE,
    "amqp:resource-limit-exceeded": Status.QUOTA,
    "fogline:conflict": Status.CONFLICT,
    "fogline:expired": Status.EXPIRED,
}


def verdict_of(message: Message) -> Verdict:
    """The answer that a message carries. Raises `ValueError` for one that is none."""
    told = message.properties
    state, _, provisional = str(told.get("state", "")).partition(" ")
    status = told.get("status")
    if not isinstance(status, int):
        raise ValueError("an answer carries a status")  # noqa: TRY004 - the message is wrong, not the program
    own_words = not 200 <= status < 300 and message.content_type == "text/plain"
    return Verdict(
        state=CommandState(state),
        status=status,
        command_id=str(told.get("command_id", "")),
        data=message.body,
        content_type=message.content_type,
        provisional=bool(provisional),
        why=message.body.decode("utf-8", "replace") if own_words else "",
    )
