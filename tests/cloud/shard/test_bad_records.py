"""Malformed replies and Kafka records of other programs must not end a shard (B1), against a real broker."""

import msgspec
import pytest

from cloud.shard.reply_batches import IDS, STREAM, is_gap, landed, replies
from cloud.shard.shard_bench import Answers, Bench, StumblesOnce
from fogline.amqp.outcome import ACCEPTED, DeliveryState
from fogline.commands.command import MAX_COMMAND_BYTES
from fogline.events.event import Lane
from fogline.events.gap import GAP_CONTENT_TYPE, decode_gap
from fogline_cloud.kafka import topics
from fogline_cloud.shard.admission import StreamState
from fogline_cloud.shard.checkpoint import POSITION, read_entries, stream_entry
from fogline_cloud.shard.recovery import recover
from fogline_lab.events import make_batch, make_event

BAD = {
    "an unknown state": {"commandstate": "PAUSED"},
    "a state that ends nothing": {"commandstate": "QUEUED"},
    "a status that is no status": {"status": 2**40},
    "a negative status": {"status": -1},
    "a content type over the limit": {"content_type": "text/" + "x" * 2000},
    "a name over the limit": {"subject": "command/" + "n" * 5000},
}


@pytest.mark.fault("S4")
@pytest.mark.parametrize("change", BAD.values(), ids=BAD)
def test_a_malformed_reply_becomes_a_gap_record_and_the_shard_goes_on(bench, change):
    """B1: formerly the shard's thread raised, took the shard again, and received the same batch again."""
    shard, answers = bench.shard(issued=IDS.issued), Answers()
    answers.submit(shard, replies(bench, {}, change, {}))
    assert answers.next() == ACCEPTED
    assert answers.of(shard, 1, 3, tenant=bench.tenant, gateway="gw-2") == ACCEPTED
    assert [is_gap(each) for each in landed(bench)] == [False, True, False]
    gap = decode_gap(landed(bench)[1].value)
    assert (gap.reason, gap.first, gap.last, gap.device) == ("refused", 2, 2, "lamp-1")
    assert shard.counters.retaken == 0


def test_a_reply_over_the_size_limit_lands_as_an_event_and_the_shard_continues(bench):
    """B1: the command's record keeps the status only."""
    shard, answers = bench.shard(issued=IDS.issued), Answers()
    large = {"data": b"x" * (MAX_COMMAND_BYTES + 1), "content_type": "application/octet-stream"}
    answers.submit(shard, replies(bench, {}, large, {}))
    assert answers.next() == ACCEPTED
    assert [is_gap(each) for each in landed(bench)] == [False, False, False]
    assert shard.counters.retaken == 0


def test_a_batch_that_cannot_be_converted_to_records_is_refused_and_the_shard_continues(bench, monkeypatch):
    """B1: an error during the conversion of a batch refuses that batch only."""
    from fogline_cloud.shard import shard_writer

    convert = shard_writer.record_of_object

    def stumble(event, *rest):
        if event.gateway == "gw-1":
            raise OverflowError("nobody thought of this")
        return convert(event, *rest)

    monkeypatch.setattr(shard_writer, "record_of_object", stumble)
    shard, answers = bench.shard(), Answers()
    outcome = answers.of(shard, 1, 3, tenant=bench.tenant)
    assert (outcome.condition, "nobody thought of this" in outcome.description) == ("amqp:decode-error", True)
    assert answers.of(shard, 1, 3, tenant=bench.tenant, gateway="gw-2") == ACCEPTED
    assert shard.counters.retaken == 0


def test_an_unexpected_error_rejects_one_batch_and_the_others_are_tried_again(bench):
    """B1: formerly all work of the same transaction was released."""
    StumblesOnce.stumbled = False
    shard = bench.shard(lambda: bench.writer(StumblesOnce), transaction_ms=500)
    first, second = Answers(), Answers()
    first.submit(shard, make_batch(1, 5, tenant=bench.tenant))
    second.submit(shard, make_batch(1, 5, tenant=bench.tenant, gateway="gw-2"))
    assert first.next().state is DeliveryState.REJECTED
    assert second.next() == ACCEPTED


Foreign = tuple[str, bytes, bytes, list[tuple[str, bytes | None]]]
"""Topic, key, value and headers of a record that no bridge wrote."""


def produce(bench: Bench, records: list[Foreign]) -> None:
    """Commit records, each in a transaction of its own."""
    producer = bench.clients.producer(f"foreign-{bench.tenant}")
    producer.init_transactions(60)
    for topic, key, value, headers in records:
        producer.begin_transaction()
        producer.produce(topic, value, key, partition=0, headers=headers)
        producer.commit_transaction(60)


PLACE = [("ce_gateway", b"gw-1"), ("ce_stream", b"0" * 16), ("ce_lane", b"telemetry"), ("ce_sequence", b"7")]
POISON_HEADERS = {
    "no sequence": PLACE[:3],
    "a sequence that is no number": [*PLACE[:3], ("ce_sequence", b"seven")],
    "a sequence without end": [*PLACE[:3], ("ce_sequence", b"9" * 5000)],
    "a header without a value": [*PLACE[:3], ("ce_sequence", None)],
    "a gateway that is not UTF-8": [("ce_gateway", b"\xff"), *PLACE[1:]],
    "an unknown lane": [*PLACE[:2], ("ce_lane", b"express"), PLACE[3]],
    "a gap record that cannot be read": [*PLACE, ("content-type", GAP_CONTENT_TYPE.encode())],
}


CHECKPOINT_KEYS = b"position owner layout route/lamp-1 stream/gw-1/00 route/\xff command-key new".split()


@pytest.mark.fault("S4")
def test_poisoned_records_in_kafka_do_not_stop_a_shard_from_being_taken(bench):
    """B1: malformed records in a raw topic, in fogline.commands or in the checkpoint do not keep the next owner out."""
    first, answers = bench.shard(), Answers()
    assert answers.of(first, 1, 5, tenant=bench.tenant) == ACCEPTED
    first.stop()
    first.join(60)
    records: list[Foreign] = [(topics.telemetry(bench.tenant), b"lamp-1", b"{", each) for each in POISON_HEADERS.values()]
    for value in (b"", b"{", b"[]", b"\xff", b'{"id": 1}', b'{"id": "' + b"x" * 10 + b'"}', b"[" * 100_000):
        records.append((topics.commands(bench.tenant), b"x" * 32, value, []))
        records.extend((topics.checkpoint(bench.tenant), key, value, []) for key in CHECKPOINT_KEYS)
    produce(bench, records)
    second = bench.shard()
    assert answers.of(second, 4, 8, tenant=bench.tenant) == ACCEPTED
    assert recover(bench.clients, bench.tenant, 0).known["gw-1", make_event().stream].hwm == 8


def test_a_checkpoint_entry_that_cannot_be_read_counts_as_not_written():
    """B1: without a stream's entry its records must be read, so the position does not count either."""
    known = StreamState(gateway="gw-1", stream=STREAM, lane=Lane.TELEMETRY, hwm=5)
    good = [stream_entry(known), (POSITION, msgspec.json.encode({"hono.telemetry.acme": 9}))]
    assert read_entries(good).position == {"hono.telemetry.acme": 9}
    found = read_entries([*good, (b"stream/gw-2/00", b"{")])
    assert (list(found.streams), found.position) == ([("gw-1", STREAM)], {})


def test_an_empty_checkpoint_entry_deletes_its_key():
    """B1: compaction keeps a tombstone for a while, and a consumer may read it."""
    known = StreamState(gateway="gw-1", stream=STREAM, lane=Lane.TELEMETRY, hwm=5)
    key, value = stream_entry(known)
    found = read_entries([(key, value), (POSITION, b'{"t":9}'), (key, b"")])
    assert (found.streams, found.position) == ({}, {"t": 9})
