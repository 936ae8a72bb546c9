"""The cost of security between a device and the gateway: DTLS and OSCORE beside plain CoAP, into the same gateway, in turn.

One device, confirmable requests of 120 bytes, 64 that wait for their 2.04. The gateway's CPU time until the last 2.04 is
measured, so the client's own work does not count; its records are sealed before the clock starts.
"""

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from processes import BIN, Bench, Metered, gateway_settings, port_of
from systems import READY_S, counts, wait_until

from fogline.gateway.device_credentials import DeviceCredentials, OscoreKey, PskKey
from fogline_edge.adapters.coap.wire import CoapMessage, Code, MessageType, Option, decode, encode
from fogline_edge.credentials.credential_file import CredentialFile
from fogline_lab.device.dtls_client import DtlsClient
from fogline_lab.device.oscore_client import OscoreDevice, echo_of

KEY = b"the key of meter"
WINDOW = 64
SHARE = 4
"""One event in so many of the gateway's rows."""
SUITES = {"ccm_8": 0xC0A8, "gcm": 0xD001}
OSCORE = OscoreKey(number=1, device_id=b"\x01\x02\x03\x04", secret=KEY, salt=b"salt")
SETTINGS = (
    "coap.oscore = true",
    "coap.port = 0",
    "coap.rate_s = 1e6",
    "coap.burst = 1000000",
    "coap.endpoint_rate_s = 1e6",
    "coap.endpoint_burst = 1000000",
    'coap.dtls.host = "127.0.0.1"',
    "coap.dtls.port = 0",
)
LIMIT_S = 60.0


class LastHop(NamedTuple):
    """A gateway that speaks CoAP with and without DTLS."""

    process: Metered
    plain: tuple[str, int]
    secure: tuple[str, int]


def measure(bench: Bench) -> dict[str, float]:
    """Each way in turn; the order changes with each run."""
    ways: list[str] = ["plain", "oscore", *SUITES]
    events, found = max(1000, bench.events // SHARE), dict[str, float]()
    with _gateway(bench) as hop:
        for way in ways if bench.number % 2 else reversed(ways):
            bench.say(f"CoAP, {way}")
            found[f"last_hop.cpu_{way}"] = asyncio.run(_through(hop, way, events)) / events * 1000
        bench.say("DTLS handshakes")
        found |= {f"last_hop.handshake_{way}": asyncio.run(_handshakes(hop, SUITES[way])) for way in SUITES}
    secure = ("oscore", *SUITES)
    return found | {f"last_hop.{way}": found[f"last_hop.cpu_{way}"] / found["last_hop.cpu_plain"] for way in secure}


@contextmanager
def _gateway(bench: Bench) -> Iterator[LastHop]:
    folder = bench.subfolder("last-hop")
    Path(folder, "data").mkdir()
    key = PskKey(number=1, identity="meter-0", key=KEY)
    devices = (("meter-0", key), ("meter-2", OSCORE))
    known = [DeviceCredentials(device=name, version=1, keys=[each]) for name, each in devices]
    CredentialFile(folder / "data", "bench/gw").write(known)
    with bench.child("null_peer", *bench.program("null_peer")) as peer:
        path = gateway_settings(folder, "gw", peer.next_line()["port"], more=SETTINGS)
        with bench.metered("last-hop", BIN / "fogline-edge", "run", "--insecure-dev", "--config", path) as process:
            ready = process.child.next_line()
            wait_until(lambda: bool(counts(peer)["welcomed"]), READY_S, "the gateway's hello")
            yield LastHop(process, *(("127.0.0.1", port_of(ready[name])) for name in ("coap", "coaps")))


async def _through(hop: LastHop, way: str, events: int) -> float:
    """Send the events. Return the CPU seconds that the gateway used for them."""
    if way == "plain":
        raw = _socket(hop.plain)
        seal: Callable[[bytes], bytes] = bytes
        device = "meter-1"
    elif way == "oscore":
        raw, device = _socket(hop.plain), "meter-2"
        seal = await _synchronized(raw, device)
    else:
        raw = _socket(hop.secure)
        seal = (await _connected(raw, SUITES[way])).seal
        device = "meter-0"
    requests = [seal(encode(_request(device, number))) for number in range(events)]
    before = hop.process.usage()
    loop = asyncio.get_running_loop()
    for number, each in enumerate(requests):
        if number >= WINDOW:
            await asyncio.wait_for(loop.sock_recv(raw, 2048), LIMIT_S)
        raw.send(each)
    for _ in range(min(WINDOW, events)):
        await asyncio.wait_for(loop.sock_recv(raw, 2048), LIMIT_S)
    raw.close()
    return hop.process.usage().since(before).cpu_s


async def _handshakes(hop: LastHop, suite: int, count: int = 200) -> float:
    """Return the CPU milliseconds that the gateway used for a handshake."""
    before = hop.process.usage()
    for _ in range(count):
        raw = _socket(hop.secure)
        await _connected(raw, suite)
        raw.close()
    return hop.process.usage().since(before).cpu_s / count * 1000


async def _synchronized(raw: socket.socket, name: str) -> Callable[[bytes], bytes]:
    """Answer the gateway's challenge. Return what seals requests from then on."""
    device, loop = OscoreDevice(OSCORE, "gw"), asyncio.get_running_loop()
    first, echo = _request(name, 0), None
    while True:
        raw.send(encode(device.seal(first, echo=echo)))
        answer = device.open(decode(await asyncio.wait_for(loop.sock_recv(raw, 2048), LIMIT_S)))
        if answer.code == Code.CHANGED:
            return lambda data: encode(device.seal(decode(data)))
        echo = echo_of(answer)
        first = CoapMessage(first.kind, first.code, first.mid + 1, first.token, first.options, first.payload)


async def _connected(raw: socket.socket, suite: int) -> DtlsClient:
    client = DtlsClient("meter-0", KEY, suites=(suite,))
    raw.send(client.hello())
    while not client.is_open:
        answer = client.receive(await asyncio.wait_for(asyncio.get_running_loop().sock_recv(raw, 2048), LIMIT_S))
        if answer:
            raw.send(answer)
    return client


def _request(device: str, number: int) -> CoapMessage:
    path = tuple((int(Option.URI_PATH), each.encode()) for each in ("telemetry", "bench", device))
    payload = f"{number:08d}".encode().ljust(120, b"x")
    return CoapMessage(MessageType.CON, Code.POST, number & 0xFFFF, number.to_bytes(4), path, payload)


def _socket(address: tuple[str, int]) -> socket.socket:
    raw = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    raw.setblocking(False)
    raw.connect(address)
    return raw
