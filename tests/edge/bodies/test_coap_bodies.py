"""Large bodies over CoAP with Block1: stored as their blocks come, and acknowledged once."""

import contextlib

import pytest

from edge.coap.client import Wire, block1, content_format, request
from fogline.events.event import Lane
from fogline.events.large_body import read_dataref
from fogline_edge.adapters.coap.wire import Code, Option, uint
from fogline_lab.large_bodies import join_bodies, make_body
from fogline_lab.waiting import eventually

SIZE = 400_000
BLOCK = 1024


@contextlib.contextmanager
def dial(gateway):
    wire = Wire(gateway.coap.address)
    try:
        yield wire
    finally:
        wire.raw.close()


def blocks(body, first_mid=1, *, path="t/acme/camera-1", size1=None):
    """Return the requests of a transfer."""
    count = -(-len(body) // BLOCK)
    for number in range(count):
        options = [block1(number, 6, more=number < count - 1), content_format(42)]
        if size1 is not None and not number:
            options.append((int(Option.SIZE1), uint(size1)))
        payload = body[number * BLOCK : (number + 1) * BLOCK]
        yield request(path, payload, first_mid + number, options=options)


async def transfer(wire, body, first_mid=1, **more):
    """Send a body, and return the responses to all its blocks."""
    return [await wire.ask(each) for each in blocks(body, first_mid, **more)]


async def test_large_body_in_blocks_is_stored_byte_for_byte_and_acknowledged_once(coap_gateway):
    body = make_body(1, SIZE)
    async with coap_gateway() as gateway:
        with dial(gateway) as wire:
            answers = await transfer(wire, body, size1=SIZE)
        ((event, stored),) = join_bodies(await gateway.stored()).whole
    assert {each.code for each in answers[:-1]} == {Code.CONTINUE}
    assert answers[-1].code == Code.CHANGED
    assert stored == body
    assert (event.device, event.lane, event.adapter, event.content_type) == (
        "camera-1",
        Lane.BULK,
        "coap",
        "application/octet-stream",
    )
    assert read_dataref(event.dataref).size == SIZE


@pytest.mark.fault("C2")
async def test_last_block_that_comes_again_is_answered_and_stored_once_also_after_a_restart(coap_gateway):
    body = make_body(2, SIZE)
    last = list(blocks(body))[-1]
    async with coap_gateway() as gateway:
        with dial(gateway) as wire:
            await transfer(wire, body)
            assert (await wire.ask(last)).code == Code.CHANGED
            port = wire.raw.getsockname()[1]
    async with coap_gateway() as gateway:
        with dial(gateway) as wire:
            wire.raw.close()
            wire.raw = rebound(port, gateway.coap.address)
            assert (await wire.ask(last)).code == Code.CHANGED
        joined = join_bodies(await gateway.stored())
    assert [data for _, data in joined.whole] == [body]
    assert joined.open == set()


def rebound(port, address):
    """Return a socket from which the datagrams of an earlier endpoint came."""
    import socket

    raw = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    raw.setblocking(False)
    raw.bind(("127.0.0.1", port))
    raw.connect(address)
    return raw


async def test_block_that_comes_again_in_the_middle_does_no_harm(coap_gateway):
    body = make_body(3, SIZE)
    async with coap_gateway() as gateway:
        with dial(gateway) as wire:
            for mid, each in enumerate(blocks(body), 1):
                await wire.ask(each)
                if each.mid in (100, 300):  # before and after it is stored; the client takes another Message ID
                    again = request(
                        "t/acme/camera-1",
                        each.payload,
                        5000 + mid,
                        options=[block1(each.mid - 1, 6, more=True), content_format(42)],
                    )
                    assert (await wire.ask(again)).code == Code.CONTINUE
        assert [data for _, data in join_bodies(await gateway.stored()).whole] == [body]


@pytest.mark.fault("C21")
async def test_transfer_that_stops_is_ended_after_its_idle_time_and_goes_on_with_4_08(coap_gateway):
    requests = list(blocks(make_body(4, SIZE)))
    async with coap_gateway(idle_timeout_s=0.3) as gateway:
        with dial(gateway) as wire:
            for each in requests[:300]:
                await wire.ask(each)
            await eventually(lambda: gateway.uploads.counters.given_up == 1, "it is given up")
            assert (await wire.ask(requests[300])).code == Code.REQUEST_ENTITY_INCOMPLETE
        joined = join_bodies(await gateway.stored())
    assert (len(joined.ended), joined.open, joined.whole) == (1, set(), [])


@pytest.mark.parametrize(
    ("limits", "private", "reason"), [({"max_bytes": 300_000}, None, b"too-big"), ({}, "camera-*", b"private")]
)
async def test_body_that_can_never_be_stored_gets_4_13_with_the_accepted_size(coap_gateway, limits, private, reason):
    async with coap_gateway(private=private, **limits) as gateway:
        with dial(gateway) as wire:
            for each in blocks(make_body(5, SIZE)):
                answer = await wire.ask(each)
                if answer.code != Code.CONTINUE:
                    break
        assert (answer.code, answer.payload) == (Code.REQUEST_ENTITY_TOO_LARGE, reason)
        assert Option.SIZE1 in dict(answer.options)
        assert join_bodies(await gateway.stored()).open == set()


async def test_body_beyond_the_most_of_a_device_gets_5_03_with_max_age(coap_gateway):
    async with coap_gateway(max_device_uploads=1) as gateway:
        other = gateway.uploads.begin(gateway.event(), lambda: None, SIZE)
        with dial(gateway) as wire:
            for each in blocks(make_body(6, SIZE)):
                answer = await wire.ask(each)
                if answer.code != Code.CONTINUE:
                    break
        assert answer.code == Code.SERVICE_UNAVAILABLE
        assert Option.MAX_AGE in dict(answer.options)
        other.give_up()
