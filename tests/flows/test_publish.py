"""Derived records and a Kafka that is not there."""

import pytest

from fogline.errors import Unreachable
from fogline.testing.kafka_broker import KafkaBroker
from fogline_cloud import topics
from fogline_cloud.flows import publish
from fogline_cloud.flows.derive import Message


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish, "LIMIT_S", 0.5)


def test_what_kafka_does_not_take_is_no_success() -> None:
    record = Message(topics.canonical("t"), b"d-1", b"{}", [])
    with pytest.raises(Unreachable, match="derived"):
        publish.publish({"bootstrap.servers": "127.0.0.1:1"}, [record] * 3)


@pytest.mark.usefixtures("kafka")
def test_one_record_that_is_too_big_is_no_success(kafka: KafkaBroker) -> None:
    record = Message(topics.canonical("too-big"), b"d-1", b"x" * 2_000_000, [])
    with pytest.raises(Unreachable, match="derived"):
        publish.publish({"bootstrap.servers": kafka.bootstrap}, [record])
