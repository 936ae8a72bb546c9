"""A thread that reads a topic loses nothing to an error, on a real broker."""

import queue
from contextlib import contextmanager

import pytest
from confluent_kafka import TopicPartition

from fogline_cloud.kafka import consumer_thread, topics
from fogline_cloud.kafka.record_tail import RecordTail

LIMIT_S = 60


@pytest.fixture(autouse=True)
def short_pause(monkeypatch):
    monkeypatch.setattr(consumer_thread, "RETRY_S", 0.01)


@pytest.fixture
def partition(bench):
    return topics.telemetry(bench.tenant), 0


def write(bench, partition, *values):
    producer = bench.clients.publisher(lambda error, _: pytest.fail(error.str()), LIMIT_S)
    for value in values:
        producer.produce(partition[0], value, partition=partition[1])
    assert producer.flush(LIMIT_S) == 0, "Kafka did not take the records"


@contextmanager
def reading(bench, partition, *, from_start=True, refuse=lambda _: False):
    """A tail, and the queue of the values that it gives; "loaded" stands between those of before and those of after."""
    given: queue.SimpleQueue[bytes | str] = queue.SimpleQueue()

    def take(records):
        values = [each.value for each in records]
        if refuse(values):
            given.put("refused")
            raise ValueError(values)
        for each in values:
            given.put(each)

    tail = RecordTail(bench.clients, {partition: from_start}, take, lambda: given.put("loaded"))
    tail.start()
    try:
        yield tail, lambda: given.get(timeout=LIMIT_S)
    finally:
        tail.stop()
        tail.join(LIMIT_S)
        assert not tail.is_alive(), "the tail did not end"


def test_callback_for_an_offset_comes_after_all_records_before_it_and_at_once_if_they_were_read(bench, partition):
    write(bench, partition, b"1")
    with reading(bench, partition) as (tail, given):
        assert (given(), given()) == (b"1", "loaded")
        write(bench, partition, b"2", b"3")
        called: queue.SimpleQueue[str] = queue.SimpleQueue()
        tail.when_read({partition: 3}, lambda: called.put("now"))
        assert called.get(timeout=LIMIT_S) == "now"
        assert (given(), given()) == (b"2", b"3")
        tail.when_read({partition: 3}, lambda: called.put("again"))
        assert called.get(timeout=LIMIT_S) == "again"
        tail.when_read({partition: 4}, lambda: called.put("too early"))
        tail.when_read({partition: 3}, lambda: called.put("last"))
        assert called.get(timeout=LIMIT_S) == "last"


def test_tail_reports_the_end_of_existing_records_and_continues(bench, partition):
    write(bench, partition, b"1")
    with reading(bench, partition) as (tail, given):
        assert (given(), given()) == (b"1", "loaded")
        write(bench, partition, b"2")
        assert (given(), tail.behind) == (b"2", "")


def test_tail_from_the_end_gives_new_records_only(bench, partition):
    write(bench, partition, b"1")
    with reading(bench, partition, from_start=False) as (_, given):
        assert given() == "loaded"
        write(bench, partition, b"2")
        assert given() == b"2"


def test_records_that_could_not_be_taken_are_read_again_and_those_before_are_not(bench, partition):
    refusals = iter([True, True])
    write(bench, partition, b"1")
    with reading(bench, partition, refuse=lambda values: b"2" in values and next(refusals, False)) as (_, given):
        assert (given(), given()) == (b"1", "loaded")
        write(bench, partition, b"2")
        assert [given() for _ in range(3)] == ["refused", "refused", b"2"]


def test_it_begins_with_the_first_record_that_is_there_if_kafka_deleted_the_next_one(bench, partition):
    is_deleted = False
    write(bench, partition, b"1")
    with reading(bench, partition, refuse=lambda values: b"2" in values or not (is_deleted or b"1" in values)) as (tail, given):
        assert (given(), given()) == (b"1", "loaded")
        write(bench, partition, b"2", b"3")
        assert (given(), given()) == ("refused", "refused")
        assert "b'2'" in tail.behind
        admin, until = bench.clients.admin(), TopicPartition(*partition, 2)
        admin.delete_records([until])[until].result(LIMIT_S)
        is_deleted = True
        assert next(each for each in iter(given, None) if each != "refused") == b"3"
