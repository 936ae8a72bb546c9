"""The life of a device's key, by processes alone: from the command line to bridge, gateway and device, and its end.

The devices are other people's: aiocoap with OSCORE, and libcoap with DTLS.
"""

import asyncio
import base64
import json
import re
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from contracts.foreign import aiocoap_oscore
from e2e.command_line import fogline
from fogline.events.event import Lane
from fogline.gateway.device_credentials import OscoreKey
from fogline_cloud.credentials.vault import make_vault_key
from fogline_lab.amqp import within
from fogline_lab.gateway.gateway_process import GatewayProcess
from fogline_lab.line.line import Line
from fogline_lab.supervisor import ChildProcess, find_script, start_child, stop_children
from fogline_lab.waiting import until

LIBCOAP = "coap-client-openssl"
REVOKED_WITHIN_S = 60.0
LISTENERS = '[coap]\nport = 0\noscore = true\n[coap.dtls]\nhost = "127.0.0.1"\nport = 0\n'
Credential = dict[str, Any]


@dataclass
class Site:
    """A bridge and a gateway, each a process, and the command line of who runs them."""

    line: Line
    gateway: GatewayProcess
    sent: list[bytes]

    async def asks(self, *words: str) -> Credential:
        done = await fogline(self.line, "credentials", *words, "--json", group="device")
        found = json.loads(done.out or "{}")
        assert (done.status, found.get("ok")) == (0, True), done.err
        return found.get("credential", {})

    async def given(self, action: str, device: str, credential: Credential, *more: str) -> Credential:
        """Give a device a key that it has already."""
        file = self.line.folder / "key.json"
        file.touch(0o600)
        file.write_text(json.dumps(credential))
        return await self.asks(action, device, "--from", str(file), *more)

    @property
    def log(self) -> str:
        return (self.line.folder / "edge.log").read_text()

    async def landed(self) -> list[bytes]:
        """The bodies of all events in Kafka."""
        records = await asyncio.to_thread(self.line.records, Lane.TELEMETRY)
        return sorted(each.value for each in records if each.value in self.sent)


@asynccontextmanager
async def site(line: Line) -> AsyncIterator[Site]:
    folder = line.folder
    key = folder / "credentials.key"
    key.touch(0o600)
    key.write_text(make_vault_key())
    config = folder / "bridge.toml"
    config.write_text(
        f'tenant = "{line.tenant}"\nshards = 2\n[kafka]\n"bootstrap.servers" = "{line.cloud.kafka["bootstrap.servers"]}"\n'
        '[bridge]\nlisten = "127.0.0.1:0"\n[devices]\ncredentials_key = "credentials.key"\n'
    )
    command = [find_script("fogline"), "bridge", "run", "--insecure-dev", "--config", config]
    bridge = ChildProcess("bridge", command, folder / "bridge.log")
    try:
        line.port = int((await start_child(bridge))["amqp"].rpartition(":")[2])
        gateway = GatewayProcess(folder, line.port, LISTENERS, tenant=line.tenant)
        await gateway.start()
        try:
            yield Site(line, gateway, [])
        finally:
            await gateway.stop()
    finally:
        await stop_children(bridge)


class Oscore:
    """aiocoap, which keeps the sequence number of each key in `folder`. Each key has a Sender ID of its own."""

    folder: Path = Path()

    refused = "no key has Sender ID {name}: it was revoked or replaced (key {number} of {device}, "

    def new(self, device: str, number: int) -> Credential:
        del device
        text = [base64.b64encode(bytes([number]) * size).decode() for size in (4, 16, 8)]
        return {"kind": "oscore", **dict(zip(("device_id", "secret", "salt"), text, strict=True))}

    def name(self, credential: Credential) -> str:
        return base64.b64decode(credential["device_id"]).hex()

    async def send(self, gateway: GatewayProcess, credential: Credential, body: bytes) -> bool:
        """Return True if the event was accepted."""
        key = msgspec.convert({"number": 1, **credential}, OscoreKey)
        events = [{"path": "telemetry", "payload": body.decode()}]
        state = str(self.folder / self.name(credential))
        (answer,) = await aiocoap_oscore.device(gateway.address("coap"), key, events=events, folder=state)
        assert (answer["code"], answer["payload"]) in (("2.04 Changed", ""), ("4.01 Unauthorized", "unknown-key"))
        return bool(answer["code"] == "2.04 Changed")


class Dtls:
    """libcoap. Each key has an identity of its own."""

    folder: Path = Path()

    refused = "no key has this identity: it was revoked or replaced (key {number} of {device}, "

    def new(self, device: str, number: int) -> Credential:
        identity = f"{device}/{number}"
        return {"kind": "psk", "identity": identity, "key": base64.b64encode(f"{identity:->16}".encode()).decode()}

    def name(self, credential: Credential) -> str:
        return str(credential["identity"])

    async def send(self, gateway: GatewayProcess, credential: Credential, body: bytes) -> bool:
        """Return True if the event was accepted."""
        host, port = gateway.address("coaps")
        login = ("-u", credential["identity"], "-k", base64.b64decode(credential["key"]).decode())
        process = await asyncio.create_subprocess_exec(
            LIBCOAP, "-v", "6", "-B", "10", *login, "-m", "put", "-t", "0", "-e", body.decode(), f"coaps://{host}:{port}/t",
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        said, _ = await within(process.communicate(), "libcoap does not end", 60)
        return re.search(rb"\b2\.04\b", said) is not None


@pytest.mark.slow
@pytest.mark.parametrize("device", [Oscore(), Dtls()], ids=["aiocoap", "libcoap"])
async def test_a_key_from_the_command_line_lets_a_device_in_until_it_is_revoked(line, device):
    if isinstance(device, Dtls) and shutil.which(LIBCOAP) is None:
        pytest.skip(f"{LIBCOAP} is not installed")
    device.folder = line.folder
    async with site(line) as here:
        first, second = device.new("lamp-1", 1), device.new("lamp-1", 2)

        def sends(credential: Credential) -> Callable[[], Awaitable[bool]]:
            body = f"event {len(here.sent)}".encode()
            here.sent.append(body)
            return lambda: device.send(here.gateway, credential, body)

        assert not await device.send(here.gateway, first, b"before it has a key")
        await here.given("add", "lamp-1", first)
        await until(sends(first), "the device is not let in with its key")
        await here.given("rotate", "lamp-1", second, "--overlap", "7d")
        await until(sends(second), "the device is not let in with its new key")
        assert await sends(first)(), "the former key does not count during the overlap"
        await here.asks("revoke", "lamp-1", "--number", "1")
        began = asyncio.get_running_loop().time()
        tries = sends(first)

        async def is_refused() -> bool:
            return not await tries()

        await until(is_refused, "the revoked key still counts", REVOKED_WITHIN_S)
        assert asyncio.get_running_loop().time() - began < REVOKED_WITHIN_S
        line_of_log = device.refused.format(name=device.name(first), number=1, device="lamp-1")
        assert line_of_log in here.log
        assert await sends(second)(), "the new key does not count after the former one's end"
        await here.asks("revoke", "lamp-1")
        tries = sends(second)
        await until(is_refused, "the device is let in without any key", REVOKED_WITHIN_S)
        assert device.refused.format(name=device.name(second), number=2, device="lamp-1") in here.log
        accepted = [each for number, each in enumerate(here.sent) if number not in (3, 5)]
        await until(lambda: has_landed(here, accepted), "the events are not in Kafka")
        for each in (first, second):
            secret = each.get("secret") or each["key"]
            assert secret not in here.log + (line.folder / "bridge.log").read_text()


async def has_landed(here: Site, accepted: list[bytes]) -> bool:
    """Each event once, and those that were refused in the end not more than once."""
    landed = await here.landed()
    assert len(set(landed)) == len(landed), "an event landed twice"
    return set(accepted) <= set(landed)
