"""One shard against a real broker: what lands, what is answered, and who is fenced."""

import queue
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import OFFSET_END, TopicPartition

from fogline.amqp.outcome import ACCEPTED, MODIFIED, State
from fogline.codec import Range, encode_batch, encode_event
from fogline.event import Lane
from fogline.gap import Gap, GapReason, gap_event
from fogline.hello import Own, resume
from fogline.message import Message
from fogline.testing.events import BEACON, NOW_NS, STREAM, make_batch, make_event
from fogline_cloud import topics
from fogline_cloud.bridge.recovery import read_checkpoint, recover
from fogline_cloud.bridge.shard import Question, Shard
from fogline_cloud.bridge.transaction import TransactionLog
from fogline_cloud.bridge.work import Report, Submission
from fogline_cloud.kafka import KafkaClients
from fogline_cloud.provision import create_topics
from fogline_cloud.reading import read_committed
from fogline_cloud.records import place_of
from fogline_cloud.settings import BridgeSettings, Settings

LIMIT_S = 60.0


class Bench:
    """A tenant of one shard, and shards on it that are stopped at the end."""

    def __init__(self, kafka, tenant):
        self.tenant = tenant
        self.settings = Settings(tenant=tenant, kafka={"bootstrap.servers": kafka.bootstrap}, shards=1)
        self.clients = KafkaClients(self.settings.kafka)
        self.shards: list[Shard] = []
        create_topics(self.clients, self.settings, 1)

    def shard(
        self, make_log: Callable[[], TransactionLog] | None = None, issued: Callable[[str], bool] = bool, **settings
    ) -> Shard:
        """A shard that is ready. `issued`: which identifiers of commands a bridge has made."""
        changes: queue.SimpleQueue[bool] = queue.SimpleQueue()
        shard = Shard(
            0,
            make_log or self.log,
            BridgeSettings(**{"transaction_ms": 5, **settings}),
            lambda each: changes.put(each.ready),
            issued=issued,
        )
        self.shards.append(shard)
        shard.start()
        assert changes.get(timeout=LIMIT_S), "the shard was not taken"
        return shard

    def log(self) -> TransactionLog:
        return TransactionLog(self.clients, self.tenant, 0)

    def landed(self, lane=Lane.TELEMETRY) -> list[tuple[str, int]]:
        """Stream and sequence of every committed record of a lane, in order."""
        records = read_committed(self.clients, {(topics.of_lane(lane, self.tenant), 0): None})
        places = (place_of(record.headers, record.value) for record in records)
        return [(place.stream, place.last) for place in places if place]

    def spans(self) -> list[tuple[int, int]]:
        """First and last sequence that each committed telemetry record stands for, in order."""
        records = read_committed(self.clients, {(topics.of_lane(Lane.TELEMETRY, self.tenant), 0): None})
        places = (place_of(record.headers, record.value) for record in records)
        return [(place.first, place.last) for place in places if place]


class Answers:
    """Outcomes as they come from the shard's thread."""

    def __init__(self):
        self._queue = queue.SimpleQueue()

    def submit(self, shard: Shard, batch: tuple[Range, Message]):
        shard.submit(Submission(*batch, self._queue.put))

    def next(self, limit_s=LIMIT_S):
        try:
            return self._queue.get(timeout=limit_s)
        except queue.Empty:
            raise AssertionError(f"no answer in {limit_s} s") from None

    def of(self, shard: Shard, first: int, last: int, **other):
        self.submit(shard, make_batch(first, last, **other))
        return self.next()


@pytest.fixture
def bench(kafka, tenant) -> Iterator[Bench]:
    made = Bench(kafka, tenant)
    yield made
    for shard in made.shards:
        shard.stop()
    for shard in made.shards:
        shard.join(30)


def batch_of(bench, first, last, **other):
    return make_batch(first, last, tenant=bench.tenant, **other)


def sequences(count):
    return [(STREAM, sequence) for sequence in range(1, count + 1)]


def test_a_batch_that_straddles_the_mark_lands_once(bench):
    shard, answers = bench.shard(), Answers()
    assert answers.of(shard, 1, 10, tenant=bench.tenant) == ACCEPTED
    assert answers.of(shard, 6, 15, tenant=bench.tenant) == ACCEPTED
    assert answers.of(shard, 1, 15, tenant=bench.tenant) == ACCEPTED
    assert bench.landed() == sequences(15)
    assert shard.counters.duplicate == 5 + 15


def gap_batch(bench, first: int, last: int) -> tuple[Range, Message]:
    """A gap record that stands for all of it."""
    gap = Gap(GapReason.DROPPED, first, last, "full")
    stamp = {"tenant": bench.tenant, "gateway": "gw-1", "stream": STREAM, "lane": Lane.TELEMETRY, "now_ns": NOW_NS}
    span = Range("gw-1", STREAM, Lane.TELEMETRY, first, last, b"gap" + last.to_bytes(13, "big"))
    return span, encode_batch(span, [encode_event(gap_event(gap, **stamp))], BEACON)


@pytest.mark.fault("C10")
def test_of_a_gap_only_that_lands_for_which_there_is_nothing_yet(bench):
    """What the gateway dropped may have landed before it knew: what is committed wins, and nothing is said twice."""
    shard, answers = bench.shard(transaction_ms=200), Answers()
    assert answers.of(shard, 1, 10, tenant=bench.tenant) == ACCEPTED
    for batch in (batch_of(bench, 6, 15), gap_batch(bench, 4, 40), gap_batch(bench, 4, 40), batch_of(bench, 41, 42)):
        answers.submit(shard, batch)
    assert [answers.next() for _ in range(4)] == [ACCEPTED] * 4
    answers.submit(shard, gap_batch(bench, 2, 42))
    assert answers.next() == ACCEPTED
    assert bench.spans() == [*((n, n) for n in range(1, 16)), (16, 40), (41, 41), (42, 42)]
    known = recover(bench.clients, bench.tenant, 0).known["gw-1", STREAM]
    assert (known.hwm, known.landed, known.chain_sequence) == (42, 42, 42)


def test_a_batch_beyond_the_next_is_modified_and_nothing_lands(bench):
    shard, answers = bench.shard(), Answers()
    assert answers.of(shard, 1, 5, tenant=bench.tenant) == ACCEPTED
    assert answers.of(shard, 7, 9, tenant=bench.tenant) == MODIFIED
    assert bench.landed() == sequences(5)


def test_the_middle_of_an_unknown_stream_is_rejected_as_unknown(bench):
    outcome = Answers().of(bench.shard(), 5, 9, tenant=bench.tenant)
    assert (outcome.state, outcome.condition) == (State.REJECTED, "fogline:unknown-stream")


def test_what_was_begun_when_a_shard_is_stopped_is_committed_and_answered(bench):
    shard, answers = bench.shard(transaction_ms=5000), Answers()
    marks: queue.SimpleQueue = queue.SimpleQueue()
    shard.ask(Question("gw-1", [STREAM], marks.put))
    marks.get(timeout=LIMIT_S)
    answers.submit(shard, batch_of(bench, 1, 10))
    shard.stop()
    assert answers.next() == ACCEPTED
    assert bench.landed() == sequences(10)


class FencedOnce(TransactionLog):
    """Another producer of the same name appears right before this one commits, as a second bridge would."""

    armed = False

    def commit(self, *more):
        if FencedOnce.armed:
            FencedOnce.armed = False
            intruder = self._clients.producer(f"fogline-{self._tenant}-{self._shard}")
            intruder.init_transactions(30)
        return super().commit(*more)


def test_a_resend_while_the_first_copys_transaction_is_open_which_then_aborts(bench):
    shard = bench.shard(lambda: FencedOnce(bench.clients, bench.tenant, 0), transaction_ms=500)
    first, second, straddling = Answers(), Answers(), Answers()
    FencedOnce.armed = True
    first.submit(shard, batch_of(bench, 1, 10))
    second.submit(shard, batch_of(bench, 1, 10))
    straddling.submit(shard, batch_of(bench, 5, 12))
    assert [first.next(), second.next(), straddling.next()] == [ACCEPTED] * 3
    assert not FencedOnce.armed, "the transaction was to be aborted"
    assert shard.counters.retaken == 1
    assert bench.landed() == sequences(12)


class StumblesOnce(TransactionLog):
    """Raises something that nobody thought of, the first time that it writes."""

    stumbled = False

    def produce(self, batch, span):
        if not StumblesOnce.stumbled:
            StumblesOnce.stumbled = True
            raise ZeroDivisionError("a bug")
        return super().produce(batch, span)


def test_a_bug_gives_the_batch_back_and_the_shard_goes_on(bench):
    StumblesOnce.stumbled = False
    shard = bench.shard(lambda: StumblesOnce(bench.clients, bench.tenant, 0))
    answers = Answers()
    answers.submit(shard, batch_of(bench, 1, 5))
    assert answers.next().state is State.RELEASED
    answers.submit(shard, batch_of(bench, 1, 5))
    assert answers.next() == ACCEPTED
    assert [sequence for _, sequence in bench.landed()] == [1, 2, 3, 4, 5]
    assert shard.counters.retaken == 1


def test_a_takeover_knows_every_lane_and_the_former_owner_commits_nothing(bench):
    former, answers = bench.shard(), Answers()
    lanes = {Lane.TELEMETRY: "0" * 16, Lane.ALARM: "a" * 16, Lane.REPLY: "e" * 16, Lane.BULK: "b" * 16}
    for number, (lane, stream) in enumerate(lanes.items(), start=1):
        assert answers.of(former, 1, 10 * number, lane=lane, stream=stream, tenant=bench.tenant) == ACCEPTED
    heir, marks = bench.shard(), queue.SimpleQueue()
    heir.ask(Question("gw-1", list(lanes.values()), marks.put))
    assert [(mark.hwm, mark.chain_sequence) for mark in marks.get(timeout=LIMIT_S)] == [(10 * n, 10 * n) for n in range(1, 5)]

    zombie = Answers()
    zombie.submit(former, batch_of(bench, 11, 20, stream=lanes[Lane.TELEMETRY]))
    former.stop()
    former.join(LIMIT_S)
    for number, (lane, stream) in enumerate(lanes.items(), start=1):
        last = 10 * number
        assert answers.of(heir, last - 4, last + 5, lane=lane, stream=stream, tenant=bench.tenant) == ACCEPTED
    for number, (lane, stream) in enumerate(lanes.items(), start=1):
        of_stream = [sequence for name, sequence in bench.landed(lane) if name == stream]
        assert of_stream == list(range(1, 10 * number + 6)), lane


@pytest.mark.fault("K3")
def test_a_woken_owner_cannot_commit_what_it_had_open(bench):
    """The zombie's transaction is open while the heir takes the shard: its commit fails, and its data is not there."""
    zombie = bench.log()
    zombie.take(bench_owner())
    span, message = batch_of(bench, 1, 10)
    from fogline.codec import read_batch

    zombie.produce(read_batch(span, message), span)
    heir, answers = bench.shard(), Answers()
    with pytest.raises(Exception, match="shard 0"):
        zombie.commit()
    assert answers.of(heir, 1, 3, tenant=bench.tenant) == ACCEPTED
    assert bench.landed() == sequences(3)


def bench_owner():
    from fogline_cloud.bridge.checkpoint import Owner

    return Owner("zombie", "127.0.0.1:1")


def test_an_event_of_another_tenant_leaves_a_gap_record_without_its_body(bench):
    shard, answers = bench.shard(), Answers()
    assert answers.of(shard, 1, 2, tenant="other") == ACCEPTED
    records = list(read_committed(bench.clients, {(topics.telemetry(bench.tenant), 0): None}))
    assert Counter(dict(record.headers)["content-type"] for record in records) == {b"application/vnd.fogline-gap+json": 2}
    assert all(b"temperature" not in record.value and b"lamp" not in record.value for record in records)


def test_recovery_starts_at_the_checkpoint_and_comes_to_the_same_knowledge(bench):
    shard, answers = bench.shard(checkpoint_s=0.001), Answers()
    for begin in range(1, 100, 10):
        assert answers.of(shard, begin, begin + 9, tenant=bench.tenant) == ACCEPTED
    read = []
    recovered = recover(bench.clients, bench.tenant, 0, on_record=lambda: read.append(1))
    checkpoint = read_checkpoint(bench.clients, bench.tenant, 0)
    assert checkpoint.streams["gw-1", STREAM].hwm >= 90
    assert len(read) <= 10
    known = recovered.known["gw-1", STREAM]
    assert (known.hwm, known.landed, known.chain_sequence) == (100, 100, 100)


def test_what_an_owner_only_read_stands_in_its_checkpoint(bench):
    """Its position lies beyond those records: the owner after it would never see them."""
    alarms = "00000000000000bb"
    first, answers = bench.shard(checkpoint_s=3600), Answers()
    for begin in range(1, 50, 10):
        assert answers.of(first, begin, begin + 9, tenant=bench.tenant) == ACCEPTED
    before = read_checkpoint(bench.clients, bench.tenant, 0)
    assert before.position.get(topics.telemetry(bench.tenant), 0) < 50, "the checkpoint must be older than the records"
    second = bench.shard(checkpoint_s=0.01)
    for sequence in range(1, 5):
        assert answers.of(second, sequence, sequence, lane=Lane.ALARM, stream=alarms, tenant=bench.tenant) == ACCEPTED
    assert read_checkpoint(bench.clients, bench.tenant, 0).position.get(topics.telemetry(bench.tenant), 0) > 50
    known = recover(bench.clients, bench.tenant, 0).known
    assert {stream: each.hwm for (_, stream), each in known.items()} == {STREAM: 50, alarms: 4}


def test_a_shard_that_was_quiet_for_longer_than_kafka_keeps_records_is_taken(bench):
    """Not even the last transaction's marker is there any more."""
    first, answers = bench.shard(checkpoint_s=0.01), Answers()
    assert answers.of(first, 1, 5, tenant=bench.tenant) == ACCEPTED
    first.submit(Report(make_event(0, tenant=bench.tenant, stream="", gateway=""), answers._queue.put))
    assert answers.next() == ACCEPTED
    place = (topics.telemetry(bench.tenant), 0)
    deadline = time.monotonic() + LIMIT_S
    while position(bench) != bench.clients.stable_ends([place], LIMIT_S)[place]:
        assert time.monotonic() < deadline, "the checkpoint stays behind"
    first.stop()
    first.join(30)
    delete_all(bench, place[0])
    second = bench.shard()
    assert answers.of(second, 6, 6, tenant=bench.tenant) == ACCEPTED
    assert answers.of(second, 1, 5, tenant=bench.tenant) == ACCEPTED
    assert [sequence for _, sequence in bench.landed()] == [6]


def delete_all(bench, topic: str):
    """What retention does, at once."""
    admin = bench.clients.admin()
    for deleted in admin.delete_records([TopicPartition(topic, 0, OFFSET_END)]).values():
        deleted.result(LIMIT_S)


def test_b4_a_bridge_that_was_off_for_longer_than_retention_takes_its_shard_and_gateways_reopen(bench, caplog):
    """Records that no checkpoint counted are deleted: the shard is read from what is left, and hello tells the gateway."""
    telemetry = topics.telemetry(bench.tenant)
    first, answers = bench.shard(checkpoint_s=3600), Answers()
    assert answers.of(first, 1, 5, tenant=bench.tenant) == ACCEPTED
    first.stop()
    first.join(30)
    killed = bench.shard(checkpoint_s=3600)  # its first transaction writes a checkpoint, its second does not
    for sequence in (6, 7):
        assert answers.of(killed, sequence, sequence, tenant=bench.tenant) == ACCEPTED
    before = position(bench)
    delete_all(bench, telemetry)
    heir = bench.shard()
    asked = queue.SimpleQueue()
    heir.ask(Question("gw-1", [STREAM], asked.put))
    (mark,) = asked.get(timeout=LIMIT_S)
    assert mark.hwm < 7
    assert "lost data" in resume(Own(settled=7, settled_chain="", head=9, chain_at_mark=None), mark).why
    assert f"{telemetry}[0]" in caplog.text
    assert f"offset {before}" in caplog.text
    assert answers.of(heir, 1, 3, stream="00000000000000cc", tenant=bench.tenant) == ACCEPTED


def test_b4_a_topic_made_anew_is_read_from_its_beginning(bench, caplog):
    """The checkpoint's position lies beyond the end of a topic that was deleted and created again."""
    telemetry = topics.telemetry(bench.tenant)
    first, answers = bench.shard(checkpoint_s=3600), Answers()
    for sequence in (1, 2, 3):
        assert answers.of(first, sequence, sequence, tenant=bench.tenant) == ACCEPTED
    first.stop()
    first.join(30)
    end = position(bench)
    admin = bench.clients.admin()
    admin.delete_topics([telemetry])[telemetry].result(LIMIT_S)
    deadline = time.monotonic() + LIMIT_S
    while telemetry in bench.clients.topics():
        assert time.monotonic() < deadline, "the topic is not deleted"
    create_topics(bench.clients, bench.settings, 1)
    second = bench.shard()
    assert f"offset {end}" in caplog.text
    assert answers.of(second, 4, 4, tenant=bench.tenant) == ACCEPTED


def test_b4_a_shard_that_is_stopped_leaves_a_checkpoint_of_all_it_has_committed(bench):
    shard, answers = bench.shard(checkpoint_s=3600), Answers()
    for sequence in range(1, 6):
        assert answers.of(shard, sequence, sequence, tenant=bench.tenant) == ACCEPTED
    shard.stop()
    shard.join(30)
    read = []
    assert recover(bench.clients, bench.tenant, 0, on_record=lambda: read.append(1)).known["gw-1", STREAM].hwm == 5
    assert read == []


def test_a_record_that_cannot_be_read_does_not_close_its_shard(bench, caplog):
    """Somebody else has written to the topic, with headers like ours: it is passed over, and named."""
    failed = []
    producer = bench.clients.publisher(lambda error, _: failed.append(error), LIMIT_S)
    headers = {"ce_stream": STREAM, "ce_sequence": "one"}
    producer.produce(topics.telemetry(bench.tenant), b"x", partition=0, headers=headers)
    assert (producer.flush(LIMIT_S), failed) == (0, [])
    shard, answers = bench.shard(), Answers()
    assert "is skipped" in caplog.text
    assert answers.of(shard, 1, 3, tenant=bench.tenant) == ACCEPTED


def position(bench) -> int | None:
    return read_checkpoint(bench.clients, bench.tenant, 0).position.get(topics.telemetry(bench.tenant))


def test_a_batch_that_cannot_be_read_is_rejected_and_the_stream_goes_on(bench):
    import msgspec

    shard, answers = bench.shard(), Answers()
    span, message = batch_of(bench, 1, 5)
    answers.submit(shard, (span, msgspec.structs.replace(message, body=message.body[:-3])))
    assert answers.next().state is State.REJECTED
    assert answers.of(shard, 1, 5, tenant=bench.tenant) == ACCEPTED
    assert bench.landed() == sequences(5)


def test_nothing_more_goes_with_what_somebody_waits_for_than_was_there(bench):
    """A reply waits for what came before it, and not for what comes after."""
    made: queue.SimpleQueue[tuple[Lane, int]] = queue.SimpleQueue()
    shard = Shard(0, bench.log, BridgeSettings(transaction_ms=1000), lambda _: None)
    bench.shards.append(shard)

    def submit(batch: tuple[Range, Message]) -> None:
        shard.submit(Submission(*batch, lambda _: made.put((batch[0].lane, shard.counters.transactions))))

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
