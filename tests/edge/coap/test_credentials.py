"""Devices with keys: without protection nobody speaks for them, and no command goes to them."""

import socket

import pytest

from edge.coap.client import request
from fogline.gateway.device_credentials import DeviceCredentials, OscoreKey, PskKey
from fogline_edge.adapters.coap.listener import CoapListener
from fogline_edge.adapters.coap.wire import CoapMessage, Code, MessageType, Option
from fogline_edge.credentials.credential_store import CredentialStore
from fogline_edge.settings import CoapSettings, ServingSettings
from fogline_lab.commands import MemoryCommands, make_command
from fogline_lab.port import MemoryPort


def keys(*devices: str) -> CredentialStore:
    return CredentialStore(
        DeviceCredentials(device=each, version=1, keys=[PskKey(number=1, identity=each, key=bytes(16))]) for each in devices
    )


async def test_a_request_without_protection_does_not_speak_for_a_device_with_a_key(dial):
    port, store = MemoryPort(tenant="acme"), keys("d1")
    listener = CoapListener(port, CoapSettings(port=0), credentials=store)
    await listener.start()
    try:
        with dial(listener) as wire:
            for mid, path in enumerate(("telemetry/acme/d1", "command_response/acme/d1/c-1", "command/acme/d1"), 1):
                refused = await wire.ask(request(path, mid=mid))
                assert (refused.code, refused.payload) == (Code.UNAUTHORIZED, b"unprotected")
            assert (await wire.ask(request("telemetry/acme/d2", mid=8))).code == Code.CHANGED
            store.change([], ["d1"])
            assert (await wire.ask(request("telemetry/acme/d1", mid=9))).code == Code.CHANGED
    finally:
        await listener.close()
    assert [each.device for each in port.arrivals] == ["d2", "d1"]
    assert listener.counters.refused == {"unprotected": 3}


PSK = PskKey(number=1, identity="d1", key=bytes(16))
OSCORE = OscoreKey(number=2, device_id=b"\x01\x02", secret=bytes(16))
REGISTER = (int(Option.OBSERVE), b"")


def device(*its: PskKey | OscoreKey) -> CredentialStore:
    return CredentialStore([DeviceCredentials(device="d1", version=1, keys=list(its))])


@pytest.mark.parametrize(
    ("store", "oscore", "told", "says"),
    [
        (device(PSK), False, "refused", "let it observe over DTLS"),
        (device(PSK), True, "refused", "let it observe over DTLS"),
        (device(OSCORE), False, "refused", "no oscore = true in [coap]"),
        (device(PSK, OSCORE), False, "refused", "no oscore = true in [coap]"),
        (device(), False, "refused", "the keys of the device are revoked"),
        (device(), True, "refused", "the keys of the device are revoked"),
        (CredentialStore(complete=False), False, "not_sent", None),
        (CredentialStore(complete=False), True, "not_sent", None),
    ],
)
async def test_no_command_goes_in_clear_text_to_a_device_that_serves_and_has_keys(store, oscore, told, says):
    commands = MemoryCommands()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as serving:
        serving.setblocking(False)
        serving.bind(("127.0.0.1", 0))
        uri = "coap://{}:{}/do".format(*serving.getsockname())
        settings = CoapSettings(port=0, oscore=oscore, devices=[ServingSettings(device="d1", uri=uri)])
        listener = CoapListener(MemoryPort(), settings, commands, credentials=store)
        await listener.start()
        try:
            commands.send(make_command(id="CMD-1", device="d1"))
            await commands.until(lambda: bool(commands.told), "the command ends")
        finally:
            await listener.close()
        assert commands.told == [(told, "CMD-1")]
        assert says is None or says in commands.reasons["CMD-1"]
        with pytest.raises(BlockingIOError):
            serving.recv(2000)


@pytest.mark.parametrize(
    "waits",
    [
        request("command//d1", b"", code=Code.GET, options=[REGISTER]),
        request("telemetry//d1", query=["hono-ttd=60"]),
    ],
    ids=["observes", "asks"],
)
async def test_a_device_that_gets_a_key_while_it_waits_gets_no_command_in_clear_text(dial, waits):
    commands, store = MemoryCommands(), CredentialStore()
    listener = CoapListener(MemoryPort(), CoapSettings(port=0), commands, credentials=store)
    await listener.start()
    try:
        with dial(listener) as wire:
            wire.send(waits)
            await commands.until(lambda: "d1" in commands.devices, "the device is reachable")
            store.change([DeviceCredentials(device="d1", version=1, keys=[PSK])])
            commands.send(make_command(id="CMD-1", device="d1", data=b"on"))
            assert (commands.told, commands.devices) == ([("not_sent", "CMD-1")], {})
            wire.send(CoapMessage(MessageType.CON, Code.EMPTY, 9))
            seen = []
            while not seen or seen[-1].kind != MessageType.RST:  # the answer to a ping comes after all that was sent before
                seen.append(await wire.receive())
            assert not any(each.payload for each in seen)
    finally:
        await listener.close()
