"""Derived records and a Kafka that does not take them."""

import pytest

from fogline.errors import Unreachable
from fogline_cloud.flows.worker import publish
from fogline_cloud.flows.worker.derive import DerivedRecord
from fogline_cloud.kafka import topics
from fogline_lab.kafka_broker import KafkaBroker


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish, "LIMIT_S", 0.5)


def test_records_that_kafka_does_not_take_are_an_error() -> None:
    record = DerivedRecord(topics.canonical("t"), b"d-1", b"{}", [])
    with pytest.raises(Unreachable, match="derived"):
        publish.publish({"bootstrap.servers": "127.0.0.1:1"}, [record] * 3)


@pytest.mark.usefixtures("kafka")
def test_one_record_that_is_too_large_is_an_error(kafka: KafkaBroker) -> None:
    record = DerivedRecord(topics.canonical("too-big"), b"d-1", b"x" * 2_000_000, [])
    with pytest.raises(Unreachable, match="derived"):
        publish.publish({"bootstrap.servers": kafka.bootstrap}, [record])


def test_a_topic_that_is_gone_is_named_with_what_makes_it_again(kafka: KafkaBroker) -> None:
    gone = DerivedRecord(topics.canonical_topic("gone", "meters"), b"d-1", b"{}", [])
    with pytest.raises(Unreachable, match=r"fogline\.canonical-meters\.gone: .* run: fogline topics create"):
        publish.publish({"bootstrap.servers": kafka.bootstrap, "allow.auto.create.topics": False}, [gone])
