"""Behaviour of every `Port`. The tests of a port subclass `PortContract`."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from fogline.errors import SlowDown
from fogline.events.event import Arrival, Lane, Receipt
from fogline.events.identity import AckDelivery, Retransmission
from fogline.events.report_on_change import ReportPolicy
from fogline_edge.adapters.port import Port

LIMIT_S = 60.0
MORE_THAN_ANY_PORT_TAKES_AT_ONCE = 2_000_000


@dataclass(frozen=True)
class Opened:
    """A port that works, and the payloads that it has stored by now, in order."""

    port: Port
    stored: Callable[[], list[bytes]]


def arrival(data: bytes, *, slot: bytes | None = None, again: bool = False, channel: str = "t") -> Arrival:
    """One arrival of one device on one lane."""
    return Arrival(
        device="d1",
        channel=channel,
        lane=Lane.TELEMETRY,
        content_type="text/plain",
        data=data,
        adapter="mqtt",
        retransmission=None if slot is None else Retransmission(slot, again),
    )


class Receipts:
    """Collects what `done` is told, in order."""

    def __init__(self) -> None:
        self.told: list[tuple[bytes, Receipt]] = []
        self._changed = asyncio.Event()

    def done(self, name: bytes) -> Callable[[Receipt], None]:
        def told(receipt: Receipt) -> None:
            self.told.append((name, receipt))
            self._changed.set()

        return told

    async def until(self, count: int) -> list[tuple[bytes, Receipt]]:
        try:
            async with asyncio.timeout(LIMIT_S):
                while len(self.told) < count:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"{len(self.told)} of {count} were told to be committed") from None
        return self.told


class PortContract:
    """Subclass it with a fixture `opening`: a function that opens a fresh port in the running loop.

    A subclass without it fails: pytest reports that the fixture is missing.
    """

    @pytest.fixture
    def within(self, opening) -> Callable[[Callable[[Opened], Awaitable[Any]]], None]:
        """Runs a test's body with an open port."""

        def run(body: Callable[[Opened], Awaitable[Any]]) -> None:
            async def main() -> None:
                async with opening() as opened:
                    await body(opened)

            asyncio.run(main())

        return run

    def test_done_comes_after_put_has_returned_and_the_arrival_is_stored(self, within):
        async def body(opened: Opened) -> None:
            seen: list[list[bytes]] = []
            finished = asyncio.Event()

            def done(receipt: Receipt) -> None:
                assert receipt is Receipt.STORED
                seen.append(opened.stored())
                finished.set()

            opened.port.put(arrival(b"a"), done)
            assert seen == []
            async with asyncio.timeout(LIMIT_S):
                await finished.wait()
            assert seen == [[b"a"]]

        within(body)

    def test_done_is_called_once_for_each_in_the_order_of_put(self, within):
        async def body(opened: Opened) -> None:
            receipts = Receipts()
            names = [b"%d" % number for number in range(500)]
            for name in names:
                opened.port.put(arrival(name), receipts.done(name))
            assert await receipts.until(500) == [(name, Receipt.STORED) for name in names]
            assert opened.stored() == names

        within(body)

    def test_two_equal_arrivals_without_a_mark_are_two_events(self, within):
        async def body(opened: Opened) -> None:
            receipts = Receipts()
            for _ in range(2):
                opened.port.put(arrival(b"same"), receipts.done(b""))
                opened.port.put(arrival(b"same", slot=b"s"), receipts.done(b""))
            assert {receipt for _, receipt in await receipts.until(4)} == {Receipt.STORED}
            assert opened.stored() == [b"same"] * 4

        within(body)

    @pytest.mark.parametrize("committed_before", [True, False])
    def test_a_marked_resend_with_the_same_content_is_a_duplicate(self, within, committed_before):
        async def body(opened: Opened) -> None:
            receipts = Receipts()
            opened.port.put(arrival(b"a", slot=b"s"), receipts.done(b"first"))
            if committed_before:
                await receipts.until(1)
            opened.port.put(arrival(b"a", slot=b"s", again=True), receipts.done(b"second"))
            assert await receipts.until(2) == [(b"first", Receipt.STORED), (b"second", Receipt.DUPLICATE)]
            assert opened.stored() == [b"a"]

        within(body)

    @pytest.mark.parametrize(
        "other",
        [
            arrival(b"b", slot=b"s", again=True),
            arrival(b"a", slot=b"s", again=True, channel="elsewhere"),
            arrival(b"a", slot=b"other", again=True),
        ],
        ids=["other content", "other channel", "other slot"],
    )
    def test_a_mark_alone_makes_no_duplicate(self, within, other):
        async def body(opened: Opened) -> None:
            receipts = Receipts()
            opened.port.put(arrival(b"a", slot=b"s"), receipts.done(b"first"))
            opened.port.put(other, receipts.done(b"second"))
            assert await receipts.until(2) == [(b"first", Receipt.STORED), (b"second", Receipt.STORED)]

        within(body)

    @pytest.mark.parametrize("delivery", [AckDelivery.PROVEN, AckDelivery.DOUBTFUL])
    def test_a_mark_after_an_acknowledgement_that_was_or_may_have_been_delivered_makes_no_duplicate(self, within, delivery):
        async def body(opened: Opened) -> None:
            receipts = Receipts()
            opened.port.put(arrival(b"a", slot=b"s"), receipts.done(b"1"))
            new = arrival(b"a", slot=b"s", again=True)
            sent = msgspec.structs.replace(new.retransmission, ack_delivery=delivery)
            opened.port.put(msgspec.structs.replace(new, retransmission=sent), receipts.done(b"2"))
            opened.port.put(new, receipts.done(b"3"))
            assert [receipt for _, receipt in await receipts.until(3)] == [Receipt.STORED, Receipt.STORED, Receipt.DUPLICATE]
            assert opened.stored() == [b"a", b"a"]

        within(body)

    def test_a_resend_is_recognised_by_the_last_content_of_its_slot(self, within):
        async def body(opened: Opened) -> None:
            receipts = Receipts()
            opened.port.put(arrival(b"a", slot=b"s"), receipts.done(b"1"))
            opened.port.put(arrival(b"b", slot=b"s"), receipts.done(b"2"))
            opened.port.put(arrival(b"b", slot=b"s", again=True), receipts.done(b"3"))
            assert [receipt for _, receipt in await receipts.until(3)] == [Receipt.STORED, Receipt.STORED, Receipt.DUPLICATE]

        within(body)

    def test_too_much_at_once_is_refused_whole_and_room_is_told(self, within):
        async def body(opened: Opened) -> None:
            receipts = Receipts()
            taken = 0
            with pytest.raises(SlowDown):  # noqa: PT012 (how many are taken before is the port's own affair)
                for _ in range(MORE_THAN_ANY_PORT_TAKES_AT_ONCE):
                    opened.port.put(arrival(b"x"), receipts.done(b""))
                    taken += 1
            room = asyncio.Event()
            opened.port.when_room(room.set)
            assert not room.is_set()
            async with asyncio.timeout(LIMIT_S):
                await room.wait()
            opened.port.put(arrival(b"last"), receipts.done(b"last"))
            assert (await receipts.until(taken + 1))[-1] == (b"last", Receipt.STORED)
            assert len(opened.stored()) == taken + 1

        within(body)

    def test_room_is_told_at_a_later_turn_when_there_is_room_already(self, within):
        async def body(opened: Opened) -> None:
            calls: list[None] = []
            told = asyncio.Event()
            opened.port.when_room(lambda: (calls.append(None), told.set()))
            assert calls == []
            async with asyncio.timeout(LIMIT_S):
                await told.wait()
            assert len(calls) == 1

        within(body)

    def test_what_is_no_news_is_not_stored(self, within):
        async def body(opened: Opened) -> None:
            receipts = Receipts()
            reported = [
                msgspec.structs.replace(arrival(data), report=ReportPolicy(on_change=True)) for data in (b"a", b"a", b"b")
            ]
            for each in reported:
                opened.port.put(each, receipts.done(each.data))
            told = [receipt for _, receipt in await receipts.until(3)]
            assert told == [Receipt.STORED, Receipt.FILTERED, Receipt.STORED]
            assert opened.stored() == [b"a", b"b"]

        within(body)

    def test_a_forgotten_slot_recognises_nothing(self, within):
        async def body(opened: Opened) -> None:
            receipts = Receipts()
            forgotten = asyncio.Event()
            opened.port.put(arrival(b"a", slot=b"s"), receipts.done(b"1"))
            opened.port.forget(b"s", forgotten.set)
            opened.port.put(arrival(b"a", slot=b"s", again=True), receipts.done(b"2"))
            async with asyncio.timeout(LIMIT_S):
                await forgotten.wait()
            assert [receipt for _, receipt in await receipts.until(2)] == [Receipt.STORED, Receipt.STORED]

        within(body)

    def test_what_is_kept_is_there_until_it_is_dropped(self, within):
        async def body(opened: Opened) -> None:
            done: list[str] = []
            last = asyncio.Event()
            opened.port.keep("a/1", b"x", lambda: done.append("a/1"))
            opened.port.keep("b/1", b"y", lambda: done.append("b/1"))
            assert (opened.port.kept("a/"), done) == ({"a/1": b"x"}, [])
            opened.port.keep("a/1", None, last.set)
            async with asyncio.timeout(LIMIT_S):
                await last.wait()
            assert (opened.port.kept(""), done) == ({"b/1": b"y"}, ["a/1", "b/1"])

        within(body)

    def test_a_port_says_whose_it_is(self, within):
        async def body(opened: Opened) -> None:
            assert opened.port.tenant
            assert opened.port.gateway

        within(body)
