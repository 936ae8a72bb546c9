"""The listener over UDP, seen by a client made of bytes."""

import asyncio
import socket

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edge.coap.client import block1, request
from fogline.errors import Misconfigured
from fogline.events.event import Lane, Receipt
from fogline_edge.adapters.coap.listener import CoapListener
from fogline_edge.adapters.coap.wire import CoapMessage, Code, MessageType, Option, encode, uint
from fogline_edge.settings import CoapSettings, PathSettings
from fogline_lab.clock import pass_time
from fogline_lab.port import MemoryPort
from fogline_lab.waiting import eventually
from property_tests import at_most


def answer(code, mid=1, token=b"t", options=(), payload=b""):
    return CoapMessage(MessageType.ACK, code, mid, token, tuple(options), payload)


def stored(mid=1, token=b"t"):
    return answer(Code.CHANGED, mid, token)


def max_age(seconds):
    return (int(Option.MAX_AGE), uint(seconds))


async def test_2_04_comes_after_the_commit(listening, dial):
    port = MemoryPort()
    port.hold()
    async with listening(port) as listener:
        with dial(listener) as wire:
            wire.send(request(payload=b"21.5"))
            await port.until(lambda: port.waiting == 1, "it is put")
            await wire.alive()
            port.release()
            assert await wire.receive() == stored()
    (arrival,) = port.arrivals
    assert (arrival.device, arrival.channel, arrival.lane, arrival.data) == (
        "d1",
        "telemetry/acme/d1",
        Lane.TELEMETRY,
        b"21.5",
    )


async def test_post_is_as_good_as_put(listening, dial):
    port = MemoryPort()
    async with listening(port) as listener:
        with dial(listener) as wire:
            assert await wire.ask(request("e//d1", code=Code.POST)) == stored()
    assert (port.arrivals[0].lane, port.arrivals[0].type) == (Lane.ALARM, "alarm")


async def test_a_non_confirmable_request_is_stored_and_answered_after_the_commit(listening, dial):
    port = MemoryPort()
    port.hold()
    async with listening(port) as listener:
        with dial(listener) as wire:
            wire.send(request(kind=MessageType.NON))
            await port.until(lambda: port.waiting == 1, "it is put")
            await wire.alive()
            port.release()
            response = await wire.receive()
    assert (response.kind, response.code, response.token) == (MessageType.NON, Code.CHANGED, b"t")


async def test_many_with_one_token_are_all_stored_and_answered(listening, dial):
    port = MemoryPort()
    async with listening(port) as listener:
        with dial(listener) as wire:
            wire.send(*(request(payload=b"%d" % mid, mid=mid, token=b"") for mid in range(100)))
            assert [await wire.receive() for _ in range(100)] == [stored(mid, b"") for mid in range(100)]
    assert len(port.arrivals) == 100


async def test_a_duplicate_is_answered_as_the_first_copy_was_and_stored_once(listening, dial):
    port = MemoryPort()
    async with listening(port) as listener:
        with dial(listener) as wire:
            assert await wire.ask(request()) == stored()
            assert await wire.ask(request()) == stored()
        assert listener.counters.duplicates == 1
    assert port.receipts == [Receipt.STORED]


@pytest.mark.fault("D2")
async def test_a_duplicate_that_was_forgotten_is_recognised_by_the_port(listening, dial):
    port = MemoryPort()
    async with listening(port, max_exchanges=1) as listener:
        with dial(listener) as wire:
            for mid in (1, 2, 1):
                assert await wire.ask(request(mid=mid)) == stored(mid)
    assert port.receipts == [Receipt.STORED, Receipt.STORED, Receipt.DUPLICATE]


@pytest.mark.fault("D2")
async def test_an_id_that_is_used_again_for_another_message_is_not_a_duplicate(listening, dial):
    port = MemoryPort()
    async with listening(port) as listener:
        with dial(listener) as wire:
            for payload in (b"1", b"2", b"1"):
                assert await wire.ask(request(payload=payload)) == stored()
    assert [each.data for each in port.arrivals] == [b"1", b"2", b"1"]


async def test_the_same_id_from_another_endpoint_is_another_message(listening, dial):
    port = MemoryPort()
    async with listening(port) as listener:
        with dial(listener) as one, dial(listener) as two:
            assert await one.ask(request()) == stored()
            assert await two.ask(request()) == stored()
    assert port.receipts == [Receipt.STORED] * 2


@pytest.mark.fault("C11")
async def test_slow_request_is_acknowledged_and_gets_a_separate_response(listening, dial):
    port = MemoryPort()
    port.hold()
    async with listening(port) as listener:
        with dial(listener) as wire:
            empty = CoapMessage(MessageType.ACK, Code.EMPTY, 1)
            wire.send(request())
            await port.until(lambda: port.waiting == 1, "it is put")
            pass_time(0.5)
            assert await wire.receive() == empty
            assert await wire.ask(request()) == empty
            port.release()
            first = await wire.receive()
            assert (first.kind, first.code, first.token) == (MessageType.CON, Code.CHANGED, b"t")
            pass_time(3)
            assert await wire.receive() == first
            wire.send(CoapMessage(MessageType.ACK, Code.EMPTY, first.mid))
            assert await wire.ask(request(mid=2, path="nowhere")) == answer(Code.NOT_FOUND, 2, payload=b"bad-path")
        assert (listener.counters.separate, listener.counters.undelivered) == (1, 0)
    assert port.receipts == [Receipt.STORED]


async def test_separate_response_without_acknowledgement_ends(listening, dial):
    port = MemoryPort()
    port.hold()
    async with listening(port, ack_delay_s=0.001, ack_timeout_s=0.001) as listener:
        with dial(listener) as wire:
            await wire.ask(request())
            port.release()
            copies = [await wire.receive() for _ in range(5)]
            assert len(set(map(encode, copies))) == 1
            await eventually(lambda: listener.counters.undelivered == 1, "it ends")


@pytest.mark.parametrize(
    ("message", "code", "reason"),
    [
        (request("nowhere"), Code.NOT_FOUND, b"bad-path"),
        (request("telemetry", code=Code.POST), Code.UNAUTHORIZED, b"no-device"),
        (request("t/other/device-1"), Code.FORBIDDEN, b"foreign-tenant"),
        (request(payload=b""), Code.BAD_REQUEST, b"no-payload"),
        (request(payload=b"", query=["hono-ttd=1"], code=Code.POST), Code.BAD_REQUEST, b"no-payload"),
        (request(code=Code.GET), Code.METHOD_NOT_ALLOWED, b"bad-method"),
        (request(code=Code.DELETE), Code.METHOD_NOT_ALLOWED, b"bad-method"),
        (request(code=7), Code.METHOD_NOT_ALLOWED, b"bad-method"),
        (request(options=[(65_001, b"")]), Code.BAD_OPTION, b"bad-option"),
        (request(options=[(Option.PROXY_URI, b"coap://x")]), Code.PROXYING_NOT_SUPPORTED, b"no-proxy"),
        (request(options=[(Option.BLOCK2, b"\x10")]), Code.BAD_REQUEST, b"bad-block"),
        (request(payload=b"x" * 16, options=[block1(3, more=True)]), Code.REQUEST_ENTITY_INCOMPLETE, b"no-transfer"),
        (request("command_response//d1/C", query=["hono-cmd-status=200"]), Code.NOT_FOUND, b"no-command"),
    ],
)
async def test_refused_request_gets_its_response_code(listening, dial, message, code, reason):
    port = MemoryPort()
    async with listening(port) as listener:
        with dial(listener) as wire:
            assert await wire.ask(message) == answer(code, payload=reason)
        assert listener.counters.refused == {reason.decode(): 1}
    assert port.arrivals == []


async def test_a_full_port_is_5_03_with_a_time_to_wait(listening, dial):
    port = MemoryPort(capacity=1)
    port.hold()
    async with listening(port) as listener:
        with dial(listener) as wire:
            wire.send(request(mid=1))
            assert await wire.ask(request(mid=2)) == answer(Code.SERVICE_UNAVAILABLE, 2, options=[max_age(5)])
            port.release()
            assert await wire.receive() == stored(1)
        assert listener.counters.slowed == 1
    assert len(port.arrivals) == 1


async def test_a_body_in_blocks(listening, dial):
    port = MemoryPort()
    async with listening(port) as listener:
        with dial(listener) as wire:
            for number, payload in enumerate((b"a" * 16, b"b" * 16, b"c")):
                option = block1(number, more=number < 2)
                code = Code.CONTINUE if number < 2 else Code.CHANGED
                message = request(payload=payload, mid=number, options=[option])
                assert await wire.ask(message) == answer(code, number, options=[option])
                assert await wire.ask(message) == answer(code, number, options=[option])
    assert [each.data for each in port.arrivals] == [b"a" * 16 + b"b" * 16 + b"c"]


@pytest.mark.parametrize(
    "message",
    [
        request(payload=b"x" * 65),
        request(payload=b"x" * 60_000),
        request(payload=b"x" * 16, options=[block1(0, more=True), (int(Option.SIZE1), uint(65))]),
        request(payload=b"x" * 16, options=[block1(4, more=True)]),
    ],
    ids=["one datagram", "a large datagram", "as it says", "by its blocks"],
)
@pytest.mark.fault("D10")
async def test_body_that_is_too_large_gets_4_13(listening, dial, message):
    port = MemoryPort()
    async with listening(port, max_body_bytes=64) as listener:
        with dial(listener) as wire:
            size1 = (int(Option.SIZE1), uint(64))
            assert await wire.ask(message) == answer(Code.REQUEST_ENTITY_TOO_LARGE, options=[size1], payload=b"too-big")
    assert port.arrivals == []


@pytest.mark.fault("D10")
async def test_a_body_of_20_mb_in_blocks_ends_at_the_limit(listening, dial):
    port, block = MemoryPort(), bytes(1024)
    async with listening(port) as listener:
        with dial(listener) as wire:
            for number in range(20_000_000 // len(block)):
                told = await wire.ask(request(payload=block, mid=number, options=[block1(number, 6, more=True)]))
                if told.code != Code.CONTINUE:
                    break
            assert (told.code, number * len(block)) == (Code.REQUEST_ENTITY_TOO_LARGE, CoapSettings().max_body_bytes)
            await wire.alive()
    assert port.arrivals == []


async def test_the_largest_datagram_there_is_comes_whole(listening, dial):
    port = MemoryPort()
    payload = bytes(range(256)) * 260
    message = request(payload=payload[: 65_507 - len(encode(request(payload=b""))) - 1])
    assert len(encode(message)) == 65_507
    async with listening(port) as listener:
        with dial(listener) as wire:
            assert await wire.ask(message) == stored()
    assert port.arrivals[0].data == message.payload


@pytest.mark.fault("D3")
async def test_endpoint_that_floods_gets_an_error_is_then_ignored_and_others_are_served(listening, dial):
    port = MemoryPort()
    async with listening(port, endpoint_rate_s=1e-9, endpoint_burst=2) as listener:
        with dial(listener) as greedy, dial(listener) as other:
            assert [await greedy.ask(request(mid=mid)) for mid in (1, 2)] == [stored(1), stored(2)]
            assert await greedy.ask(request(mid=3)) == answer(Code.TOO_MANY_REQUESTS, 3, options=[max_age(1)])
            assert await greedy.ask(request(mid=1)) == stored(1)
            greedy.send(*(request(mid=mid) for mid in range(10, 200)))
            assert await other.ask(request()) == stored()
        assert listener.counters.dropped > 0
    assert len(port.arrivals) == 3


async def test_over_the_limit_for_all_nothing_is_said(listening, dial):
    port = MemoryPort()
    async with listening(port, rate_s=1e-9, burst=1) as listener:
        with dial(listener) as one, dial(listener) as two:
            assert await one.ask(request()) == stored()
            two.send(*(request(mid=mid) for mid in range(10)))
            await eventually(lambda: listener.counters.dropped == 10, "all are dropped")
    assert len(port.arrivals) == 1


@pytest.mark.parametrize(
    "data", ["40000005", "49010005000000000000000000", "4000000500", "400100050f", "40010005ff", "40440005", "40e10005"]
)
async def test_ping_and_unprocessable_message_are_answered_with_reset(listening, dial, data):
    async with listening(MemoryPort()) as listener:
        with dial(listener) as wire:
            assert await wire.ask(bytes.fromhex(data)) == CoapMessage(MessageType.RST, Code.EMPTY, 5)


@pytest.mark.parametrize("data", ["", "00", "00010005", "5001000500ff", "60000005", "70000005", "504400056162", "604400ff"])
async def test_message_without_a_request_gets_no_response(listening, dial, data):
    async with listening(MemoryPort()) as listener:
        with dial(listener) as wire:
            wire.send(bytes.fromhex(data))
            await wire.alive()


@pytest.mark.fault("N8")
async def test_hostile_datagrams_never_stop_the_listener(listening, dial):
    """One listener for all examples: whatever came, a good client is served after it."""
    port = MemoryPort()
    loop = asyncio.get_running_loop()
    good = encode(request())
    headers = st.builds(
        lambda first, code, rest: bytes((first, code)) + rest,
        st.integers(0x40, 0x7F),
        st.integers(0, 255),
        st.binary(max_size=80),
    )
    mutated = st.builds(
        lambda at, byte: good[:at] + bytes((byte,)) + good[at + 1 :], st.integers(0, len(good) - 1), st.integers(0, 255)
    )
    cut = st.integers(0, len(good)).map(lambda at: good[:at])

    async with listening(port, rate_s=1e6, burst=1_000_000, endpoint_rate_s=1e6, endpoint_burst=1_000_000) as listener:
        hostile = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        hostile.connect(listener.address)

        async def is_served(mid):
            with dial(listener) as wire:
                assert await wire.ask(request(mid=mid)) == stored(mid)

        @settings(max_examples=at_most(300), deadline=None, suppress_health_check=list(HealthCheck))
        @given(st.binary(max_size=80) | headers | mutated | cut, st.integers(0, 65_535))
        def run(data, mid):
            hostile.send(data)
            asyncio.run_coroutine_threadsafe(is_served(mid), loop).result(60)

        await asyncio.to_thread(run)
        hostile.close()


async def test_only_loopback_is_listened_on_unless_the_user_accepts_a_network(listening):
    with pytest.raises(Misconfigured, match=r"coap\.host = '0\.0\.0\.0'.* plain_on_lan = true in \[coap\]"):
        await CoapListener(MemoryPort(), CoapSettings(host="0.0.0.0", port=0)).start()
    async with listening(MemoryPort(), host="0.0.0.0", plain_on_lan=True) as listener:
        assert listener.address[0] == "0.0.0.0"


async def test_an_address_that_is_taken_is_said(listening):
    async with listening(MemoryPort()) as listener:
        other = CoapListener(MemoryPort(), CoapSettings(port=listener.address[1]))
        with pytest.raises(Misconfigured, match="another program listens there"):
            await other.start()
        await other.close()


async def test_ipv6_and_free_paths(listening, dial):
    port = MemoryPort()
    async with listening(port, host="::1", paths=[PathSettings(path="plant/{device}/#")]) as listener:
        raw = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        raw.setblocking(False)
        raw.connect(listener.address)
        raw.send(encode(request("plant/d7/air")))
        (arrival,) = await port.until_stored(1)
        raw.close()
    assert (arrival.device, arrival.channel) == ("d7", "plant/d7/air")


async def test_request_committed_after_the_end_is_not_answered(listening, dial):
    port = MemoryPort()
    port.hold()
    async with listening(port) as listener:
        with dial(listener) as wire:
            wire.send(request())
            await port.until(lambda: port.waiting == 1, "it is put")
    port.release()
    assert len(port.arrivals) == 1
    await listener.close()
