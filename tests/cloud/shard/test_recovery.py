"""A new owner of a shard against a real broker: the fence, and the state that it reads from Kafka."""

import queue
import time

import pytest
from confluent_kafka import OFFSET_END, TopicPartition

from cloud.shard.shard_bench import (
    LIMIT_S,
    Answers,
    batch_of,
    sequences,
)
from fogline.amqp.outcome import ACCEPTED
from fogline.commands.command import CommandState
from fogline.events.codec import read_batch
from fogline.events.event import Lane
from fogline.gateway.hello import Own, resume
from fogline_cloud.commands.record import encode
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.committed_records import CommittedRecord
from fogline_cloud.shard import recovery
from fogline_cloud.shard.checkpoint import ShardOwner
from fogline_cloud.shard.inbox import MarksQuery
from fogline_cloud.shard.recovery import read_checkpoint, recover
from fogline_cloud.shard.topic_admin import create_topics
from fogline_cloud.shard.work.submissions import ClientEvent
from fogline_lab.bridge.command_records import make_record
from fogline_lab.events import STREAM, make_event


def test_new_owner_knows_the_marks_of_every_lane_and_the_former_owner_commits_nothing(bench):
    former, answers = bench.shard(), Answers()
    lanes = {Lane.TELEMETRY: "0" * 16, Lane.ALARM: "a" * 16, Lane.REPLY: "e" * 16, Lane.BULK: "b" * 16}
    for number, (lane, stream) in enumerate(lanes.items(), start=1):
        assert answers.of(former, 1, 10 * number, lane=lane, stream=stream, tenant=bench.tenant) == ACCEPTED
    heir, marks = bench.shard(), queue.SimpleQueue()
    heir.submit(MarksQuery("gw-1", list(lanes.values()), marks.put))
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
def test_fenced_owner_cannot_commit_its_open_transaction(bench):
    """The transaction is open while the next owner takes the shard: its commit fails, and its records are not visible."""
    zombie = bench.writer()
    zombie.take(ShardOwner("zombie", "127.0.0.1:1"))
    span, message = batch_of(bench, 1, 10)
    zombie.write_batch(read_batch(span, message), span)
    heir, answers = bench.shard(), Answers()
    with pytest.raises(Exception, match="shard 0"):
        zombie.producer.commit()
    assert answers.of(heir, 1, 3, tenant=bench.tenant) == ACCEPTED
    assert bench.landed() == sequences(3)


def test_recovery_reads_from_the_checkpoint_and_finds_the_same_state(bench):
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


def test_checkpoint_contains_streams_that_its_owner_only_read(bench):
    """Its position lies after those records, so the next owner would not read them."""
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


def test_shard_is_taken_after_retention_deleted_all_its_records(bench):
    """Even the marker of the last transaction is deleted."""
    first, answers = bench.shard(checkpoint_s=0.01), Answers()
    assert answers.of(first, 1, 5, tenant=bench.tenant) == ACCEPTED
    first.submit(ClientEvent(make_event(0, tenant=bench.tenant, stream="", gateway=""), answers.queue.put))
    assert answers.next() == ACCEPTED
    place = (topics.telemetry(bench.tenant), 0)
    deadline = time.monotonic() + LIMIT_S
    while bench.checkpoint_position() != bench.clients.stable_ends([place], LIMIT_S)[place]:
        assert time.monotonic() < deadline, "the checkpoint stays behind"
    first.stop()
    first.join(60)
    delete_all(bench, place[0])
    second = bench.shard()
    assert answers.of(second, 6, 6, tenant=bench.tenant) == ACCEPTED
    assert answers.of(second, 1, 5, tenant=bench.tenant) == ACCEPTED
    assert [sequence for _, sequence in bench.landed()] == [6]


def delete_all(bench, topic: str):
    """Delete all records, as retention does."""
    admin = bench.clients.admin()
    for deleted in admin.delete_records([TopicPartition(topic, 0, OFFSET_END)]).values():
        deleted.result(LIMIT_S)


def test_b4_a_bridge_that_was_off_for_longer_than_retention_takes_its_shard_and_gateways_open_new_streams(bench, caplog):
    """Records that no checkpoint counted are deleted: the shard is read from what is left, and hello tells the gateway."""
    telemetry = topics.telemetry(bench.tenant)
    first, answers = bench.shard(checkpoint_s=3600), Answers()
    assert answers.of(first, 1, 5, tenant=bench.tenant) == ACCEPTED
    first.stop()
    first.join(60)
    killed = bench.shard(checkpoint_s=3600)  # its first transaction writes a checkpoint, its second does not
    for sequence in (6, 7):
        assert answers.of(killed, sequence, sequence, tenant=bench.tenant) == ACCEPTED
    before = bench.checkpoint_position()
    delete_all(bench, telemetry)
    heir = bench.shard()
    asked = queue.SimpleQueue()
    heir.submit(MarksQuery("gw-1", [STREAM], asked.put))
    (mark,) = asked.get(timeout=LIMIT_S)
    assert mark.hwm < 7
    assert "lost data" in resume(Own(settled=7, settled_chain="", head=9, chain_at_mark=None), mark).why
    assert f"{telemetry}[0]" in caplog.text
    assert f"offset {before}" in caplog.text
    assert answers.of(heir, 1, 3, stream="00000000000000cc", tenant=bench.tenant) == ACCEPTED


def test_b4_a_recreated_topic_is_read_from_its_beginning(bench, caplog):
    """The checkpoint's position lies beyond the end of a topic that was deleted and created again."""
    telemetry = topics.telemetry(bench.tenant)
    first, answers = bench.shard(checkpoint_s=3600), Answers()
    for sequence in (1, 2, 3):
        assert answers.of(first, sequence, sequence, tenant=bench.tenant) == ACCEPTED
    first.stop()
    first.join(60)
    end = bench.checkpoint_position()
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
    shard.join(60)
    read = []
    assert recover(bench.clients, bench.tenant, 0, on_record=lambda: read.append(1)).known["gw-1", STREAM].hwm == 5
    assert read == []


def test_a_record_that_cannot_be_read_does_not_close_its_shard(bench, caplog):
    """Another program wrote a record with similar headers: it is skipped and logged."""
    failed = []
    producer = bench.clients.publisher(lambda error, _: failed.append(error), LIMIT_S)
    headers = {"ce_stream": STREAM, "ce_sequence": "one"}
    producer.produce(topics.telemetry(bench.tenant), b"x", partition=0, headers=headers)
    assert (producer.flush(LIMIT_S), failed) == (0, [])
    shard, answers = bench.shard(), Answers()
    assert "is skipped" in caplog.text
    assert answers.of(shard, 1, 3, tenant=bench.tenant) == ACCEPTED


def test_open_commands_are_read_in_order_of_acceptance_for_any_clock(monkeypatch):
    """The clock of a bridge was set back between the two."""
    first, second = make_record("C1", accepted_ms=9000, changed_ms=9000), make_record("C2", accepted_ms=10, changed_ms=10)
    over = make_record("C0", state=CommandState.CANCELLED, status=410, changed_ms=5000)
    log = [
        CommittedRecord("commands", 0, at, each.id.encode(), encode(each), []) for at, each in enumerate((first, over, second))
    ]
    monkeypatch.setattr(recovery, "read_committed", lambda *_: iter(log))
    assert [each.id for each in recovery.read_commands(None, "acme", 0)] == ["C0", "C1", "C2"]
