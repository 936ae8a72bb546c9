"""The AMQP side of the bridge: who may connect, which links, and batches on their way to the shards.

Every border asks the policy. Nothing is settled here: a shard's thread answers each batch when its transaction ended.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from fogline import address, hello
from fogline.amqp.driver import Connection, Sender, listen
from fogline.amqp.engine import Engine
from fogline.amqp.events import Delivery, Link, Peer
from fogline.amqp.outcome import (
    ACCEPTED,
    DECODE_ERROR,
    FORCED,
    LINK_STOLEN,
    NOT_FOUND,
    RELEASED,
    RESOURCE_LIMIT,
    UNAUTHORIZED,
    Condition,
    Outcome,
    rejected,
)
from fogline.amqp.scheduler import Share
from fogline.amqp.wire import decode
from fogline.codec import MAX_MESSAGE_BYTES, decode_range
from fogline.errors import Misconfigured, Poison
from fogline.message import Message
from fogline.principal import Action, Kind, Policy, Principal
from fogline_cloud.bridge.shard import Question, Shard, Submission
from fogline_cloud.settings import BridgeSettings

INGEST_CREDIT = 16
"""Batches that a gateway may have on their way on one lane."""
HELLO_CREDIT = 4
COME_BACK_S = 2.0
CLOSE_S = 2.0
"""How long gateways may take to answer a close."""

_log = logging.getLogger("fogline.bridge")


class Shards(Protocol):
    """Where a gateway's shard is found."""

    def get(self, number: int) -> Shard | None:
        """The shard, if it is this bridge's."""


@dataclass(eq=False, slots=True)
class Guest:
    """One gateway's connection. `control`: where answers and commands go, once the gateway has attached there."""

    principal: Principal
    connection: Connection
    shard: int
    control: Sender | None = None
    addresses: dict[Link, address.Address] = field(default_factory=dict)


class Listener:
    """Serves gateways. All methods run on the loop."""

    def __init__(self, settings: BridgeSettings, policy: Policy, shards: Shards) -> None:
        self.refused = 0
        self._settings = settings
        self._policy = policy
        self._shards = shards
        self._loop = asyncio.get_running_loop()
        self._guests: dict[Connection, Guest] = {}
        self._by_name: dict[str, Guest] = {}
        self._server: asyncio.Server | None = None
        self._all_gone = asyncio.Event()

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; returns the address that it became. Raises `Misconfigured`."""
        try:
            self._server = await listen(host, port, self._connection)
        except OSError as error:
            what = f"cannot listen on {host}:{port}: {error.strerror or error}"
            raise Misconfigured(f"{what}; is another bridge running? set bridge.listen to a free port") from None
        bound = self._server.sockets[0].getsockname()
        return str(bound[0]), int(bound[1])

    async def close(self) -> None:
        """Close every connection and stop listening."""
        if self._server is not None:
            self._server.close()
        for guest in list(self._guests.values()):
            guest.connection.close(Condition(FORCED, "the bridge is stopping"))
        if self._guests:
            self._all_gone = asyncio.Event()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_gone.wait(), CLOSE_S)
        for guest in list(self._guests.values()):
            guest.connection.abort()

    def dismiss(self, shard: int, why: str) -> None:
        """Close the connections of a shard's gateways: it is not ours at present."""
        for guest in list(self._guests.values()):
            if guest.shard == shard:
                guest.connection.close(Condition(FORCED, why))

    @property
    def gateways(self) -> list[str]:
        """Who is connected."""
        return sorted(self._by_name)

    def _connection(self) -> Connection:
        return Connection(Engine(self._settings.name, server=True), self)

    # --- Handler

    def opened(self, connection: Connection, peer: Peer) -> None:
        """A gateway opens: without credentials its container id is its name."""
        tenant = str(peer.properties.get("tenant", self._policy.tenant))
        principal = Principal(Kind.GATEWAY, tenant, peer.container, "asserted")
        if not address.is_identifier(peer.container) or not self._policy.knows(principal):
            self._turn_away(connection, Condition(UNAUTHORIZED, f"gateway {address.shown(peer.container)} is not known here"))
        elif len(self._guests) >= self._settings.max_connections:
            self._turn_away(connection, Condition(RESOURCE_LIMIT, f"at most {self._settings.max_connections} connections"))
        else:
            self._welcome(connection, principal)

    def _turn_away(self, connection: Connection, condition: Condition) -> None:
        self.refused += 1
        _log.warning("a connection is refused: %s", condition)
        connection.accept()
        connection.close(condition)

    def _welcome(self, connection: Connection, principal: Principal) -> None:
        if (former := self._by_name.pop(principal.name, None)) is not None:
            _log.warning("gateway %s connected a second time: the first connection is closed", principal.name)
            former.connection.close(Condition(LINK_STOLEN, f"gateway {principal.name} connected a second time"))
        guest = Guest(principal, connection, address.shard_of(principal.name, self._policy.shards))
        self._guests[connection] = self._by_name[principal.name] = guest
        connection.accept()

    def link_requested(self, connection: Connection, link: Link) -> None:
        """Attach what the policy allows."""
        guest = self._guests.get(connection)
        if guest is None:
            connection.refuse_link(link, Condition(UNAUTHORIZED, "this connection is being closed"))
            return
        try:
            place = address.parse_address(link.address)
        except Poison as error:
            connection.refuse_link(link, Condition(NOT_FOUND, str(error)))
            return
        action = Action.RECEIVE if link.sending else Action.SEND
        if not self._policy.may(guest.principal, action, place):
            connection.refuse_link(link, Condition(UNAUTHORIZED, f"{guest.principal} may not {action} at {place}"))
        elif isinstance(place, address.Control):
            guest.control = connection.accept_link(link, share=Share(strict=0))
        elif isinstance(place, address.Ingest) and not self._owned(place.shard):
            connection.refuse_link(link, Condition(NOT_FOUND, f"shard {place.shard} is not here at present"))
        else:
            guest.addresses[link] = place
            connection.accept_link(link, credit=HELLO_CREDIT if isinstance(place, address.Hello) else INGEST_CREDIT)

    def _owned(self, number: int) -> Shard | None:
        shard = self._shards.get(number)
        return shard if shard is not None and shard.ready else None

    def link_closed(self, connection: Connection, link: Link, condition: Condition | None) -> None:  # noqa: ARG002
        """A gateway detached."""
        if (guest := self._guests.get(connection)) is not None:
            guest.addresses.pop(link, None)

    def received(self, connection: Connection, delivery: Delivery, data: bytes) -> None:
        """A hello or a batch."""
        guest = self._guests.get(connection)
        place = guest.addresses.get(delivery.link) if guest else None
        if guest is None or place is None:
            connection.settle(delivery, RELEASED)
            return
        try:
            message = decode(data)
            if isinstance(place, address.Hello):
                self._on_hello(guest, delivery, message)
            else:
                self._on_batch(guest, delivery, message)
        except Poison as error:
            self._settle(guest, delivery, rejected(DECODE_ERROR, str(error)))

    def closed(self, connection: Connection, why: str) -> None:
        """A gateway is gone."""
        guest = self._guests.pop(connection, None)
        if guest is not None:
            _log.info("gateway %s is gone: %s", guest.principal.name, why)
            if self._by_name.get(guest.principal.name) is guest:
                del self._by_name[guest.principal.name]
        if not self._guests:
            self._all_gone.set()

    # --- hello and batches

    def _on_hello(self, guest: Guest, delivery: Delivery, message: Message) -> None:
        asked = hello.decode_hello(message.body)
        if asked.gateway != guest.principal.name:
            self._settle(guest, delivery, rejected(UNAUTHORIZED, f"{guest.principal} is not {address.shown(asked.gateway)}"))
            return
        self._settle(guest, delivery, ACCEPTED)
        shard = self._owned(guest.shard)
        if asked.protocol != hello.PROTOCOL:
            self._refuse(guest, message, f"this bridge speaks protocol {hello.PROTOCOL}, not {asked.protocol}", 60.0)
        elif shard is None:
            found = self._shards.get(guest.shard)
            why = found.why_not if found else "it is another bridge's"
            self._refuse(guest, message, f"shard {guest.shard} is not here at present: {why}", COME_BACK_S)
        else:
            _log.info("gateway %s says hello (%s, %d streams)", asked.gateway, asked.version, len(asked.streams))
            answer = partial(self._from_thread, self._answer_hello, guest, message)
            shard.ask(Question(asked.gateway, [each.stream for each in asked.streams], answer))

    def _refuse(self, guest: Guest, message: Message, why: str, retry_after_s: float) -> None:
        self._send(guest, message, hello.Welcome(protocol=hello.PROTOCOL, refused=why, retry_after_s=retry_after_s))

    def _answer_hello(self, guest: Guest, message: Message, marks: list[hello.Mark]) -> None:
        welcome = hello.Welcome(
            protocol=hello.PROTOCOL,
            shard=guest.shard,
            shards=self._policy.shards,
            max_message_bytes=MAX_MESSAGE_BYTES,
            marks=marks,
        )
        self._send(guest, message, welcome)

    def _send(self, guest: Guest, question: Message, welcome: hello.Welcome) -> None:
        if guest.control is None or guest.control.closed:
            guest.connection.close(Condition(NOT_FOUND, "a gateway attaches to its control address before it says hello"))
            return
        answer = Message(
            body=hello.encode_hello(welcome),
            content_type=hello.HELLO_CONTENT_TYPE,
            to=question.reply_to,
            correlation_id=question.correlation_id,
        )
        guest.control.send(answer)

    def _on_batch(self, guest: Guest, delivery: Delivery, message: Message) -> None:
        span = decode_range(message)
        shard = self._owned(guest.shard)
        lane = str(delivery.link.properties.get("lane", delivery.link.name))
        if span.gateway != guest.principal.name:
            why = f"{guest.principal} may not send for gateway {address.shown(span.gateway)}"
            self._settle(guest, delivery, rejected(UNAUTHORIZED, why))
        elif span.lane != lane:
            self._settle(guest, delivery, rejected(DECODE_ERROR, f"a batch of lane {span.lane} on a link for {lane!s}"))
        elif shard is None:
            self._settle(guest, delivery, RELEASED)
        else:
            shard.submit(Submission(span, message, partial(self._from_thread, self._settle, guest, delivery)))

    def _settle(self, guest: Guest, delivery: Delivery, outcome: Outcome) -> None:
        guest.connection.settle(delivery, outcome)
        guest.connection.grant(delivery.link, 1)

    def _from_thread(self, call: Callable[..., None], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(call, *arguments)
