"""CoAP over DTLS at the gateway's listener: events, commands, the end of keys, and what the log says of refusals."""

import asyncio
import logging
from pathlib import Path

import pytest

from edge.coap.client import request
from edge.coap.dtls_talk import KEY, key_of
from edge.coap.dtls_wire import secure_wire, secured, store_of
from fogline.errors import Misconfigured
from fogline_edge.adapters.coap.access import check_coap
from fogline_edge.adapters.coap.dtls import transport
from fogline_edge.adapters.coap.wire import Code, Option, encode
from fogline_edge.listener_settings import CoapDtlsSettings
from fogline_edge.settings import CoapSettings
from fogline_lab.commands import MemoryCommands, make_command
from fogline_lab.port import MemoryPort

OBSERVE = (int(Option.OBSERVE), b"")


@pytest.fixture(autouse=True)
def fresh_throttle():
    """Lines of other tests are no reason to leave lines out."""
    for each in transport._log.filters:
        each._passed.clear()


async def test_device_sends_as_itself_and_needs_not_name_itself():
    port = MemoryPort()
    async with secured(port, store_of("d1")) as listener:
        assert set(listener.addresses) == {"coaps"}, "with DTLS, nothing is spoken without it unless the settings say so"
        with secure_wire(listener.addresses["coaps"]) as wire:
            assert await wire.handshake()
            assert (await wire.ask(request("telemetry/acme/d1", b"1", mid=1))).code == Code.CHANGED
            assert (await wire.ask(request("t//d1", b"2", mid=2))).code == Code.CHANGED
            assert (await wire.ask(request("e", b"3", mid=3))).code == Code.CHANGED
    assert [(each.device, each.data) for each in port.arrivals] == [("d1", b"1"), ("d1", b"2"), ("d1", b"3")]


@pytest.mark.fault("S11")
async def test_device_does_not_speak_for_another_one():
    port, commands = MemoryPort(), MemoryCommands()
    async with secured(port, store_of("d1", "d2"), commands) as listener:
        with secure_wire(listener.addresses["coaps"]) as wire:
            assert await wire.handshake()
            for mid, path in enumerate(("telemetry/acme/d2", "command_response/acme/d2/c-1", "event/acme/d3"), 1):
                refused = await wire.ask(request(path, mid=mid))
                assert (refused.code, refused.payload) == (Code.FORBIDDEN, b"other-device")
            observe = request("command/acme/d2", b"", mid=9, code=Code.GET, options=(OBSERVE,))
            assert (await wire.ask(observe)).code == Code.FORBIDDEN
    assert (port.arrivals, commands.devices) == ([], {})


@pytest.mark.fault("S11")
async def test_refusals_are_one_line_each_that_says_which(caplog):
    port, store = MemoryPort(), store_of("d1", "d2")
    caplog.set_level(logging.INFO)
    async with secured(port, store) as listener:
        address = listener.addresses["coaps"]
        with secure_wire(address, "d1", KEY[::-1]) as wire:
            assert not await wire.handshake()
        with secure_wire(address, "stranger") as wire:
            assert not await wire.handshake()
        with secure_wire(address, suites=(0x00B0,)) as wire:
            assert not await wire.handshake()
        with secure_wire(address) as wire:
            assert await wire.handshake()
            wire.raw.send(b"\x40\x03\0\x01")
            event = wire.client.seal(b"\x70\0\0\x01")  # an Empty Reset
            wire.raw.send(event)
            wire.raw.send(event)
            assert (await wire.ask(request("t//d1"))).code == Code.CHANGED
            store.change([key_of("d1", b"the newest key !", 2)])
            await wire.ended()
            wire.raw.send(event)
        with secure_wire(address, "d2") as last:
            assert await last.handshake()
        counters = listener.dtls_counters
        assert counters is not None
    lines = [each.getMessage() for each in caplog.records if "refused (" in each.getMessage()]
    reasons = ("wrong-key", "unknown-identity", "weak-suites", "plain-coap", "replayed", "revoked", "no-session")
    assert [line.split("(")[1].split(")")[0] for line in lines if line.startswith("DTLS")] == list(reasons)
    assert counters.refused == dict.fromkeys(reasons, 1)
    assert KEY.decode() not in caplog.text


async def test_device_that_moves_goes_on_in_its_session():
    port = MemoryPort()
    async with secured(port, store_of("d1")) as listener:
        with secure_wire(listener.addresses["coaps"], cid=b"") as wire:
            assert await wire.handshake()
            assert (await wire.ask(request("t", b"1", mid=1))).code == Code.CHANGED
            wire.move()
            assert (await wire.ask(request("t", b"1", mid=1))).code == Code.CHANGED, "a duplicate, from elsewhere"
            assert (await wire.ask(request("t", b"2", mid=2))).code == Code.CHANGED
            assert listener.dtls_counters is not None
            assert listener.dtls_counters.moved == 1
    assert [each.data for each in port.arrivals] == [b"1", b"2"]


async def test_command_reaches_a_device_that_observes_only_in_its_session():
    port, commands = MemoryPort(), MemoryCommands()
    async with secured(port, store_of("lamp-1"), commands) as listener:
        with secure_wire(listener.addresses["coaps"], "lamp-1", cid=b"") as wire:
            assert await wire.handshake()
            observe = request("command//lamp-1", b"", mid=1, code=Code.GET, options=(OBSERVE,))
            assert (await wire.ask(observe)).code == Code.CONTENT
            await commands.until(lambda: "lamp-1" in commands.devices, "the device is reachable")
            wire.move()
            assert (await wire.ask(request("t", b"moved", mid=2))).code == Code.CHANGED
            commands.send(make_command())
            notification = await wire.receive()
            assert notification.payload == b'{"on":true}'
            wire.raw.send(wire.client.seal(bytes([0x60, 0]) + notification.mid.to_bytes(2)))
            await commands.until(lambda: commands.told == [("taken", "CMD-1")], "the device has acknowledged it")


async def test_end_of_the_session_makes_a_device_unreachable_at_once():
    port, commands, store = MemoryPort(), MemoryCommands(), store_of("lamp-1", "lamp-2")
    async with secured(port, store, commands) as listener:
        with (
            secure_wire(listener.addresses["coaps"], "lamp-1") as one,
            secure_wire(listener.addresses["coaps"], "lamp-2") as two,
        ):
            assert await one.handshake()
            assert await two.handshake()
            observe = request("command//lamp-1", b"", mid=1, code=Code.GET, options=(OBSERVE,))
            assert (await one.ask(observe)).code == Code.CONTENT
            two.raw.send(two.client.seal(bytes_of_poll()))
            await commands.until(lambda: {"lamp-1", "lamp-2"} <= set(commands.devices), "both are reachable")
            store.change([], ["lamp-1", "lamp-2"])
            await one.ended()
            await two.ended()
            assert commands.devices == {}


def bytes_of_poll() -> bytes:
    return encode(request("t", b"x", mid=5, query=("hono-ttd=50",)))


async def test_plain_text_on_a_network_stays_refused_beside_dtls():
    dtls = CoapDtlsSettings()
    check_coap(CoapSettings(host="0.0.0.0", dtls=dtls))
    check_coap(CoapSettings(port=5683, dtls=dtls))
    check_coap(CoapSettings(host="0.0.0.0", port=5683, plain_on_lan=True, dtls=dtls))
    with pytest.raises(Misconfigured, match=r"\[coap.dtls\]"):
        check_coap(CoapSettings(host="0.0.0.0", port=5683, dtls=dtls))


async def test_device_with_a_key_is_refused_on_the_plain_port(dial):
    port = MemoryPort()
    async with secured(port, store_of("d1"), plain=0) as listener:
        with dial(listener) as plain:
            refused = await plain.ask(request("telemetry/acme/d1"))
            assert (refused.code, refused.payload) == (Code.UNAUTHORIZED, b"unprotected")
    assert port.arrivals == []


async def hostile(address: tuple[str, int], count: int) -> None:
    """Handshakes that fail, each in one of the ways, and leave nothing."""
    for number in range(count):
        match number % 5:
            case 0:
                with secure_wire(address, "d1", KEY[::-1]) as wire:
                    assert not await wire.handshake()
            case 1:
                with secure_wire(address, f"stranger-{number}") as wire:
                    assert not await wire.handshake()
            case 2:
                with secure_wire(address, suites=(0x00B0, 0x00A6)) as wire:
                    assert not await wire.handshake()
            case 3:
                with secure_wire(address) as wire:
                    await wire.half_open()
            case 4:
                with secure_wire(address) as wire:
                    wire.raw.send(b"\x40\x03\0\x01")
                    wire.raw.send(bytes(range(256)))


def memory_kib() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4


async def flood(caplog: pytest.LogCaptureFixture, count: int, most_kib: int) -> None:
    caplog.set_level(logging.INFO)
    port = MemoryPort()
    async with secured(port, store_of("d1", "good")) as listener:
        address = listener.addresses["coaps"]
        await hostile(address, 300)
        before_kib = memory_kib()
        attack = asyncio.create_task(hostile(address, count))
        repeats = []
        for mid in range(10):
            with secure_wire(address, "good") as wire:
                assert await wire.handshake()
                assert (await wire.ask(request("t", b"event", mid=mid))).code == Code.CHANGED
                repeats.append(wire.repeats)
        await attack
        grown_kib = memory_kib() - before_kib
        counters = listener.dtls_counters
        assert counters is not None
        assert set(counters.refused) >= {"wrong-key", "unknown-identity", "weak-suites", "plain-coap", "malformed"}
        assert counters.sessions <= 10
    assert grown_kib < most_kib, f"{grown_kib} KiB more after {count} refused handshakes"
    assert sorted(repeats)[5] == 0, "it has its session within a second, the time after which it would repeat itself"
    assert len(port.arrivals) == 10
    lines = [each for each in caplog.messages if "DTLS: refused" in each]
    assert len(lines) < 100, "strangers do not fill the disk"


@pytest.mark.fault("S5")
async def test_refused_handshakes_leave_memory_flat_and_a_good_device_is_served(caplog):
    await flood(caplog, 500, 4096)


@pytest.mark.slow
@pytest.mark.fault("S5")
async def test_ten_thousand_refused_handshakes_leave_memory_flat_and_a_good_device_is_served(caplog):
    await flood(caplog, 10_000, 4096)
