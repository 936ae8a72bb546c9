"""X7: commands are cancelled at the gateway, whose journal decides."""

import msgspec
import pytest

from fogline.amqp import wire
from fogline.amqp.outcome import ACCEPTED
from fogline.commands.cancel import CancelRequest, decode_cancel, encode_cancel
from fogline.commands.signature import make_key, read_keys, read_signer
from fogline.events.event import Receipt
from fogline_lab.device.command_device import CommandDevice
from fogline_lab.gateway.connected_gateway import cancel_request, durable_command, offline_gateway


@pytest.mark.fault("X7")
async def test_a_command_that_waits_is_cancelled_and_its_device_never_sees_it(folder):
    async with offline_gateway(folder) as gw:
        asked = durable_command()
        await gw.receive(asked)
        await gw.receive(durable_command("C2"))
        assert await gw.receive(cancel_request(asked)) == ACCEPTED
        assert await gw.receive(cancel_request(asked)) == ACCEPTED
        device = CommandDevice()
        gw.downlink.reachable("lamp-1", device)
        assert await device.has(1) == ["C2"]
        await gw.answer("C2")
        assert await gw.replies(2) == [("C1", "CANCELLED", 410), ("C2", "SUCCEEDED", 200)]
        assert await gw.answer("C1") is Receipt.DEAD
        assert gw.downlink.counters.cancelled == 1


@pytest.mark.fault("X7")
async def test_a_command_that_comes_after_its_cancellation_is_not_run(folder):
    """The copy was delayed on its way, or the connection was lost with it."""
    asked = durable_command()
    async with offline_gateway(folder) as gw:
        assert await gw.receive(cancel_request(asked)) == ACCEPTED
        assert await gw.replies(1) == [("C1", "CANCELLED", 410)]
    async with offline_gateway(folder) as gw:
        device = CommandDevice()
        gw.downlink.reachable("lamp-1", device)
        assert await gw.receive(asked) == ACCEPTED
        await gw.receive(durable_command("C2"))
        assert await device.has(1) == ["C2"]


@pytest.mark.fault("X7")
async def test_a_command_that_its_device_has_seen_goes_on(folder):
    async with offline_gateway(folder) as gw:
        device = CommandDevice()
        gw.downlink.reachable("lamp-1", device)
        asked = durable_command()
        await gw.receive(asked)
        await device.has(1)
        assert await gw.receive(cancel_request(asked)) == ACCEPTED
        await gw.answer("C1")
        assert await gw.receive(cancel_request(asked)) == ACCEPTED
        assert await gw.replies(1) == [("C1", "SUCCEEDED", 200)]


@pytest.mark.parametrize(
    ("report", "idempotent", "end"),
    [("not_sent", False, "CANCELLED"), ("not_sent", True, "CANCELLED"), ("lost", True, "IN_DOUBT")],
)
@pytest.mark.fault("X7")
async def test_no_attempt_begins_after_a_cancellation(folder, report, idempotent, end):
    """A device that has certainly not got it never will; one that may have got it does not get it again."""
    async with offline_gateway(folder) as gw:
        device = CommandDevice()
        gw.downlink.reachable("lamp-1", device)
        asked = durable_command(idempotent=idempotent)
        await gw.receive(asked)
        await device.has(1)
        await gw.receive(cancel_request(asked))
        getattr(gw.downlink, report)("C1")
        assert [each[1] for each in await gw.replies(1)] == [end]
        gw.downlink.reachable("lamp-1", device)
        await gw.receive(durable_command("C2"))
        assert await device.has(2) == ["C1", "C2"]


async def test_a_cancellation_of_another_command_of_the_same_id_is_a_conflict(folder):
    async with offline_gateway(folder) as gw:
        asked = durable_command()
        await gw.receive(asked)
        assert (await gw.receive(cancel_request(asked, digest=b"x" * 16))).condition == "fogline:conflict"
        assert (await gw.receive(cancel_request(asked, gateway="gw-2"))).condition == "amqp:not-allowed"
        device = CommandDevice()
        gw.downlink.reachable("lamp-1", device)
        assert await device.has(1) == ["C1"]


PRIVATE, PUBLIC = make_key()
FORGED = {
    "id": "C2",
    "tenant": "other",
    "gateway": "gw-2",
    "device": "lamp-2",
    "name": "blink",
    "digest": b"y" * 16,
    "deadline": durable_command(in_s=5).deadline,
    "reply": False,
    "correlation": "string:other",
    "why": "no reason",
    "key_id": "k2",
}


@pytest.mark.parametrize("field", FORGED)
def test_no_field_of_a_signed_cancellation_can_be_changed(field):
    assert FORGED.keys() | {"signature"} == {each.name for each in msgspec.structs.fields(CancelRequest)}
    signed = read_signer("k1", PRIVATE, "here").sign_cancel(cancel_request(durable_command()))
    genuine = decode_cancel(wire.decode(wire.encode(encode_cancel(signed))))
    keys = read_keys({"k1": PUBLIC, "k2": PUBLIC}, "commands.keys")
    assert keys.doubt_cancel(genuine) is None
    assert "is wrong" in keys.doubt_cancel(msgspec.structs.replace(genuine, **{field: FORGED[field]}))


async def test_with_keys_only_a_signed_cancellation_is_taken(folder):
    async with offline_gateway(folder, read_keys({"k1": PUBLIC}, "commands.keys")) as gw:
        signer = read_signer("k1", PRIVATE, "here")
        asked = durable_command()
        await gw.receive(signer.sign(asked))
        assert (await gw.receive(cancel_request(asked))).condition == "amqp:not-allowed"
        assert await gw.receive(signer.sign_cancel(cancel_request(asked))) == ACCEPTED
        assert await gw.replies(1) == [("C1", "CANCELLED", 410)]
