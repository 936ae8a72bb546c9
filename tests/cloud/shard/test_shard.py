"""One shard against a real broker: which events land, and how deliveries are settled."""

import queue
from collections import Counter

import msgspec
import pytest

from cloud.shard.shard_bench import (
    LIMIT_S,
    Answers,
    Bench,
    StumblesOnce,
    batch_of,
    sequences,
)
from fogline.amqp.outcome import ACCEPTED, INTERNAL_ERROR, MODIFIED, DeliveryState
from fogline.errors import Poison
from fogline.events.codec import Range, encode_batch, encode_event
from fogline.events.event import Lane
from fogline.events.gap import Gap, GapReason, gap_event
from fogline.message import Message
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.committed_records import read_committed
from fogline_cloud.settings import BridgeSettings
from fogline_cloud.shard.inbox import MarksQuery
from fogline_cloud.shard.producer import ShardProducer
from fogline_cloud.shard.recovery import recover
from fogline_cloud.shard.shard import Shard, ShardListeners
from fogline_cloud.shard.work.submissions import ClientEvent, GatewayBatch
from fogline_lab.events import BEACON, NOW_NS, STREAM, make_batch


def test_a_batch_that_straddles_the_mark_lands_once(bench):
    shard, answers = bench.shard(), Answers()
    assert answers.of(shard, 1, 10, tenant=bench.tenant) == ACCEPTED
    assert answers.of(shard, 6, 15, tenant=bench.tenant) == ACCEPTED
    assert answers.of(shard, 1, 15, tenant=bench.tenant) == ACCEPTED
    assert bench.landed() == sequences(15)
    assert shard.counters.duplicate == 5 + 15


def gap_batch(bench, first: int, last: int) -> tuple[Range, Message]:
    """A gap record for sequences `first` to `last`."""
    gap = Gap(GapReason.DROPPED, first, last, "full")
    stamp = {"tenant": bench.tenant, "gateway": "gw-1", "stream": STREAM, "lane": Lane.TELEMETRY, "now_ns": NOW_NS}
    span = Range("gw-1", STREAM, Lane.TELEMETRY, first, last, b"gap" + last.to_bytes(13, "big"))
    return span, encode_batch(span, [encode_event(gap_event(gap, **stamp))], BEACON)


@pytest.mark.fault("C10")
def test_gap_record_is_trimmed_to_the_sequences_above_the_high_water_mark(bench):
    """Events that the gateway dropped may have landed before. Committed records win, and no sequence lands twice."""
    shard, answers = bench.shard(transaction_ms=200), Answers()
    assert answers.of(shard, 1, 10, tenant=bench.tenant) == ACCEPTED
    for batch in (batch_of(bench, 6, 15), gap_batch(bench, 4, 40), gap_batch(bench, 4, 40), batch_of(bench, 41, 42)):
        answers.submit(shard, batch)
    assert [answers.next() for _ in range(4)] == [ACCEPTED] * 4
    answers.submit(shard, gap_batch(bench, 2, 42))
    assert answers.next() == ACCEPTED
    assert [(each.first, each.last) for each in bench.positions()] == [
        *((n, n) for n in range(1, 16)),
        (16, 40),
        (41, 41),
        (42, 42),
    ]
    known = recover(bench.clients, bench.tenant, 0).known["gw-1", STREAM]
    assert (known.hwm, known.landed, known.chain_sequence) == (42, 42, 42)


def test_a_batch_beyond_the_next_is_modified_and_nothing_lands(bench):
    shard, answers = bench.shard(), Answers()
    assert answers.of(shard, 1, 5, tenant=bench.tenant) == ACCEPTED
    assert answers.of(shard, 7, 9, tenant=bench.tenant) == MODIFIED
    assert bench.landed() == sequences(5)


def test_the_middle_of_an_unknown_stream_is_rejected_as_unknown(bench):
    outcome = Answers().of(bench.shard(), 5, 9, tenant=bench.tenant)
    assert (outcome.state, outcome.condition) == (DeliveryState.REJECTED, "fogline:unknown-stream")


def test_stopped_shard_commits_and_settles_its_open_transaction(bench):
    shard, answers = bench.shard(transaction_ms=5000), Answers()
    marks: queue.SimpleQueue = queue.SimpleQueue()
    shard.submit(MarksQuery("gw-1", [STREAM], marks.put))
    marks.get(timeout=LIMIT_S)
    answers.submit(shard, batch_of(bench, 1, 10))
    shard.stop()
    assert answers.next() == ACCEPTED
    assert bench.landed() == sequences(10)


class FencedOnce(ShardProducer):
    """Another producer with the same transactional id appears just before the commit, like that of a second bridge."""

    armed = False

    def commit(self):
        if FencedOnce.armed:
            FencedOnce.armed = False
            intruder = self._clients.producer(f"fogline-{self.tenant}-{self.shard}")
            intruder.init_transactions(60)
        return super().commit()


def test_resent_batch_lands_once_although_the_transaction_of_the_first_copy_aborts(bench):
    shard = bench.shard(lambda: bench.writer(producer=FencedOnce), transaction_ms=500)
    first, second, straddling = Answers(), Answers(), Answers()
    FencedOnce.armed = True
    first.submit(shard, batch_of(bench, 1, 10))
    second.submit(shard, batch_of(bench, 1, 10))
    straddling.submit(shard, batch_of(bench, 5, 12))
    assert [first.next(), second.next(), straddling.next()] == [ACCEPTED] * 3
    assert not FencedOnce.armed, "the transaction was to be aborted"
    assert shard.counters.retaken == 1
    assert bench.landed() == sequences(12)


def test_unexpected_error_rejects_the_batch_and_the_shard_continues(bench):
    StumblesOnce.stumbled = False
    shard = bench.shard(lambda: bench.writer(StumblesOnce))
    answers = Answers()
    answers.submit(shard, batch_of(bench, 1, 5))
    outcome = answers.next()
    assert (outcome.condition, "a bug" in outcome.description) == (INTERNAL_ERROR, True)
    answers.submit(shard, batch_of(bench, 1, 5))
    assert answers.next() == ACCEPTED
    assert [sequence for _, sequence in bench.landed()] == [1, 2, 3, 4, 5]
    assert shard.counters.retaken == 1


def test_an_event_of_another_tenant_leaves_a_gap_record_without_its_body(bench):
    shard, answers = bench.shard(), Answers()
    assert answers.of(shard, 1, 2, tenant="other") == ACCEPTED
    records = list(read_committed(bench.clients, {(topics.telemetry(bench.tenant), 0): None}))
    assert Counter(dict(record.headers)["content-type"] for record in records) == {b"application/vnd.fogline-gap+json": 2}
    assert all(b"temperature" not in record.value and b"lamp" not in record.value for record in records)


def test_a_batch_that_cannot_be_read_is_rejected_and_the_stream_goes_on(bench):
    shard, answers = bench.shard(), Answers()
    span, message = batch_of(bench, 1, 5)
    answers.submit(shard, (span, msgspec.structs.replace(message, body=message.body[:-3])))
    assert answers.next().state is DeliveryState.REJECTED
    assert answers.of(shard, 1, 5, tenant=bench.tenant) == ACCEPTED
    assert bench.landed() == sequences(5)


def test_urgent_transaction_takes_the_queued_work_and_waits_for_no_more(bench):
    """A reply is committed with the work before it, and does not wait for later work."""
    made: queue.SimpleQueue[tuple[Lane, int]] = queue.SimpleQueue()
    shard = Shard(0, bench.writer, BridgeSettings(transaction_ms=1000), ShardListeners(lambda _: None))
    bench.shards.append(shard)

    def submit(batch: tuple[Range, Message]) -> None:
        shard.submit(GatewayBatch(*batch, lambda _: made.put((batch[0].lane, shard.counters.transactions))))

    for first in range(1, 1001, 500):
        submit(batch_of(bench, first, first + 499))
    submit(batch_of(bench, 1, 1, stream="00000000000000aa", lane=Lane.REPLY))
    for first in range(1001, 4001, 500):
        submit(batch_of(bench, first, first + 499))
    shard.start()
    answered = [made.get(timeout=LIMIT_S) for _ in range(9)]
    assert [lane for lane, _ in answered].index(Lane.REPLY) == 2
    (with_it, *_), (after, *_) = ([number for _, number in part] for part in (answered[:3], answered[3:]))
    assert after > with_it


def test_an_alarm_waits_for_less_company_than_telemetry(bench, kafka):
    """Two shards, each with a transaction that waits for more: the one with the alarm ends first, though it began later."""
    answers: queue.SimpleQueue[tuple[str, Lane]] = queue.SimpleQueue()
    other = Bench(kafka, f"{bench.tenant}-alarm")
    try:
        patient, hurried = bench.shard(transaction_ms=600_000), other.shard(transaction_ms=5000)
        for tenant, shard, lane in (
            (bench.tenant, patient, Lane.TELEMETRY),
            (other.tenant, hurried, Lane.TELEMETRY),
            (other.tenant, hurried, Lane.ALARM),
        ):
            span, message = make_batch(1, 1, tenant=tenant, lane=lane, stream=f"{len(lane.value):016x}")
            shard.submit(GatewayBatch(span, message, lambda _, found=(tenant, lane): answers.put(found)))
        first = [answers.get(timeout=LIMIT_S) for _ in range(2)]
        assert first == [(other.tenant, Lane.TELEMETRY), (other.tenant, Lane.ALARM)]
    finally:
        for shard in other.shards:
            shard.stop()


@pytest.mark.fault("X11")
def test_an_error_of_one_listener_after_the_commit_leaves_no_delivery_unsettled(bench):
    shard, answers = bench.shard(transaction_ms=500), Answers()

    def stumble(_):
        raise OverflowError("nobody thought of this")

    shard.submit(GatewayBatch(*batch_of(bench, 1, 5), stumble))
    answers.submit(shard, batch_of(bench, 6, 10))
    assert answers.next() == ACCEPTED
    assert bench.landed() == sequences(10)
    assert shard.counters.retaken == 0


class Failing(ClientEvent):
    """An event whose every attempt fails, with `Poison` or with an error that nobody thought of."""

    def perform(self, _):
        raise self.event


@pytest.mark.fault("X11")
@pytest.mark.parametrize("error", [OverflowError("a bug"), Poison("malformed", "a bug")], ids=lambda each: type(each).__name__)
def test_work_that_fails_at_each_attempt_is_tried_once_and_rejected(bench, error):
    shard, answers, poisoned = bench.shard(transaction_ms=500), Answers(), Answers()
    answers.submit(shard, batch_of(bench, 1, 5))
    shard.submit(Failing(error, poisoned.queue.put))
    assert poisoned.next().condition == INTERNAL_ERROR
    assert answers.next() == ACCEPTED
    assert (bench.landed(), shard.counters.retaken) == (sequences(5), 1)
