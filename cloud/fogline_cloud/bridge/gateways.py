"""What gateways say: hello, and batches on their way to the shards.

Nothing is settled here that a shard has to decide: its thread answers each batch when its transaction ended.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol

from fogline import address, hello
from fogline.amqp.events import Delivery, Link
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
    rejected,
)
from fogline.amqp.scheduler import Share
from fogline.codec import MAX_MESSAGE_BYTES, decode_beacon, decode_range
from fogline.message import Message
from fogline.rates import Bucket
from fogline_cloud.bridge.guest import Guest
from fogline_cloud.bridge.shard import Question, Shard
from fogline_cloud.bridge.work import Submission

INGEST_CREDIT = 16
"""Batches that a gateway may have on their way on one lane."""
HELLO_CREDIT = 4
MAX_ANSWERS = 16
"""Answers to hello that a gateway may leave unsettled. One connection needs one."""
COME_BACK_S = 2.0
MOST_WAIT_S = 60.0

_log = logging.getLogger("fogline.bridge")


class Shards(Protocol):
    """Where a shard is found."""

    def get(self, number: int) -> Shard | None:
        """The shard, if it is this bridge's."""

    @property
    def whole(self) -> bool:
        """Whether all shards of the tenant are this bridge's, and ready."""


def ready_shard(shards: Shards, number: int) -> Shard | None:
    """The shard, if it is this bridge's and takes work."""
    shard = shards.get(number)
    return shard if shard is not None and shard.ready else None


async def _nowhere(shard: int) -> str:  # noqa: ARG001 - the interface
    return ""


class Crowd:
    """How many gateways are let in when they all come back at once: `rate_s` in a second, two seconds of them in advance."""

    def __init__(self, rate_s: float, now_s: float) -> None:
        self._entries = Bucket(rate_s, rate_s, now_s)
        self._turns = Bucket(rate_s, 0.0, now_s)

    def wait_s(self, now_s: float) -> float:
        """0 to let one more in, else when it may come back: those who wait are spread over `MOST_WAIT_S`."""
        if self._entries.owed_s(now_s) > COME_BACK_S:
            return COME_BACK_S + self._turns.pay(now_s) % MOST_WAIT_S
        self._entries.pay(now_s)
        return 0.0


class GatewayDesk:
    """Serves `hello/`, `ingest/` and `control/`.

    `arrived` is told when a gateway can be sent commands; `find_owner` says where another bridge has a shard.
    """

    def __init__(self, shards: Shards, shard_count: int, hellos_s: float) -> None:
        self.arrived: Callable[[Guest], None] = lambda _: None
        self.find_owner: Callable[[int], Awaitable[str]] = _nowhere
        self._sending_on: set[asyncio.Task[None]] = set()
        self._shards = shards
        self._shard_count = shard_count
        self._loop = asyncio.get_running_loop()
        self._by_name: dict[str, Guest] = {}
        self._crowd = Crowd(hellos_s, self._loop.time())

    @property
    def names(self) -> list[str]:
        """Who is connected."""
        return sorted(self._by_name)

    def get(self, name: str) -> Guest | None:
        """A gateway that is connected."""
        return self._by_name.get(name)

    def shard_of(self, name: str) -> int:
        """The shard of a gateway."""
        return address.shard_of(name, self._shard_count)

    def join(self, guest: Guest) -> None:
        """A gateway has connected: a former connection of that name is closed, and told so."""
        name = guest.principal.name
        guest.shard = self.shard_of(name)
        if (former := self._by_name.pop(name, None)) is not None:
            _log.warning("gateway %s connected a second time: the first connection is closed", name)
            former.connection.close(Condition(LINK_STOLEN, f"gateway {name} connected a second time"))
        self._by_name[name] = guest

    def dismiss(self, shard: int, why: str) -> None:
        """Close the connections of a shard's gateways: it is not ours at present."""
        for guest in list(self._by_name.values()):
            if guest.shard == shard:
                guest.connection.close(Condition(FORCED, why))

    # --- Desk

    def attach(self, guest: Guest, link: Link, place: address.Address) -> None:
        """See `Desk`."""
        match place:
            case address.Control():
                guest.control = guest.connection.accept_link(link, share=Share(strict=0))
            case address.Ingest(shard=shard) if ready_shard(self._shards, shard) is None:
                guest.connection.refuse_link(link, Condition(NOT_FOUND, f"shard {shard} is not here at present"))
            case _:
                guest.addresses[link] = place
                credit = HELLO_CREDIT if isinstance(place, address.Hello) else INGEST_CREDIT
                guest.connection.accept_link(link, credit=credit)

    def received(self, guest: Guest, delivery: Delivery, message: Message, place: address.Address) -> None:
        """See `Desk`."""
        if isinstance(place, address.Hello):
            self._on_hello(guest, delivery, message)
        else:
            self._on_batch(guest, delivery, message)

    def detached(self, guest: Guest, link: Link) -> None:
        """See `Desk`."""

    def gone(self, guest: Guest) -> None:
        """See `Desk`."""
        if self._by_name.get(guest.principal.name) is guest:
            del self._by_name[guest.principal.name]

    # --- hello and batches

    def _on_hello(self, guest: Guest, delivery: Delivery, message: Message) -> None:
        asked = hello.decode_hello(message.body)
        if asked.gateway != guest.principal.name:
            guest.settle(delivery, rejected(UNAUTHORIZED, f"{guest.principal} is not {address.shown(asked.gateway)}"))
            return
        guest.settle(delivery, ACCEPTED)
        guest.heard(asked.beacon)
        shard = ready_shard(self._shards, guest.shard)
        if asked.protocol != hello.PROTOCOL:
            self._refuse(guest, message, f"this bridge speaks protocol {hello.PROTOCOL}, not {asked.protocol}", 60.0)
        elif shard is None and (found := self._shards.get(guest.shard)) is not None:
            self._refuse(guest, message, f"shard {guest.shard} is not here at present: {found.why_not}", COME_BACK_S)
        elif shard is None:
            task = self._loop.create_task(self._send_on(guest, message), name=f"send {asked.gateway} on")
            self._sending_on.add(task)
            task.add_done_callback(self._sending_on.discard)
        elif wait_s := self._crowd.wait_s(self._loop.time()):
            self._refuse(guest, message, "many gateways come at once", wait_s)
        else:
            _log.info("gateway %s says hello (%s, %d streams)", asked.gateway, asked.version, len(asked.streams))
            answer = partial(self._from_thread, self._answer_hello, guest, message)
            shard.ask(Question(asked.gateway, [each.stream for each in asked.streams], answer))

    async def _send_on(self, guest: Guest, message: Message) -> None:
        """The shard is another bridge's: say which, if that is known."""
        where = await self.find_owner(guest.shard)
        why = f"shard {guest.shard} is not here: it is {f'at {where}' if where else 'another bridge'}"
        self._refuse(guest, message, why, COME_BACK_S, where)

    def _refuse(self, guest: Guest, message: Message, why: str, retry_after_s: float, redirect: str = "") -> None:
        welcome = hello.Welcome(protocol=hello.PROTOCOL, refused=why, retry_after_s=retry_after_s, redirect=redirect)
        self._send(guest, message, welcome)

    def _answer_hello(self, guest: Guest, message: Message, marks: list[hello.Mark]) -> None:
        welcome = hello.Welcome(
            protocol=hello.PROTOCOL,
            shard=guest.shard,
            shards=self._shard_count,
            max_message_bytes=MAX_MESSAGE_BYTES,
            marks=marks,
            time_ms=time.time_ns() // 1_000_000,
        )
        sent = self._send(guest, message, welcome)
        if sent and not guest.welcomed and self._by_name.get(guest.principal.name) is guest:
            guest.welcomed = True
            self.arrived(guest)

    def _send(self, guest: Guest, question: Message, welcome: hello.Welcome) -> bool:
        if guest.control is None or guest.control.closed:
            guest.connection.close(Condition(NOT_FOUND, "a gateway attaches to its control address before it says hello"))
            return False
        answer = Message(
            body=hello.encode_hello(welcome),
            content_type=hello.HELLO_CONTENT_TYPE,
            to=question.reply_to,
            correlation_id=question.correlation_id,
        )
        if guest.answers_unsettled >= MAX_ANSWERS:
            why = f"{MAX_ANSWERS} answers to hello are not settled: a gateway says hello once on a connection"
            guest.connection.close(Condition(RESOURCE_LIMIT, why))
            return False
        guest.answers_unsettled += 1
        guest.control.send(answer).add_done_callback(guest.on_answer_settled)
        return True

    def _on_batch(self, guest: Guest, delivery: Delivery, message: Message) -> None:
        span = decode_range(message)
        guest.heard(decode_beacon(message))
        shard = ready_shard(self._shards, guest.shard)
        lane = str(delivery.link.properties.get("lane", delivery.link.name))
        if span.gateway != guest.principal.name:
            why = f"{guest.principal} may not send for gateway {address.shown(span.gateway)}"
            guest.settle(delivery, rejected(UNAUTHORIZED, why))
        elif span.lane != lane:
            guest.settle(delivery, rejected(DECODE_ERROR, f"a batch of lane {span.lane} on a link for {lane!s}"))
        elif shard is None:
            guest.settle(delivery, RELEASED)
        else:
            guest.queue(delivery, message)
            shard.submit(Submission(span, message, partial(self._from_thread, guest.settle, delivery)))

    def _from_thread(self, call: Callable[..., None], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(call, *arguments)
