"""A bridge that closes links and sessions: only what it closed is opened again, and nothing is lost or sent for ever."""

import asyncio
from collections import Counter
from typing import Self

import pytest

from fogline.amqp.backoff import Backoff
from fogline.amqp.outcome import (
    INTERNAL_ERROR,
    LINK_STOLEN,
    MESSAGE_SIZE_EXCEEDED,
    NOT_FOUND,
    RESOURCE_LIMIT,
    UNAUTHORIZED,
    Condition,
)
from fogline.events.event import Lane
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.settings import EdgeSettings, UplinkSettings
from fogline_edge.uplink import lanes as module
from fogline_edge.uplink.uplink import Uplink
from fogline_lab.bridge.accepting_bridge import AcceptingBridge
from fogline_lab.events import make_arrival

FAILED = Condition(INTERNAL_ERROR, "a bug")


class Detaching(AcceptingBridge):
    """Keeps its links by lane; `detach` closes one. `connections`: how many there were; `attached`: how often each lane was."""

    def __init__(self) -> None:
        super().__init__()
        self.links = {}
        self.connections = 0
        self.attached: Counter[str] = Counter()
        self.refusing: dict[str, Condition] = {}

    def opened(self, connection, peer) -> None:
        self.connections += 1
        self.connection = connection
        super().opened(connection, peer)

    def link_requested(self, connection, link) -> None:
        lane = link.properties.get("lane")
        if lane is not None:
            self.attached[lane] += 1
            self.links[lane] = link
            if lane in self.refusing:
                connection.refuse_link(link, self.refusing[lane])
                self._changed.set()
                return
        super().link_requested(connection, link)
        self._changed.set()

    def detach(self, lane: Lane, condition: Condition = FAILED) -> None:
        self.connection.refuse_link(self.links[lane], condition)

    def end_session(self, lane: Lane) -> None:
        self.links[lane].native.session.close()
        self.connection.grant(self.links[Lane.ALARM], 1)

    def numbers(self) -> set[bytes]:
        return {event.data for _, event in self.came if event.adapter == "mqtt"}


class Line:
    """A gateway of this process, connected to `bridge`."""

    def __init__(self, folder, monkeypatch) -> None:
        monkeypatch.setattr(module, "RETRY_S", 0.02)
        self.bridge = Detaching()
        self.folder = folder
        self.sent = 0

    async def __aenter__(self) -> Self:
        uplink = UplinkSettings(bridge=f"127.0.0.1:{await self.bridge.serve()}", batch_events=5)
        self.outbox = Outbox.open(EdgeSettings(tenant="acme", gateway="gw-1", data=str(self.folder / "data"), uplink=uplink))
        self.uplink = asyncio.create_task(Uplink(self.outbox, uplink, no_commands, Backoff(0.02, 0.02)).run())
        return self

    async def __aexit__(self, *_) -> None:
        self.uplink.cancel()
        await asyncio.wait({self.uplink})
        await self.outbox.close()
        self.bridge.close()

    async def arrives(self, *lanes: Lane) -> None:
        """Something new on each lane is there."""
        numbers = set()
        for lane in lanes:
            self.sent += 1
            self.outbox.port.put(make_arrival(self.sent, lane=lane), lambda _: None)
            numbers.add(b'{"n": %d}' % self.sent)
        await self.bridge.until(lambda: numbers <= self.bridge.numbers(), f"{lanes} do not arrive")


def no_commands(*_) -> None:
    raise AssertionError("nobody has sent a command")


@pytest.mark.fault("N3")
async def test_a_lane_that_is_detached_is_attached_again_and_the_others_go_on(folder, monkeypatch):
    async with Line(folder, monkeypatch) as line:
        await line.arrives(Lane.TELEMETRY, Lane.ALARM)
        for _ in range(20):
            line.bridge.detach(Lane.ALARM)
            await line.arrives(Lane.TELEMETRY)
            await line.arrives(Lane.ALARM)
        assert line.bridge.connections == 1
        assert line.bridge.attached == {"alarm": 21, "telemetry": 1, "bulk": 1, "reply": 1}
        assert len(line.bridge.numbers()) == line.sent == len(line.bridge.events()), "each came, and none twice"


@pytest.mark.fault("N3")
async def test_a_session_that_ends_is_begun_again_with_its_lanes(folder, monkeypatch):
    async with Line(folder, monkeypatch) as line:
        await line.arrives(Lane.TELEMETRY, Lane.ALARM)
        for _ in range(5):
            line.bridge.end_session(Lane.ALARM)
            await line.arrives(Lane.TELEMETRY, Lane.ALARM)
        assert line.bridge.connections == 1


@pytest.fixture
def waits(monkeypatch) -> list[float]:
    """Collect the upper limit of each pause, and replace the pause by none."""
    longest: list[float] = []
    next_s = Backoff.next_s

    def none(backoff: Backoff) -> float:
        backoff.draw = lambda low, high: longest.append(high) or low
        return next_s(backoff)

    monkeypatch.setattr(Backoff, "next_s", none)
    return longest


@pytest.mark.fault("N3")
async def test_a_lane_that_is_refused_is_tried_less_and_less_often_and_the_others_go_on(folder, monkeypatch, waits):
    async with Line(folder, monkeypatch) as line:
        await line.arrives(Lane.TELEMETRY, Lane.BULK)
        line.bridge.refusing["bulk"] = FAILED
        line.bridge.detach(Lane.BULK)
        line.outbox.port.put(make_arrival(99, lane=Lane.BULK), lambda _: None)
        await line.bridge.until(lambda: len(waits) >= 20, "it does not try again")
        await line.arrives(Lane.TELEMETRY)
        del line.bridge.refusing["bulk"]
        await line.arrives(Lane.BULK)
        assert b'{"n": 99}' in line.bridge.numbers()
        tries = len(waits)
        line.bridge.detach(Lane.BULK)
        await line.arrives(Lane.BULK)
        assert line.bridge.connections == 1
    assert waits[:tries] == [min(60.0, 0.02 * 2**n) for n in range(tries)]
    assert waits[tries:] == [0.02], "what has served is new again"


@pytest.mark.parametrize(
    ("condition", "longest_s"),
    [
        (Condition("amqp:link:detach-forced"), 0.02),
        (Condition(RESOURCE_LIMIT), 5.0),
        (Condition(MESSAGE_SIZE_EXCEEDED), 30.0),
    ],
    ids=str,
)
@pytest.mark.fault("N3")
async def test_how_long_a_lane_waits_goes_by_why_it_was_closed(folder, monkeypatch, waits, condition, longest_s):
    async with Line(folder, monkeypatch) as line:
        await line.arrives(Lane.TELEMETRY)
        line.bridge.detach(Lane.TELEMETRY, condition)
        await line.arrives(Lane.TELEMETRY)
        assert line.bridge.connections == 1
    assert waits == [longest_s]


@pytest.mark.parametrize("condition", [Condition(NOT_FOUND), Condition(UNAUTHORIZED), Condition(LINK_STOLEN)], ids=str)
@pytest.mark.fault("N3")
async def test_where_the_shard_is_elsewhere_or_the_gateway_not_wanted_a_new_hello_has_to_say(folder, monkeypatch, condition):
    async with Line(folder, monkeypatch) as line:
        await line.arrives(Lane.TELEMETRY)
        line.bridge.detach(Lane.TELEMETRY, condition)
        await line.arrives(Lane.TELEMETRY)
        assert line.bridge.connections == 2
