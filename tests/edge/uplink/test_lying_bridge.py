"""Two bridges in the settings, and the first does not serve: the events reach the other one."""

import asyncio

import pytest

from fogline.amqp.backoff import Backoff
from fogline.amqp.outcome import DECODE_ERROR, UNAUTHORIZED, Condition, rejected
from fogline.gateway import hello
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.settings import EdgeSettings, UplinkSettings
from fogline_edge.uplink import session
from fogline_edge.uplink import uplink as module
from fogline_edge.uplink.uplink import Uplink
from fogline_lab import amqp_bytes as raw
from fogline_lab.bridge.accepting_bridge import AcceptingBridge
from fogline_lab.events import make_arrival


class Garbled(AcceptingBridge):
    """Its answer to hello cannot be read."""

    def welcome(self, asked) -> bytes:  # noqa: ARG002 - the interface
        return b'{"protocol":"one","marks":' + b"[" * 2000


class SendsOn(AcceptingBridge):
    """Names itself as the bridge to go to."""

    async def serve(self) -> int:
        self._port = await super().serve()
        return self._port

    def welcome(self, asked) -> bytes:  # noqa: ARG002 - the interface
        return hello.encode_hello(hello.Welcome(protocol=1, refused="not here", redirect=f"127.0.0.1:{self._port}"))


class SendsAway(AcceptingBridge):
    """Asks to be left alone for a moment, each time."""

    def welcome(self, asked) -> bytes:  # noqa: ARG002 - the interface
        return hello.encode_hello(hello.Welcome(protocol=1, refused="not now", retry_after_s=0.01))


class RejectsHello(AcceptingBridge):
    """Rejects the first message on each connection."""

    def received(self, connection, delivery, data) -> None:  # noqa: ARG002 - the interface
        connection.settle(delivery, rejected(DECODE_ERROR, "no"))


class TurnsAway(AcceptingBridge):
    """Closes each connection with an error."""

    def opened(self, connection, peer) -> None:
        super().opened(connection, peer)
        connection.close(Condition(UNAUTHORIZED, "no"))


class WrongTypes(AcceptingBridge):
    """Answers the open frame with a frame whose fields have the wrong types."""

    def opened(self, connection, peer) -> None:
        super().opened(connection, peer)
        connection.protocol.transport.write(raw.attaching("t", raw.mapped(raw.listed(raw.text("k")), raw.text("v"))))


@pytest.mark.parametrize("liar", [Garbled, SendsOn, SendsAway, RejectsHello, TurnsAway, WrongTypes])
async def test_events_reach_the_other_bridge(folder, monkeypatch, liar):
    monkeypatch.setattr(session, "HELLO_S", 0.2)
    monkeypatch.setattr(module, "REDIRECTED_S", 0.01)
    lying, honest = liar(), AcceptingBridge()
    ports = [await each.serve() for each in (lying, honest)]
    uplink = UplinkSettings(bridge=[f"127.0.0.1:{port}" for port in ports])
    outbox = Outbox.open(EdgeSettings(tenant="acme", gateway="gw-1", data=str(folder / "data"), uplink=uplink))
    serving = asyncio.create_task(Uplink(outbox, uplink, lambda *_: None, Backoff(0.01, 0.01)).run())
    try:
        outbox.port.put(make_arrival(1), lambda _: None)
        await honest.until(honest.events, "the event does not come to the honest bridge")
        assert not serving.done()
        assert lying.came == []
    finally:
        serving.cancel()
        await asyncio.wait({serving})
        await outbox.close()
        for each in (lying, honest):
            each.close()
