"""A large body has the same limits, and survives the same, whatever its protocol."""

import asyncio
import contextlib

import pytest

from edge.bodies.senders import BLOCK, SENDERS, CoapSender, sending
from fogline.errors import Poison
from fogline.events.large_body import MAX_BODY_BYTES, UNFINISHED
from fogline_lab.large_bodies import join_bodies, make_body
from fogline_lab.waiting import eventually

MIB = 1024 * 1024
HALF = MIB // 2
REFUSALS = {
    "too-big": {"http": "413 too-big", "mqtt": "0x95", "coap": "4.13 too-big"},
    "private": {"http": "413 private", "mqtt": "0x83", "coap": "4.13 private"},
    "late": {"http": "408 timeout", "mqtt": "0x83", "coap": "4.08 late"},
    "no-room": {"http": "503 no-room", "mqtt": "0x97", "coap": "5.03"},
}
BUSY = {"http": "503 too-many-bodies", "coap": "5.03"}


@pytest.fixture(params=SENDERS)
def protocol(request):
    return request.param


@pytest.fixture
def device(protocol):
    """Returns a context in which a device sends a body."""

    def begin(gateway, body, *args, **more):
        return sending(SENDERS[protocol], gateway, body, *args, **more)

    return begin


async def whole(sender, body) -> str:
    await sender.send(len(body))
    return await sender.answer()


async def begun(gateway, sender, upto=HALF, *, bodies=1):
    await sender.send(upto)
    await eventually(lambda: gateway.uploads.counters.uploads == bodies, "the body has begun")


def lapse(gateway):
    """Let the idle time of all bodies pass."""
    for each in [each for each in gateway.uploads._open if not each.over]:
        each._written_s -= gateway.uploads.settings.idle_timeout_s
        each._idle.cancel()
        each._look()


def answer_is(task, answer) -> bool:
    return task.done() and task.result() == answer


async def nothing_left(gateway):
    """No body is in memory, noted in the file, or has chunks without an end."""
    joined = join_bodies(await gateway.stored())
    assert (joined.open, joined.broken) == (set(), [])
    assert (gateway.uploads._open, dict(gateway.outbox.port.kept(UNFINISHED))) == ({}, {})
    assert gateway.uploads.counters.uploads == 0
    return joined


async def test_largest_body_is_stored_and_one_byte_more_is_refused(http_gateway, device, protocol):
    async with http_gateway(max_bytes=MIB) as gateway:
        body = make_body(1, MIB)
        async with device(gateway, body) as sender:
            assert await whole(sender, body) == "stored"
        async with device(gateway, body + b"x") as sender:
            assert await whole(sender, body + b"x") == REFUSALS["too-big"][protocol]
        assert [data for _, data in (await nothing_left(gateway)).whole] == [body]


async def test_body_of_64_mib_and_a_byte_is_refused_by_its_length_alone(http_gateway, device, protocol):
    async with http_gateway() as gateway:
        async with device(gateway, make_body(2, HALF), size=MAX_BODY_BYTES + 1) as sender:
            assert await whole(sender, bytes(HALF)) == REFUSALS["too-big"][protocol]
        assert (await nothing_left(gateway)).ended == set()


async def test_body_shorter_than_its_length_is_ended_when_the_device_leaves(http_gateway, device, protocol):
    async with http_gateway() as gateway:
        async with device(gateway, make_body(3, HALF + BLOCK), size=MIB) as sender:
            await begun(gateway, sender)
        if protocol == "coap":  # nobody sees a device leave
            lapse(gateway)
        await eventually(lambda: gateway.uploads.counters.given_up == 1, "it is given up")
        assert len((await nothing_left(gateway)).ended) == 1


@pytest.mark.parametrize("size", [HALF, 2 * MIB])
async def test_length_that_coap_estimates_wrongly_does_no_harm(http_gateway, size):
    body = make_body(4, MIB)
    async with http_gateway() as gateway:
        async with sending(CoapSender, gateway, body, size=size) as sender:
            assert await whole(sender, body) == "stored"
        assert [data for _, data in (await nothing_left(gateway)).whole] == [body]


async def test_private_body_is_refused_with_the_reason_and_counted(http_gateway, device, protocol):
    async with http_gateway(private="camera-*") as gateway:
        async with device(gateway, body := make_body(5, MIB)) as sender:
            assert await whole(sender, body) == REFUSALS["private"][protocol]
        assert gateway.uploads.counters.refused == {"private": 1}
        assert (await nothing_left(gateway)).whole == []


async def test_bodies_that_trickle_leave_no_more_places_than_they_have_and_give_them_back(http_gateway, device, protocol):
    body = make_body(6, MIB)
    async with http_gateway(max_uploads=2) as gateway, contextlib.AsyncExitStack() as stack:
        slow = [await stack.enter_async_context(device(gateway, body, f"camera-{n}")) for n in range(5)]
        for each in slow:
            await each.send(HALF)
        await eventually(lambda: gateway.uploads.counters.uploads == 2, "two have begun")
        if protocol != "mqtt":  # there, they wait
            answers = [asyncio.create_task(each.answer()) for each in slow]
            await eventually(lambda: sum(answer_is(each, BUSY[protocol]) for each in answers) == 3, "the others are busy")
            for each in answers:
                each.cancel()
        assert len(gateway.uploads._open) == 2
        await stack.aclose()
        lapse(gateway)
        await eventually(lambda: not gateway.uploads._open, "their places are free")
        async with device(gateway, body) as sender:
            assert await whole(sender, body) == "stored"
        assert [data for _, data in (await nothing_left(gateway)).whole] == [body]


async def test_body_that_stops_for_too_long_is_refused_as_late_and_ended(http_gateway, device, protocol):
    body = make_body(7, MIB)
    async with http_gateway() as gateway:
        async with device(gateway, body) as sender:
            await begun(gateway, sender)
            lapse(gateway)
            assert await whole(sender, body) == REFUSALS["late"][protocol]
        assert len((await nothing_left(gateway)).ended) == 1


async def test_body_without_room_for_too_long_is_refused_and_retries_gather_nothing(http_gateway, device, protocol):
    """A full disk in the middle: the device learns that it is to come later, and its retries take no memory."""
    body = make_body(8, 2 * MIB)
    async with http_gateway(max_uploads=1) as gateway:
        async with device(gateway, body) as sender:
            await begun(gateway, sender, 320 * BLOCK)
            await gateway.stored()
            gateway.outbox.port.set_full(True)
            await sender.send(len(body))
            await eventually(lambda: all(each.crowded for each in gateway.uploads._open), "it is not read on")
            lapse(gateway)
            assert await sender.answer() == REFUSALS["no-room"][protocol]
        for _ in range(4):
            async with device(gateway, body) as sender:
                await sender.send(len(body))
                await gateway.stored()
                lapse(gateway)
        assert len(gateway.uploads._open) == 1
        gateway.outbox.port.set_full(False)
        await eventually(lambda: not gateway.uploads._open, "all are ended")
        async with device(gateway, body) as sender:
            assert await whole(sender, body) == "stored"
        assert [data for _, data in (await nothing_left(gateway)).whole] == [body]


async def test_device_that_goes_on_after_a_restart_sends_it_anew_and_the_first_half_is_ended(http_gateway, device, protocol):
    body = make_body(9, MIB)
    async with http_gateway() as gateway, device(gateway, body) as sender:
        await begun(gateway, sender)
        await gateway.stored()
        for each in gateway.uploads._open:
            each.give_up = lambda: None  # a killed gateway has no time to end it
    async with http_gateway() as gateway:
        if protocol == "coap":
            async with device(gateway, body) as sender:
                await sender.block(HALF // BLOCK, more=True)
                sender._sending = asyncio.create_task(asyncio.sleep(0))
                assert await sender.answer() == "4.08 no-transfer"
        async with device(gateway, body) as sender:
            assert await whole(sender, body) == "stored"
        joined = await nothing_left(gateway)
    assert ([data for _, data in joined.whole], len(joined.ended)) == ([body], 1)


async def test_two_devices_with_one_key_are_two_events(http_gateway, device):
    body = make_body(10, MIB)
    async with http_gateway() as gateway:
        for name in ("camera-1", "camera-2"):
            async with device(gateway, body, name, key="boot7-1") as sender:
                assert await whole(sender, body) == "stored"
        joined = await nothing_left(gateway)
    assert sorted(event.device for event, _ in joined.whole) == ["camera-1", "camera-2"]


@pytest.mark.parametrize("protocol", ["http", "coap"])
async def test_body_that_comes_twice_at_once_is_acknowledged_twice_and_stored_once_by_its_key(http_gateway, device, protocol):
    body = make_body(11, MIB)
    async with (
        http_gateway() as gateway,
        device(gateway, body, key="boot7-1") as first,
        device(gateway, body, key="boot7-1") as second,
    ):
        for upto in (HALF, MIB):
            for each in (first, second):
                await each.send(upto)
        assert [await each.answer() for each in (first, second)] == ["stored", "stored"]
        joined = await nothing_left(gateway)
    keyed = protocol == "http"
    assert ([data for _, data in joined.whole], len(joined.ended)) == ([body] * (1 if keyed else 2), int(keyed))


async def test_last_block_of_a_body_that_was_given_up_is_not_acknowledged(http_gateway):
    """The last block comes again, and says now that it is the last: the chunks before it have had their end."""
    body = make_body(12, MIB)
    async with http_gateway() as gateway:
        async with sending(CoapSender, gateway, body) as sender:
            await begun(gateway, sender)
            await sender._sending
            lapse(gateway)
            await sender.block(HALF // BLOCK - 1, more=False, mid=9000)
            assert await sender.answer() == "4.08 late"
        assert (await nothing_left(gateway)).whole == []


@pytest.mark.parametrize("limit", ["idle", "in all"])
async def test_body_is_not_finished_after_its_time(http_gateway, limit):
    async with http_gateway() as gateway:
        upload = gateway.uploads.begin(gateway.event(), lambda: None, MIB)
        upload.write(make_body(13, HALF))
        if limit == "idle":
            lapse(gateway)
        else:
            upload._until_s = 0
        with pytest.raises(Poison, match="in time"):
            upload.finish(lambda _: None)
        assert len((await nothing_left(gateway)).ended) == 1


async def test_blocks_in_another_order_get_4_08_and_their_body_is_ended(http_gateway):
    body = make_body(14, MIB)
    async with http_gateway() as gateway:
        async with sending(CoapSender, gateway, body) as sender:
            await begun(gateway, sender)
            await sender._sending
            await sender.block(HALF // BLOCK + 2, more=True, mid=9000)
            assert await sender.answer() == "4.08 gap"
            sender._last = None
            assert await whole(sender, body) == "stored"  # the block that was missing, and the rest
        assert [data for _, data in (await nothing_left(gateway)).whole] == [body]
