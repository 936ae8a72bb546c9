"""Kafka clients and their settings."""

import socket

import pytest
from confluent_kafka import KafkaError, KafkaException

from fogline.errors import Unreachable
from fogline_cloud.kafka.clients import COMPRESSION, DERIVED_COMPRESSION, KafkaClients, end_offset


class Made:
    """The settings that a client of librdkafka was made with."""

    def __init__(self, settings, **_):
        self.settings = settings


@pytest.mark.parametrize(
    ("kafka", "raw", "derived"),
    [
        ({}, COMPRESSION, DERIVED_COMPRESSION),
        ({"compression.level": 6}, {**COMPRESSION, "compression.level": 6}, {**DERIVED_COMPRESSION, "compression.level": 6}),
        ({"compression.type": "lz4"}, {"compression.type": "lz4"}, {"compression.type": "lz4"}),
        ({"compression.codec": "none"}, {"compression.codec": "none"}, {"compression.codec": "none"}),
    ],
)
def test_b17_the_codec_is_ours_unless_the_settings_name_one(monkeypatch, kafka, raw, derived):
    monkeypatch.setattr("fogline_cloud.kafka.clients.Producer", Made)
    clients = KafkaClients({"bootstrap.servers": "127.0.0.1:9092", **kafka})
    for made, codec in ((clients.producer("t"), raw), (clients.publisher(lambda *_: None, 1.0), derived)):
        assert {key: value for key, value in made.settings.items() if key.startswith("compression.")} == codec


def test_b17_a_consumer_ignores_the_compression_settings():
    clients = KafkaClients({"bootstrap.servers": "127.0.0.1:1", "compression.type": "zstd"})
    clients.reader().close()


class _Away:
    """A reader whose broker is away."""

    def __init__(self, code: int) -> None:
        self._code = code

    def get_watermark_offsets(self, *_, **__):
        raise KafkaException(KafkaError(self._code, "Failed to get watermark offsets"))


@pytest.mark.parametrize("code", [KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN])
def test_offsets_of_a_kafka_that_is_away_name_the_setting_to_check(code):
    with pytest.raises(Unreachable) as error:
        end_offset(_Away(code), "hono.event.acme", 3)
    check = 'start it, or check "bootstrap.servers" and "security.protocol" in [kafka]'
    assert str(error.value) == f"hono.event.acme[3]: Kafka does not answer; {check}"


def test_topic_ids_are_unreachable_without_a_broker():
    """F2: the client's own timeout ended the flow when a broker was away for longer."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        clients = KafkaClients({"bootstrap.servers": f"127.0.0.1:{free.getsockname()[1]}"})
        with pytest.raises(Unreachable, match="topics"):
            clients.describe(["hono.telemetry.acme"], 0.2)
