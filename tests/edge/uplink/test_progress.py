"""A connection, or a stream of it, on which nothing moves is given up, and another one opened."""

import asyncio

import msgspec

from fogline import address
from fogline.amqp.backoff import Backoff
from fogline.events.event import Lane
from fogline.gateway import hello
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.settings import EdgeSettings, UplinkSettings
from fogline_edge.uplink import stream_pumps
from fogline_edge.uplink.uplink import Uplink
from fogline_lab.bridge.accepting_bridge import AcceptingBridge
from fogline_lab.events import make_arrival


class Stuck(AcceptingBridge):
    """Says nothing of what comes on its first connection, and takes everything on the next."""

    def __init__(self) -> None:
        super().__init__()
        self.connections = 0

    def opened(self, connection, peer) -> None:
        self.connections += 1
        super().opened(connection, peer)

    def received(self, connection, delivery, data) -> None:
        if self.connections > 1 or isinstance(self._places[delivery.link], address.HelloAddress):
            super().received(connection, delivery, data)


async def test_a_bridge_that_settles_nothing_is_left_and_the_gateway_lives(folder, monkeypatch):
    monkeypatch.setattr(stream_pumps, "PROGRESS_S", 0.2)
    bridge = Stuck()
    uplink = UplinkSettings(bridge=f"127.0.0.1:{await bridge.serve()}")
    outbox = Outbox.open(EdgeSettings(tenant="acme", gateway="gw-1", data=str(folder / "data"), uplink=uplink))
    serving = asyncio.create_task(Uplink(outbox, uplink, lambda *_: None, Backoff(0.01, 0.01)).run())
    outbox.port.put(make_arrival(1), lambda _: None)
    await bridge.until(bridge.events, "the gateway does not send it again")
    assert not serving.done()
    serving.cancel()
    await asyncio.wait({serving})
    await outbox.close()
    bridge.close()


class StuckLane(AcceptingBridge):
    """Says nothing of what comes on lane `alarm` of its first connection; everything else it takes."""

    def __init__(self) -> None:
        super().__init__()
        self.connections = 0
        self.lanes = {}

    def opened(self, connection, peer) -> None:
        self.connections += 1
        super().opened(connection, peer)

    def link_requested(self, connection, link) -> None:
        self.lanes[link] = link.properties.get("lane")
        super().link_requested(connection, link)

    def received(self, connection, delivery, data) -> None:
        if self.connections > 1 or self.lanes[delivery.link] != "alarm":
            super().received(connection, delivery, data)


async def test_one_stuck_stream_is_noticed_while_another_moves(folder, monkeypatch):
    """G15: settlements of any stream hid it."""
    monkeypatch.setattr(stream_pumps, "PROGRESS_S", 0.2)
    bridge = StuckLane()
    uplink = UplinkSettings(bridge=f"127.0.0.1:{await bridge.serve()}")
    outbox = Outbox.open(EdgeSettings(tenant="acme", gateway="gw-1", data=str(folder / "data"), uplink=uplink))
    serving = asyncio.create_task(Uplink(outbox, uplink, lambda *_: None, Backoff(0.01, 0.01)).run())
    sent = 0

    def busy() -> None:
        nonlocal sent, timer
        sent += 1
        outbox.port.put(make_arrival(sent), lambda _: None)
        timer = asyncio.get_running_loop().call_later(0.02, busy)

    timer = asyncio.get_running_loop().call_later(0, busy)
    outbox.port.put(make_arrival(1, lane=Lane.ALARM), lambda _: None)
    await bridge.until(lambda: any(event.lane is Lane.ALARM for _, event in bridge.came), "the stuck stream is not noticed")
    timer.cancel()
    assert bridge.connections >= 2
    assert not serving.done()
    serving.cancel()
    await asyncio.wait({serving})
    await outbox.close()
    bridge.close()


class Confused(AcceptingBridge):
    """Its welcome names a stream that the gateway never had."""

    def welcome(self, asked: hello.Hello) -> bytes:
        found = hello.decode_welcome(super().welcome(asked))
        marks = [hello.Mark("no-such-stream", 7, 7, "ab"), *found.marks]
        return hello.encode_hello(msgspec.structs.replace(found, marks=marks))


async def test_a_welcome_with_an_unknown_stream_does_not_end_the_gateway(folder, caplog):
    """G15: it raised `KeyError`, and ended the process."""
    bridge = Confused()
    uplink = UplinkSettings(bridge=f"127.0.0.1:{await bridge.serve()}")
    outbox = Outbox.open(EdgeSettings(tenant="acme", gateway="gw-1", data=str(folder / "data"), uplink=uplink))
    serving = asyncio.create_task(Uplink(outbox, uplink, lambda *_: None, Backoff(0.01, 0.01)).run())
    outbox.port.put(make_arrival(1), lambda _: None)
    waited = [serving, asyncio.ensure_future(bridge.until(lambda: bridge.came, "nothing comes"))]
    await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
    assert not serving.done()
    assert "'no-such-stream', which this outbox does not have" in caplog.text
    serving.cancel()
    await asyncio.wait({serving})
    await outbox.close()
    bridge.close()
