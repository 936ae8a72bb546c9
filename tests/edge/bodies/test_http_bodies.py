"""Large bodies over HTTP: in chunks on a real file, acknowledged once, and recognised as small ones are."""

import asyncio
import contextlib
import hashlib
import tracemalloc

import pytest

from edge.http.client import Talker, request
from fogline.events.event import Lane, Receipt
from fogline.events.identity import digest, semantic_id
from fogline.events.large_body import CHUNK_BYTES, CHUNK_CONTENT_TYPE, MAX_INLINE_BYTES, read_dataref
from fogline_edge.operate.status import read_status
from fogline_lab.large_bodies import join_bodies, make_body
from fogline_lab.waiting import eventually

MIB = 1024 * 1024
HEAD = b"POST /telemetry//camera-1 HTTP/1.1\r\nhost: gw\r\ncontent-type: image/jpeg\r\ncontent-length: %d\r\n\r\n"


async def pieces(body: bytes):
    for first in range(0, len(body), 50_000):
        yield body[first : first + 50_000]


@contextlib.asynccontextmanager
async def dial(gateway):
    talker = Talker(*await asyncio.open_connection(*gateway.listener.addresses["http"]))
    try:
        yield talker
    finally:
        await talker.close()


@pytest.mark.parametrize("size", [MAX_INLINE_BYTES + 1, 2 * CHUNK_BYTES, 3 * MIB + 7])
@pytest.mark.parametrize("announced", [True, False], ids=["content-length", "chunked"])
async def test_large_body_is_stored_in_chunks_byte_for_byte_and_answered_once(http_gateway, size, announced):
    body = make_body(size, size)
    async with http_gateway() as gateway:
        response = await gateway.post(body if announced else pieces(body), at="/event", content_type="image/jpeg")
        assert response.status_code == 202
        events = await gateway.stored()
    joined = join_bodies(events)
    ((event, stored),) = joined.whole
    assert stored == body
    assert (event.device, event.subject, event.lane, event.type) == ("camera-1", "event//camera-1", Lane.BULK, "alarm")
    assert (event.content_type, event.data) == ("image/jpeg", b"")
    ref = read_dataref(event.dataref)
    assert (ref.size, ref.sha256) == (size, hashlib.sha256(body).hexdigest())
    assert {each.content_type for each in events[:-1]} == {CHUNK_CONTENT_TYPE}
    assert [each.sequence for each in events] == list(range(1, len(events) + 1))
    assert (joined.open, joined.ended, joined.broken) == (set(), set(), [])


async def test_body_up_to_the_limit_is_one_event_as_before(http_gateway):
    body = make_body(1, MAX_INLINE_BYTES)
    async with http_gateway() as gateway:
        assert (await gateway.post(body)).status_code == 202
        assert await gateway.stored() == []
        ((stream),) = await gateway.outbox.streams.pending()
        assert (stream.lane, stream.head) == (Lane.TELEMETRY, 1)


async def test_identity_of_a_large_body_is_that_of_the_rule_for_small_ones(http_gateway):
    body = make_body(2, MIB)
    async with http_gateway() as gateway:
        await gateway.post(body, idempotency_key="boot7-1")
        ((event, _),) = join_bodies(await gateway.stored()).whole
    channel = "telemetry//camera-1"
    assert event.id == semantic_id(1, "acme", "camera-1", channel, b"boot7-1", digest(channel, body))


@pytest.mark.fault("C2")
async def test_resend_after_a_lost_acknowledgement_is_stored_once_and_its_chunks_are_ended(http_gateway):
    body = make_body(3, MIB)
    async with http_gateway() as gateway:
        for _ in range(2):
            assert (await gateway.post(body, idempotency_key="boot7-1")).status_code == 202
    async with http_gateway() as gateway:
        assert (await gateway.post(body, idempotency_key="boot7-1")).status_code == 202
        joined = join_bodies(await gateway.stored())
        (stream,) = await gateway.outbox.streams.pending()
    assert [data for _, data in joined.whole] == [body]
    assert len(joined.ended) == 2
    assert not joined.open
    assert stream.counts.acknowledged - stream.counts.duplicate == stream.counts.stored == stream.head


async def test_equal_key_with_another_large_body_is_a_conflict_and_both_are_kept(http_gateway):
    async with http_gateway() as gateway:
        for seed in (4, 5):
            await gateway.post(make_body(seed, MIB), idempotency_key="boot7-1")
        first, second = [event for event, _ in join_bodies(await gateway.stored()).whole]
    assert second.properties == f"same-key-as={first.id}"


@pytest.mark.fault("C21")
async def test_body_that_does_not_come_whole_is_ended_and_never_acknowledged(http_gateway, folder):
    async with http_gateway() as gateway:
        async with dial(gateway) as talker:
            talker.send(HEAD % MIB + make_body(6, MIB // 2))
            await eventually(lambda: gateway.uploads.counters.uploads == 1, "it has begun")
            await gateway.stored()
            assert read_status(folder / "data")["unfinished_bodies"] == {"camera-1": 1}
        await eventually(lambda: gateway.uploads.counters.given_up == 1, "it is given up")
        joined = join_bodies(await gateway.stored())
        assert read_status(folder / "data")["unfinished_bodies"] == {}
    assert (len(joined.ended), joined.open, joined.whole) == (1, set(), [])


@pytest.mark.fault("C21")
async def test_body_that_a_killed_gateway_was_getting_is_ended_at_the_next_start(http_gateway, folder):
    async with http_gateway() as gateway:
        upload = gateway.uploads.begin(gateway.event(), lambda: None, MIB)
        upload.write(make_body(7, MIB // 2))
    async with http_gateway() as gateway:
        joined = join_bodies(await gateway.stored())
    assert (len(joined.ended), joined.open) == (1, set())


@pytest.mark.parametrize(
    ("private", "limits", "size", "reason"),
    [
        (None, {"max_bytes": MIB}, MIB + 1, "too-big"),
        (None, {"max_bytes": 0}, MIB, "too-big"),
        ("camera-*", {}, MIB, "private"),
    ],
)
@pytest.mark.parametrize("announced", [True, False], ids=["content-length", "chunked"])
async def test_body_that_can_never_be_stored_gets_413(http_gateway, private, limits, size, reason, announced):
    body = make_body(8, size)
    async with http_gateway(private=private, **limits) as gateway:
        async with dial(gateway) as talker:
            if announced:
                talker.send(HEAD % size + body)
            else:
                head = b"POST /t//camera-1 HTTP/1.1\r\nhost: gw\r\ntransfer-encoding: chunked\r\n\r\n"
                talker.send(head, *(b"%x\r\n%b\r\n" % (len(each), each) for each in [body[:MIB], body[MIB:]] if each))
            response = await talker.receive()
        assert (response.status, reason in response.body.decode()) == (413, True)
        assert join_bodies(await gateway.stored()).open == set()


async def test_body_larger_than_its_share_of_the_outbox_is_refused_at_once(http_gateway):
    async with http_gateway(outbox_bytes=4 * MIB) as gateway:
        assert (await gateway.post(make_body(9, MIB + 1))).status_code == 413


async def test_more_bodies_of_a_device_at_a_time_than_allowed_get_503_with_retry_after(http_gateway):
    async with http_gateway(max_device_uploads=1) as gateway, dial(gateway) as talker:
        talker.send(HEAD % MIB + make_body(10, MIB // 2))
        await eventually(lambda: gateway.uploads.counters.uploads == 1, "it has begun")
        response = await gateway.post(make_body(11, MIB))
        assert (response.status_code, "retry-after" in response.headers) == (503, True)
        assert (await gateway.post(make_body(12, MIB), device="camera-2")).status_code == 202


@pytest.mark.parametrize("limit", [{"idle_timeout_s": 0.2}, {"max_time_s": 0.001}], ids=["idle", "in all"])
async def test_body_without_a_byte_or_an_end_gets_408_and_is_ended(http_gateway, limit):
    async with http_gateway(**limit) as gateway:
        async with dial(gateway) as talker:
            talker.send(HEAD % MIB + make_body(18, MIB // 2))
            await eventually(lambda: gateway.uploads.counters.uploads == 1 or gateway.uploads.counters.given_up, "it has begun")
            talker.send(b"x")
            assert (await talker.receive()).status == 408
        await eventually(lambda: gateway.uploads.counters.given_up == 1, "it is given up")
        joined = join_bodies(await gateway.stored())
    assert (len(joined.ended), joined.open, joined.whole) == (1, set(), [])


async def test_rule_of_another_device_and_structured_mode_have_their_own_answers(http_gateway):
    async with http_gateway(private="meter-*") as gateway:
        assert (await gateway.post(make_body(13, MIB))).status_code == 202
        structured = await gateway.post(make_body(14, MIB), content_type="application/cloudevents+json")
        assert (structured.status_code, "binary mode" in structured.text) == (413, True)


async def test_small_requests_follow_a_large_one_on_the_same_connection(http_gateway):
    body = make_body(15, MIB)
    async with http_gateway() as gateway, dial(gateway) as talker:
        talker.send(HEAD % MIB + body, request(body=b"21.5"))
        assert [(await talker.receive()).status for _ in range(2)] == [202, 202]


async def test_memory_does_not_grow_with_the_body(http_gateway):
    async def zeros(size):
        for _ in range(size // 65_536):
            yield bytes(65_536)

    async with http_gateway() as gateway:
        await gateway.post(zeros(MIB))
        tracemalloc.start()
        try:
            assert (await gateway.post(zeros(24 * MIB))).status_code == 202
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 8 * MIB


async def test_full_outbox_holds_the_body_and_takes_the_rest_when_there_is_room(http_gateway):
    body = make_body(16, 3 * MIB)
    async with http_gateway() as gateway:
        gateway.outbox.port.set_full(True)
        sending = asyncio.create_task(gateway.post(body))
        await eventually(lambda: gateway.uploads.counters.uploads == 1, "it has begun")
        await eventually(lambda: any(each.crowded for each in gateway.uploads._open), "it is not read on")
        assert await gateway.stored() == []
        gateway.outbox.port.set_full(False)
        assert (await sending).status_code == 202
        assert [data for _, data in join_bodies(await gateway.stored()).whole] == [body]


async def test_receipt_of_the_event_comes_after_all_chunks(http_gateway):
    receipts = []
    async with http_gateway() as gateway:
        upload = gateway.uploads.begin(gateway.event(), lambda: None, MIB)
        upload.write(make_body(17, MIB))
        upload.finish(receipts.append)
        await eventually(lambda: receipts == [Receipt.STORED], "it is stored")
        assert len(join_bodies(await gateway.stored()).whole) == 1
