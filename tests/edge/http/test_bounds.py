"""What a client may take of the gateway's memory and time."""

import socket

import pytest

from edge.http.client import minutes_pass, request
from fogline.transport.byte_budget import ByteBudget
from fogline_edge.adapters.http import listener, request_loop
from fogline_lab.clock import pass_time
from fogline_lab.port import MemoryPort
from fogline_lab.waiting import eventually

HEAD = b"PUT /t//d1 HTTP/1.1\r\nhost: gw\r\n"


@pytest.mark.fault("D10")
@pytest.mark.parametrize(
    "sent",
    [
        request(body=b"x" * 65),
        HEAD + b"content-length: 9999999999\r\n\r\n" + b"x" * 65,
        HEAD + b"transfer-encoding: chunked\r\n\r\n" + b"10\r\n0123456789abcdef\r\n" * 5,
    ],
    ids=["whole", "announced", "chunks without an end"],
)
async def test_body_that_is_too_large_gets_413(listening, dial, sent):
    async with listening(MemoryPort(), max_body_bytes=64) as server, dial(server) as talker:
        assert (await talker.ask(sent)).status == 413
        assert await talker.closed() == b""


@pytest.mark.parametrize(
    "sent",
    [
        HEAD + b"a: " + b"x" * 20_000,
        HEAD + b"a: b\r\n" * 5000,
        b"PUT /t//" + b"x" * 20_000,
        HEAD + b"transfer-encoding: chunked\r\n\r\n1;" + b"x" * 20_000,
    ],
    ids=["header", "headers", "target", "chunk"],
)
async def test_a_head_without_an_end_is_431(listening, dial, sent):
    async with listening(MemoryPort()) as server, dial(server) as talker:
        assert (await talker.ask(sent)).status == 431
        assert await talker.closed() == b""
        assert server.counters.malformed == 1


@pytest.mark.parametrize("sent", [b"P", HEAD, HEAD + b"content-length: 3\r\n\r\nab"], ids=["a byte", "head", "body"])
async def test_a_request_that_does_not_come_whole_is_408(listening, dial, sent):
    async with listening(MemoryPort()) as server, dial(server) as talker:
        talker.send(sent)
        await eventually(lambda: any(each._requests._begun for each in server._sockets), "the first bytes have come")
        pass_time(10)
        assert (await talker.receive()).status == 408
        assert await talker.closed() == b""
        assert server.counters.timed_out == 1


async def test_a_connection_without_a_request_is_closed(listening, dial):
    async with listening(MemoryPort()) as server:
        async with dial(server) as talker:
            await eventually(lambda: server._sockets, "it is accepted")
            pass_time(10)
            assert await talker.closed() == b""
        async with dial(server) as talker:
            assert (await talker.ask(request())).status == 202
            pass_time(60)
            assert await talker.closed() == b""


async def test_connection_that_waits_longest_for_its_request_is_closed_for_a_new_one(listening, dial):
    port = MemoryPort()
    async with listening(port, max_connections=2) as server, dial(server) as first, dial(server) as second:
        assert (await second.ask(request())).status == 202
        async with dial(server) as third:
            assert await first.closed() == b""
            assert (await third.ask(request())).status == 202
        assert server.counters.over_limit == 1


async def test_connection_beyond_the_limit_gets_an_error_if_all_others_are_served(listening, dial):
    port = MemoryPort()
    port.hold()
    async with listening(port, max_connections=1) as server, dial(server) as first:
        first.send(request())
        await port.until(lambda: port.waiting == 1, "it is put")
        async with dial(server) as second:
            assert (await second.receive()).status == 503
        port.release()
        assert (await first.receive()).status == 202


async def test_far_too_many_connections_are_closed_at_once(listening, dial, monkeypatch):
    monkeypatch.setattr(listener, "LINGERING", 0)
    port = MemoryPort()
    port.hold()
    async with listening(port, max_connections=1) as server, dial(server) as first:
        first.send(request())
        await port.until(lambda: port.waiting == 1, "it is put")
        async with dial(server) as second:
            with pytest.raises(ConnectionError):
                await second.receive()
        port.release()


@pytest.mark.fault("S7")
async def test_all_requests_under_way_have_one_budget(listening, dial):
    """A client that asks for more than all others is refused; if it has less, the largest of the others is."""
    async with listening(MemoryPort()) as server:
        server.budget = ByteBudget(4000)
        async with dial(server) as first, dial(server) as second:
            first.send(HEAD + b"content-length: 2001\r\n\r\n" + b"x" * 2000)
            await eventually(lambda: server.budget.held_bytes == 2000, "the first has come")
            second.send(HEAD + b"content-length: 2002\r\n\r\n" + b"x" * 2001)
            refused = await second.receive()
            assert (refused.status, refused.headers["retry-after"]) == (503, "1")
            async with dial(server) as third:
                third.send(HEAD + b"content-length: 1501\r\n\r\n" + b"x" * 1500)
                assert (await first.receive()).status == 503
                assert (await third.ask(b"x")).status == 202
            assert server.budget.held_bytes == 0


@pytest.mark.fault("S7")
async def test_heads_without_an_end_count(listening, dial):
    async with listening(MemoryPort()) as server, dial(server) as first:
        first.send(HEAD + b"a: " + b"x" * 1000)
        await eventually(lambda: server.budget.held_bytes > 1000, "the head has begun")
        assert (await first.ask(b"\r\ncontent-length: 1\r\n\r\nx")).status == 202
        assert server.budget.held_bytes == 0


async def test_requests_ahead_of_their_responses_stay_in_the_socket(listening, dial):
    """A client that sends on while its first request waits is not read."""
    port = MemoryPort()
    port.hold()
    async with listening(port) as server, dial(server) as talker:
        talker.send(request())
        await port.until(lambda: port.waiting == 1, "it is put")
        (served,) = server._sockets
        talker.send(request(body=b"y" * 1000) * 2000)
        await eventually(lambda: not served._transport.is_reading(), "it is not read")
        assert len(served._requests._codec._h11._receive_buffer) <= 2 * request_loop.READ_AHEAD_BYTES
        port.release()
        assert [(await talker.receive()).status for _ in range(2001)] == [202] * 2001


async def test_a_client_that_reads_only_some_responses_is_closed_after_its_time(listening, dial):
    """Its unread responses are too few to stall it, and too many for the kernel: closing must not wait for them."""
    port, count = MemoryPort(), 3000
    async with listening(port) as server, dial(server) as talker:
        await eventually(lambda: server._sockets, "it is accepted")
        (served,) = server._sockets
        served._transport.set_write_buffer_limits(high=10_000_000)
        served._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        talker.reader._transport.pause_reading()
        talker.send(request() * count)
        await eventually(lambda: server.counters.acknowledged == count, "all are served")
        assert served._transport.get_write_buffer_size()
        assert not served.stalled
        await minutes_pass(lambda: not server._sockets, "it is closed")


async def test_a_client_that_reads_no_response_is_not_served_on(listening, dial):
    port, count = MemoryPort(), 5000
    async with listening(port) as server, dial(server) as talker:
        await eventually(lambda: server._sockets, "it is accepted")
        (served,) = server._sockets
        served._transport.set_write_buffer_limits(high=1000)
        served._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        talker.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        talker.reader._transport.pause_reading()
        talker.send(request() * count)
        await eventually(lambda: served.stalled, "its responses fill the buffers")
        await minutes_pass(lambda: not server._sockets, "it is closed")
        assert len(port.arrivals) < count
