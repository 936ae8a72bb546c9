"""Event streams: what is kept for clients that do not read, and that those who read miss nothing."""

import asyncio
import tracemalloc
from types import SimpleNamespace

import pytest
from starlette.requests import Request

from fogline_cloud.api.feed import MAX_BYTES, Feed
from fogline_cloud.api.stream_route import WRITE_BYTES, StreamRoute
from fogline_lab.amqp import within

ITEM_BYTES = 100_000
STREAMS = 30


class Client:
    """A client of one stream, which reads `most` messages and no more; with 0, all of them, and keeps them."""

    def __init__(self, feed: Feed, most: int = 0, last_id: str | None = None) -> None:
        self.messages: list[bytes] = []
        self.read = 0
        self.stuck = asyncio.Event()
        self._most = most
        context = SimpleNamespace(feed=feed, streams=0, max_streams=100, stopping=False)
        context.user = self.user
        context.may_see = lambda *_: True
        headers = [] if last_id is None else [(b"last-event-id", last_id.encode())]
        scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": headers}
        self.task = asyncio.create_task(StreamRoute(context).serve(Request(scope, self.receive), self.send))

    async def user(self, _: Request) -> SimpleNamespace:
        session = SimpleNamespace(is_closed=False, over=asyncio.get_running_loop().create_future())
        return SimpleNamespace(principal=None, session=session)

    async def receive(self) -> dict[str, str]:
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    async def send(self, message) -> None:
        self.read += 1
        if not self._most:
            self.messages.append(message.get("body", b""))
        elif self.read > self._most:
            self.kept = message
            self.stuck.set()
            await asyncio.get_running_loop().create_future()

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])


def full(feed: Feed, letter: bytes) -> None:
    for _ in range(MAX_BYTES // ITEM_BYTES + 1):
        feed.put("reading", "meter-1", "", letter * ITEM_BYTES)


@pytest.mark.fault("S7")
async def test_unread_event_streams_buffer_a_bounded_text_and_lose_events_that_left_the_ring():
    feed = Feed()
    first = feed.id_of(0)
    full(feed, b"a")
    tracemalloc.start()
    try:
        clients = [Client(feed, most=2 + number, last_id=first) for number in range(STREAMS)]
        for each in clients:
            await within(each.stuck.wait(), "it is not written to")
        before_bytes = tracemalloc.get_traced_memory()[0]
        assert max(len(each.kept["body"]) for each in clients) <= WRITE_BYTES
        full(feed, b"b")
        kept_bytes = tracemalloc.get_traced_memory()[0] - MAX_BYTES
    finally:
        tracemalloc.stop()
        for each in clients:
            await each.end()
    print(f"{before_bytes:,} bytes for {STREAMS} streams, {kept_bytes:,} beside the ring after its items were replaced")
    assert before_bytes < STREAMS * 2 * ITEM_BYTES
    assert kept_bytes < STREAMS * 2 * ITEM_BYTES


async def test_a_client_that_reads_gets_every_item_whole():
    feed = Feed()
    first, sizes = feed.id_of(0), [1, 10, WRITE_BYTES, 5 * WRITE_BYTES + 3, 7, 300_000, 2]
    for size in sizes:
        feed.put("reading", "meter-1", "", b"x" * size)
    client = Client(feed, last_id=first)
    try:
        async with asyncio.timeout(60):
            while b"".join(client.messages).count(b"data:") < len(sizes):  # noqa: ASYNC110 (a stream has no event)
                await asyncio.sleep(0)
    finally:
        await client.end()
    events = b"".join(client.messages).split(b"\n\n")[1:-1]
    assert [len(each.partition(b"data: ")[2]) for each in events] == sizes
