"""A flood of refused requests under OSCORE: memory stays flat, the log says which they were, and a good device is served."""

import logging
from pathlib import Path

import pytest

from edge.coap.client import Wire, request
from fogline.gateway.device_credentials import DeviceCredentials, OscoreKey
from fogline_edge.adapters.coap.listener import CoapListener
from fogline_edge.adapters.coap.wire import Code
from fogline_edge.credentials.credential_store import CredentialStore
from fogline_edge.settings import CoapSettings
from fogline_lab.device.oscore_client import OscoreDevice, echo_of, with_mid
from fogline_lab.port import MemoryPort

KINDS = ("not-decrypted", "unknown-key", "replayed", "other-device", "unprotected")
QUICK = {"rate_s": 1e6, "burst": 1_000_000, "endpoint_rate_s": 1e6, "endpoint_burst": 1_000_000, "max_exchanges": 500}


def key(device_id: bytes, secret: bytes = bytes(range(16))) -> OscoreKey:
    return OscoreKey(number=1, device_id=device_id, secret=secret)


def memory_kib() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4


async def synchronized(wire: Wire, device: OscoreDevice, name: str) -> None:
    challenge = device.open(await wire.ask(device.seal(request(f"telemetry//{name}", b"first"))))
    answered = await wire.ask(device.seal(request(f"telemetry//{name}", b"first", mid=2), echo=echo_of(challenge)))
    assert device.open(answered).code == Code.CHANGED


async def hostile(wire: Wire, known: OscoreDevice, numbers: range) -> None:
    """Send requests that are refused, of each kind in turn."""
    forger, stranger = OscoreDevice(key(b"\x01\x01", bytes(16))), OscoreDevice(key(b"\x09\x09"))
    forger.sequence = stranger.sequence = numbers.start
    recorded = known.seal(request("telemetry//d1", b"event", mid=9))
    assert known.open(await wire.ask(recorded)).code == Code.CHANGED
    for number in numbers:
        mid = 10 + number
        sent = request("telemetry//d1", b"forged", mid=mid)
        match KINDS[number % 5]:
            case "not-decrypted":
                refused = await wire.ask(forger.seal(sent))
            case "unknown-key":
                refused = await wire.ask(stranger.seal(sent))
            case "replayed":
                refused = await wire.ask(with_mid(recorded, mid))
            case "other-device":
                refused = known.open(await wire.ask(known.seal(request("telemetry//d2", b"forged", mid=mid))))
            case _:
                refused = await wire.ask(sent)
        assert refused.payload == KINDS[number % 5].encode()


async def flood(dial, caplog: pytest.LogCaptureFixture, count: int, most_kib: int) -> list[str]:
    """Return the lines of the log about refused requests."""
    caplog.set_level(logging.INFO)
    names = {"d1": b"\x01\x01", "d2": b"\x02\x02", "good": b"\x03\x03"}
    keys = CredentialStore(DeviceCredentials(device=name, version=1, keys=[key(made)]) for name, made in names.items())
    port = MemoryPort()
    listener = CoapListener(port, CoapSettings(port=0, oscore=True, **QUICK), credentials=keys)
    await listener.start()
    try:
        with dial(listener) as wire, dial(listener) as own:
            known, good = OscoreDevice(key(names["d1"])), OscoreDevice(key(names["good"]))
            await synchronized(wire, known, "d1")
            await synchronized(own, good, "good")
            await hostile(wire, known, range(1000))
            before_kib = memory_kib()
            for turn in range(10):
                begin = 1000 + turn * (count // 10)
                await hostile(wire, known, range(begin, begin + count // 10))
                served = good.open(await own.ask(good.seal(request("telemetry//good", b"event", mid=100 + turn))))
                assert served.code == Code.CHANGED
            grown_kib = memory_kib() - before_kib
        assert grown_kib < most_kib, f"{grown_kib} KiB more after {count} refused requests"
        assert {name: listener.counters.refused[name] for name in KINDS} == dict.fromkeys(KINDS, (count + 1000) // 5)
    finally:
        await listener.close()
    assert {each.device for each in port.arrivals} == {"d1", "good"}
    assert not [each for each in port.arrivals if each.data == b"forged"]
    lines = [each for each in caplog.messages if "refused" in each]
    assert len(lines) < 50, "strangers do not fill the disk"
    return lines


@pytest.mark.fault("S11")
async def test_refused_requests_leave_memory_flat_and_a_good_device_is_served(dial, caplog):
    lines = await flood(dial, caplog, 500, 4096)
    assert [kind for kind in KINDS if not any(kind in each for each in lines)] == []


@pytest.mark.slow
@pytest.mark.fault("S11")
async def test_ten_thousand_refused_requests_leave_memory_flat_and_a_good_device_is_served(dial, caplog):
    await flood(dial, caplog, 10_000, 4096)
