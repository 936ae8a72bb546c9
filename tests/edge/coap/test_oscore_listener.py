"""Devices that seal their messages with OSCORE: each sends as itself, and nothing that was recorded or forged counts."""

import asyncio
import socket
from contextlib import asynccontextmanager

import pytest

from edge.coap.client import LIMIT_S, block1, request
from fogline.commands.command import Reply
from fogline.errors import Poison
from fogline.events.event import Receipt
from fogline.gateway.device_credentials import DeviceCredentials, OscoreKey
from fogline_edge.adapters.coap.listener import CoapListener
from fogline_edge.adapters.coap.oscore.object_security import OSCORE
from fogline_edge.adapters.coap.wire import CoapMessage, CoapResponse, Code, MessageType, Option, decode, encode
from fogline_edge.credentials.credential_store import CredentialStore
from fogline_edge.settings import CoapSettings, ServingSettings
from fogline_lab.commands import MemoryCommands, make_command
from fogline_lab.device.oscore_client import OscoreDevice, echo_of, with_mid
from fogline_lab.port import MemoryPort

FILLER = b"0123456789abcdef"
REGISTER = (int(Option.OBSERVE), b"")


def key(number: int = 1, device_id: bytes = b"\x01\x02", secret: bytes = bytes(range(16))) -> OscoreKey:
    return OscoreKey(number=number, device_id=device_id, secret=secret, salt=b"salt")


def store(*devices: tuple[str, OscoreKey]) -> CredentialStore:
    return CredentialStore(DeviceCredentials(device=name, version=1, keys=[each]) for name, each in devices)


class Gateway:
    """A listener that may be restarted, over one port."""

    def __init__(self, keys: CredentialStore, commands: MemoryCommands | None = None, **settings) -> None:
        self.port, self.keys, self.commands, self.settings = MemoryPort(), keys, commands, settings
        self.listener: CoapListener | None = None

    async def start(self) -> None:
        settings = CoapSettings(**{"port": 0, "oscore": True, **self.settings})
        self.listener = CoapListener(self.port, settings, self.commands, credentials=self.keys)
        await self.listener.start()

    async def restart(self) -> None:
        await self.listener.close()
        self.port.restart()
        await self.start()

    @property
    def refused(self) -> dict[str, int]:
        return self.listener.counters.refused


@asynccontextmanager
async def gateway(keys=None, commands=None, **settings):
    found = Gateway(keys if keys is not None else store(("d1", key())), commands, **settings)
    await found.start()
    try:
        yield found
    finally:
        await found.listener.close()


async def answered(wire, device: OscoreDevice, message: CoapMessage) -> CoapMessage:
    """Send a request sealed, answer the challenge if there is one, and return the opened response."""
    response = device.open(await wire.ask(device.seal(message)))
    if (echo := echo_of(response)) is not None:
        assert response.code == Code.UNAUTHORIZED
        response = device.open(await wire.ask(device.seal(with_mid(message, message.mid + 1000), echo=echo)))
    return response


async def test_a_sealed_event_is_stored_and_its_response_is_sealed(dial):
    async with gateway() as at:
        with dial(at.listener) as wire:
            device = OscoreDevice(key())
            assert (await answered(wire, device, request("telemetry/acme/d1", b"21.5"))).code == Code.CHANGED
            sealed = await wire.ask(device.seal(request("telemetry", b"21.6", mid=2)))
            assert (sealed.code, [number for number, _ in sealed.options]) == (Code.CHANGED, [OSCORE])
            assert device.open(sealed).code == Code.CHANGED
            assert (await answered(wire, device, request("event//d1", b"alarm", mid=3))).code == Code.CHANGED
    assert [(each.device, each.data) for each in at.port.arrivals] == [("d1", b"21.5"), ("d1", b"21.6"), ("d1", b"alarm")]
    assert (at.listener.counters.unsealed, at.listener.counters.challenges) == (3, 1)


@pytest.mark.parametrize(
    ("device", "path", "code", "reason"),
    [
        (OscoreDevice(key(secret=bytes(16))), "telemetry//d1", Code.BAD_REQUEST, "not-decrypted"),
        (OscoreDevice(key(device_id=b"\x09\x09")), "telemetry//d1", Code.UNAUTHORIZED, "unknown-key"),
        (OscoreDevice(key(), gateway="gw-2"), "telemetry//d1", Code.BAD_REQUEST, "not-decrypted"),
        (OscoreDevice(key()), "telemetry//d2", Code.FORBIDDEN, "other-device"),
        (OscoreDevice(key()), "command_response//d2/c-1", Code.FORBIDDEN, "other-device"),
    ],
    ids=["wrong key", "unknown key", "key for another gateway", "event of another device", "answer of another device"],
)
async def test_a_device_without_its_key_or_for_another_device_is_refused_with_the_reason(dial, device, path, code, reason):
    device.sequence = 0
    async with gateway(store(("d1", key()), ("d2", key(device_id=b"\x03\x04", secret=bytes(range(1, 17)))))) as at:
        with dial(at.listener) as wire:
            refused = await answered(wire, device, request(path))
            assert (refused.code, refused.payload) == (code, reason.encode())
    assert (at.port.arrivals, at.refused) == ([], {reason: 1})


async def test_a_request_without_protection_is_refused_for_a_device_with_a_key(dial):
    async with gateway() as at:
        with dial(at.listener) as wire:
            refused = await wire.ask(request("telemetry//d1"))
            assert (refused.code, refused.payload) == (Code.UNAUTHORIZED, b"unprotected")
            assert (await wire.ask(request("telemetry//d2", mid=2))).code == Code.CHANGED
    assert [each.device for each in at.port.arrivals] == ["d2"]


async def test_on_a_network_only_protected_requests_are_served_if_nobody_accepts_others(dial):
    async with gateway(host="0.0.0.0") as at:
        with dial(("127.0.0.1", at.listener.address[1])) as wire:
            assert (await wire.ask(request("telemetry//d2"))).payload == b"unprotected"
            assert (await answered(wire, OscoreDevice(key()), request("telemetry//d1", mid=2))).code == Code.CHANGED
    assert [each.device for each in at.port.arrivals] == ["d1"]


@pytest.mark.parametrize(
    ("options", "payload", "code"),
    [
        (((OSCORE, b""),), FILLER, Code.POST),
        (((OSCORE, b"\x09\x01"),), FILLER, Code.POST),
        (((OSCORE, b"\x09\x01\x01\x02"),), b"", Code.POST),
        (((OSCORE, b"\x09\x01\x01\x02"),), FILLER, Code.GET),
        (((OSCORE, b"\xff"),), FILLER, Code.POST),
        (((OSCORE, b"\x09\x01\x01\x02"), (OSCORE, b"\x09\x01\x01\x02")), FILLER, Code.POST),
    ],
    ids=["empty option", "no kid", "no payload", "another method", "reserved bits", "two options"],
)
async def test_a_request_that_breaks_the_form_is_refused(dial, options, payload, code):
    async with gateway() as at:
        with dial(at.listener) as wire:
            refused = await wire.ask(CoapMessage(MessageType.CON, code, 1, b"t", options, payload))
            expected = (Code.UNAUTHORIZED, b"unknown-key") if options[0][1] == b"\x09\x01" else (Code.BAD_OPTION, b"bad-oscore")
            assert (refused.code, refused.payload) == (
                expected if payload else (Code.BAD_OPTION, b"")
            )  # no larger than its request


@pytest.mark.fault("S13")
async def test_a_recorded_request_is_refused_also_after_a_restart_and_for_a_device_that_was_forgotten(dial):
    async with gateway() as at:
        device = OscoreDevice(key())
        with dial(at.listener) as wire:
            first = device.seal(request("telemetry//d1", b"one", mid=1))
            challenged = device.open(await wire.ask(first))
            second = device.seal(request("telemetry//d1", b"one", mid=2), echo=echo_of(challenged))
            assert device.open(await wire.ask(second)).code == Code.CHANGED
            third = device.seal(request("telemetry//d1", b"two", mid=3))
            assert device.open(await wire.ask(third)).code == Code.CHANGED
            for number, each in enumerate((first, second, third), 10):
                refused = await wire.ask(with_mid(each, number))
                assert (refused.code, refused.payload) == (Code.UNAUTHORIZED, b"replayed")
        await at.restart()  # the window is gone
        with dial(at.listener) as wire:
            for number, each in enumerate((first, second, third), 20):
                again = await wire.ask(with_mid(each, number))
                assert echo_of(device_view(key(), each, again)) is not None  # a challenge that the recording cannot answer
            fresh = await answered(wire, device, request("telemetry//d1", b"three", mid=30))
            assert fresh.code == Code.CHANGED
            for number, each in enumerate((first, second, third), 40):
                assert (await wire.ask(with_mid(each, number))).payload == b"replayed"
    assert [each.data for each in at.port.arrivals] == [b"one", b"two", b"three"]


def device_view(made: OscoreKey, asked: CoapMessage, response: CoapMessage) -> CoapMessage:
    """The response to a request that the device has sent earlier, opened by a device that still knows it."""
    device = OscoreDevice(made)
    option = next(value for number, value in asked.options if number == OSCORE)
    device.sequence = int.from_bytes(option[1 : 1 + (option[0] & 7)])
    device.seal(CoapMessage(asked.kind, Code.PUT, asked.mid, asked.token))
    return device.open(response)


@pytest.mark.fault("S13")
async def test_a_request_whose_answer_was_lost_in_a_restart_is_stored_once(dial):
    async with gateway() as at:
        device = OscoreDevice(key())
        with dial(at.listener) as wire:
            assert (await answered(wire, device, request("telemetry//d1", b"one"))).code == Code.CHANGED
            lost = request("telemetry//d1", b"two", mid=5)
            sealed = device.seal(lost)
            wire.send(sealed)
            await at.port.until(lambda: len(at.port.arrivals) == 2, "it is not stored")
        await at.restart()
        with dial(at.listener) as wire:
            challenge = device.open(await wire.ask(sealed))  # the retransmission
            again = device.seal(with_mid(lost, 6), echo=echo_of(challenge))
            assert device.open(await wire.ask(again)).code == Code.CHANGED
            assert device.open(await wire.ask(device.seal(request("telemetry//d1", b"two", mid=7)))).code == Code.CHANGED
    assert [each.data for each in at.port.arrivals] == [b"one", b"two", b"two"]  # the second one with a number of its own
    assert at.port.receipts.count(Receipt.DUPLICATE) == 1


async def test_own_sequence_numbers_are_never_used_twice_whatever_was_lost(dial):
    used: list[bytes] = []

    async def challenged(at: Gateway, device: OscoreDevice) -> None:
        with dial(at.listener) as wire:
            response = await wire.ask(device.seal(request("telemetry//d1")))
            used.append(dict(response.options)[OSCORE])

    async with gateway() as at:
        device = OscoreDevice(key())
        for _ in range(3):
            await challenged(at, device)
            await at.restart()
        kept = at.port.kept("oscore/")
        assert list(kept) == ["oscore/d1/1"]
        numbers = [int.from_bytes(each[1:]) for each in used]
        assert numbers == sorted(set(numbers))
        assert int.from_bytes(kept["oscore/d1/1"]) > numbers[-1]


async def test_a_body_in_sealed_blocks_is_stored_whole_and_takes_no_block_of_others(dial):
    async with gateway() as at:
        device = OscoreDevice(key())
        with dial(at.listener) as wire:
            first = request("telemetry//d1", b"0123456789abcdef", options=[block1(0, more=True)])
            response = await answered(wire, device, first)
            assert (response.code, dict(response.options)[int(Option.BLOCK1)]) == (Code.CONTINUE, block1(0, more=True)[1])
            forged = request("telemetry//d1", b"forged", mid=8, options=[block1(1, more=False)])
            assert (await wire.ask(forged)).payload == b"unprotected"
            last = request("telemetry//d1", b"end", mid=9, options=[block1(1, more=False)])
            assert (await answered(wire, device, last)).code == Code.CHANGED
    assert [each.data for each in at.port.arrivals] == [b"0123456789abcdefend"]


async def test_commands_reach_a_device_that_observes_and_one_that_asks_sealed(dial):
    commands = MemoryCommands()
    async with gateway(commands=commands) as at:
        device = OscoreDevice(key())
        with dial(at.listener) as wire:
            register = request("command//d1", b"", code=Code.GET, options=[REGISTER])
            response = await answered(wire, device, register)
            assert response.code == Code.CONTENT
            numbers = []
            for command_id in ("CMD-1", "CMD-2"):
                commands.send(make_command(id=command_id, device="d1", data=b"on", content_type="text/plain"))
                notification = await wire.receive()
                assert b"on" not in notification.payload
                numbers.append(int.from_bytes(dict(notification.options)[OSCORE][1:]))
                opened = device.open(notification)
                assert (opened.code, opened.payload) == (Code.CONTENT, b"on")
                assert dict(opened.options)[int(Option.OBSERVE)] == b""
                wire.send(CoapMessage(MessageType.ACK, Code.EMPTY, notification.mid))
                path = f"command_response//d1/{command_id}"
                answer = request(path, b"ok", mid=100 + len(numbers), query=["hono-cmd-status=200"], token=b"a")
                assert (await answered(wire, device, answer)).code == Code.CHANGED
            assert numbers == sorted(set(numbers))
            ask = request("telemetry//d1", b"21", mid=200, query=["hono-ttd=30"], token=b"q")
            wire.send(device.seal(ask))
            await commands.until(lambda: at.listener.counters.asks == 1 and "d1" in commands.devices, "the device asks")
            commands.send(make_command(id="CMD-3", device="d1", data=b"off", content_type="text/plain"))
            received = [await wire.receive(), await wire.receive()]  # the Empty Acknowledgement and the command
            opened = device.open(next(each for each in received if each.code))
            assert (opened.code, opened.payload) == (Code.CHANGED, b"off")
    assert list(commands.answers) == ["CMD-1", "CMD-2"]


class ServingDevice:
    """A device that is a CoAP server: it gets what the gateway sends, and answers as a test says."""

    def __init__(self, made: OscoreKey) -> None:
        self.device = OscoreDevice(made)
        self.raw = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.raw.setblocking(False)
        self.raw.bind(("127.0.0.1", 0))

    @property
    def uri(self) -> str:
        return "coap://{}:{}/do".format(*self.raw.getsockname())

    async def receive(self) -> CoapMessage:
        async with asyncio.timeout(LIMIT_S):
            data, self.peer = await asyncio.get_running_loop().sock_recvfrom(self.raw, 65_536)
        return decode(data)

    def answer(self, message: CoapMessage) -> None:
        self.raw.sendto(encode(message), self.peer)


@asynccontextmanager
async def serving_device(made: OscoreKey, keys: CredentialStore):
    device, commands = ServingDevice(made), MemoryCommands()
    devices = [ServingSettings(device="d1", uri=device.uri)]
    try:
        async with gateway(keys, commands, devices=devices):
            yield device, commands
    finally:
        device.raw.close()


async def test_a_device_that_serves_gets_its_command_sealed_and_answers_sealed():
    async with serving_device(key(), store(("d1", key()))) as (serving, commands):
        commands.send(make_command(id="CMD-1", device="d1", name="switch", data=b"on", content_type="text/plain"))
        challenged = await serving.receive()
        assert b"switch" not in encode(challenged)
        _, request_id = serving.device.open_request(challenged)
        echo = CoapResponse(Code.UNAUTHORIZED, ((int(Option.ECHO), b"fresh?"),))
        serving.answer(serving.device.seal_response(challenged, request_id, echo))
        again = await serving.receive()
        opened, other_id = serving.device.open_request(again)
        assert other_id.piv != request_id.piv
        path = [value for number, value in opened.options if number == Option.URI_PATH]
        assert (path, opened.payload, echo_of(opened)) == ([b"do", b"switch"], b"on", b"fresh?")
        done = CoapResponse(Code.CHANGED, ((int(Option.CONTENT_FORMAT), b""),), b"done")
        serving.answer(serving.device.seal_response(again, other_id, done))
        await commands.until(lambda: "CMD-1" in commands.answers, "the device answers")
        assert commands.answers["CMD-1"] == Reply(204, b"done", "text/plain; charset=utf-8")


async def test_an_answer_without_the_key_is_not_the_devices():
    async with serving_device(key(), store(("d1", key()))) as (serving, commands):
        commands.send(make_command(id="CMD-1", device="d1", data=b"on"))
        sent = await serving.receive()
        serving.answer(CoapMessage(MessageType.ACK, Code.CHANGED, sent.mid, sent.token, (), b"forged"))
        await commands.until(lambda: bool(commands.told), "the command ends")
        assert (commands.told, commands.answers) == ([("lost", "CMD-1")], {})


async def test_no_command_goes_to_a_device_whose_keys_were_revoked_nor_in_blocks_under_oscore():
    keys = store(("d1", key()))
    async with serving_device(key(), keys) as (_, commands):
        commands.send(make_command(id="CMD-1", device="d1", data=bytes(1025)))
        await commands.until(lambda: len(commands.told) == 1, "the command ends")
        keys.change([DeviceCredentials(device="d1", version=2)])
        commands.send(make_command(id="CMD-2", device="d1", data=b"on"))
        await commands.until(lambda: len(commands.told) == 2, "the command ends")
        assert commands.told == [("refused", "CMD-1"), ("refused", "CMD-2")]


async def test_a_revoked_key_ends_the_observation_and_is_refused(dial):
    commands, keys = MemoryCommands(), store(("d1", key()))
    async with gateway(keys, commands) as at:
        device = OscoreDevice(key())
        with dial(at.listener) as wire:
            assert (
                await answered(wire, device, request("command//d1", b"", code=Code.GET, options=[REGISTER]))
            ).code == Code.CONTENT
            assert "d1" in commands.devices
            keys.change([DeviceCredentials(device="d1", version=2)])
            assert "d1" not in commands.devices
            refused = await wire.ask(device.seal(request("telemetry//d1", mid=3)))
            assert (refused.code, refused.payload) == (Code.UNAUTHORIZED, b"unknown-key")
            assert (await wire.ask(request("telemetry//d1", mid=4))).payload == b"unprotected"
            assert at.port.kept("oscore/") == {}


async def test_two_devices_with_one_sender_id_are_told_apart_by_their_keys(dial):
    keys = key(), key(secret=bytes(range(1, 17)))
    async with gateway(store(("d1", keys[0]), ("d2", keys[1]))) as at:
        with dial(at.listener) as wire:
            for mid, (name, each) in enumerate(zip(("d1", "d2"), keys, strict=True), 1):
                assert (await answered(wire, OscoreDevice(each), request(f"telemetry//{name}", mid=mid))).code == Code.CHANGED
    assert [each.device for each in at.port.arrivals] == ["d1", "d2"]


async def test_a_response_is_for_its_request_only(dial):
    async with gateway() as at:
        device = OscoreDevice(key())
        with dial(at.listener) as wire:
            await answered(wire, device, request("telemetry//d1"))
            first = await wire.ask(device.seal(request("telemetry//d1", mid=2, token=b"x")))
            device.seal(request("telemetry//d1", mid=3, token=b"y"))
            with pytest.raises(Poison):
                device.open(CoapMessage(first.kind, first.code, first.mid, b"y", first.options, first.payload))
            assert device.open(first).code == Code.CHANGED
    await asyncio.sleep(0)
