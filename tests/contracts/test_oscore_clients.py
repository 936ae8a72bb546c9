"""Other people's OSCORE: aiocoap's client reports and takes commands, and is refused with a wrong key."""

import pytest
from msgspec.structs import replace

from contracts.foreign.aiocoap_oscore import device, result_of, running
from coroutines import run_test
from fogline.gateway.device_credentials import DeviceCredentials, OscoreKey
from fogline_edge.adapters.coap.listener import CoapListener
from fogline_edge.credentials.credential_store import CredentialStore
from fogline_edge.settings import CoapSettings
from fogline_lab.amqp import within
from fogline_lab.commands import MemoryCommands, make_command
from fogline_lab.port import MemoryPort

KEY = OscoreKey(number=1, device_id=b"\x0a\x0b\x0c\x0d", secret=bytes(range(16)), salt=bytes(range(8)))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    return run_test(pyfuncitem, strict=True)


async def started(port: MemoryPort, commands: MemoryCommands) -> CoapListener:
    keys = CredentialStore([DeviceCredentials(device="lamp-1", version=1, keys=[KEY])])
    listener = CoapListener(port, CoapSettings(port=0, oscore=True), commands, credentials=keys)
    await listener.start()
    return listener


async def test_aiocoap_reports_small_and_large_bodies_and_its_key_is_checked():
    port, commands = MemoryPort(), MemoryCommands()
    listener = await started(port, commands)
    try:
        large = "x" * 3000
        events = [{"path": "telemetry//lamp-1", "payload": "21.5"}, {"path": "telemetry", "payload": large}]
        events.append({"path": "telemetry//lamp-2", "payload": "not its own"})
        first, second, other = await device(listener.address, KEY, events=events)
        assert (first["code"], second["code"]) == ("2.04 Changed", "2.04 Changed")
        assert (other["code"], other["payload"]) == ("4.03 Forbidden", "other-device")
        assert [(each.device, each.data) for each in port.arrivals] == [("lamp-1", b"21.5"), ("lamp-1", large.encode())]
        (refused,) = await device(listener.address, replace(KEY, secret=bytes(16)), events=events[:1])
        assert refused["payload"] == "not-decrypted"
        (elsewhere,) = await device(listener.address, KEY, "gw-2", events=events[:1])
        assert elsewhere["payload"] == "unknown-key"
        assert len(port.arrivals) == 2
    finally:
        await listener.close()


async def test_aiocoap_observes_commands_and_answers_them():
    port, commands = MemoryPort(), MemoryCommands()
    listener = await started(port, commands)
    try:
        async with running(listener.address, KEY, device="lamp-1", commands=2) as process:
            assert process.stderr is not None
            assert await within(process.stderr.readline(), "it does not observe") == b"observing\n"
            for command_id in ("CMD-1", "CMD-2"):
                await commands.until(lambda: "lamp-1" in commands.devices, "the device is reachable")
                commands.send(make_command(id=command_id, device="lamp-1", data=command_id.encode(), content_type="text/plain"))
                await commands.until(lambda command_id=command_id: command_id in commands.answers, "the device answers")
            found = await result_of(process)
        assert [each["payload"] for each in found] == ["", "CMD-1", "", "CMD-2", ""]
        assert [each["query"] for each in found[1::2]] == [["hono-command=switch"]] * 2
        assert {each["code"] for each in found[2::2]} == {"2.04 Changed"}
        assert {each.data for each in commands.answers.values()} == {b"done"}
    finally:
        await listener.close()
