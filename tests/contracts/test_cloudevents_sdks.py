"""CloudEvents SDKs that others wrote read the records of all three `hono.*` topics as they are."""

import queue

import pytest

from contracts.foreign import sdks
from fogline.amqp.outcome import ACCEPTED
from fogline.events.codec import Range, encode_batch, encode_event
from fogline.events.event import Lane, TimeQuality
from fogline.events.gap import Gap, GapReason, gap_event
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.kafka.committed_records import read_committed
from fogline_cloud.settings import BridgeSettings, CloudSettings
from fogline_cloud.shard.checkpoint import Layout
from fogline_cloud.shard.producer import ShardProducer
from fogline_cloud.shard.shard import Shard, ShardListeners
from fogline_cloud.shard.shard_writer import ShardWriter
from fogline_cloud.shard.topic_admin import create_topics
from fogline_cloud.shard.work.submissions import ClientEvent, GatewayBatch
from fogline_lab.events import BEACON, NOW_NS, make_event

LIMIT_S = 60.0
READERS = {"python": sdks.python, "javascript": sdks.javascript, "go": sdks.go}
STREAMS = {lane: f"{number:016x}" for number, lane in enumerate((Lane.TELEMETRY, Lane.ALARM, Lane.REPLY, Lane.BULK))}


def events(tenant, lane):
    """Events of a gateway with all that a record can carry."""
    place = {"tenant": tenant, "lane": lane, "stream": STREAMS[lane]}
    rich = {
        "subject": "küche/licht",
        "time": "2026-01-02T03:04:05.000000Z",
        "expirytime": "2026-01-02T03:05:05.000000Z",
        "properties": "a=1&b=%C3%A4",
        "timequality": TimeQuality.CORRECTED,
        "replayed": True,
        "ttd": 5,
    }
    reply = {"commandid": "0" * 32, "commandstate": "SUCCEEDED", "correlationid": "string:7", "status": 200}
    return [
        make_event(1, **place),
        make_event(2, **place, data=b"\x00\xff\xfe", content_type="application/octet-stream"),
        make_event(3, **place, data="21,5 °C".encode(), content_type="text/plain; charset=utf-8", **rich),
        make_event(4, **place, data=b"", content_type="application/vnd.eclipse-hono-empty-notification"),
        make_event(5, **place, **(reply if lane is Lane.REPLY else {})),
        gap_event(
            Gap(GapReason.DROPPED, 6, 9, "full"), tenant=tenant, gateway="gw-1", stream=STREAMS[lane], lane=lane, now_ns=NOW_NS
        ),
    ]


def submit(shard, tenant):
    """Everything of `events` on each lane, and a client's event; returns once all of it is committed."""
    answers = queue.SimpleQueue()
    for lane, stream in STREAMS.items():
        made = events(tenant, lane)
        span = Range("gw-1", stream, lane, 1, 9, b"\xff\xfe" * 8)
        shard.submit(GatewayBatch(span, encode_batch(span, [encode_event(each) for each in made], BEACON), answers.put))
    loose = make_event(0, tenant=tenant, gateway="", stream="", device="meter-1", adapter="amqp")
    shard.submit(ClientEvent(loose, answers.put))
    for _ in range(len(STREAMS) + 1):
        assert answers.get(timeout=LIMIT_S) == ACCEPTED


@pytest.fixture(scope="module")
def landed(kafka):
    """The tenant's records of the three topics."""
    tenant = "sdk"
    settings = CloudSettings(tenant=tenant, kafka={"bootstrap.servers": kafka.bootstrap}, shards=1)
    clients = KafkaClients(settings.kafka)
    create_topics(clients, settings, 1)
    ready = queue.SimpleQueue()
    shard = Shard(
        0,
        lambda: ShardWriter(clients, ShardProducer(clients, tenant, 0), Layout(1)),
        BridgeSettings(),
        ShardListeners(lambda each: ready.put(each.ready)),
    )
    shard.start()
    assert ready.get(timeout=LIMIT_S), "the shard was not taken"
    submit(shard, tenant)
    shard.stop()
    shard.join(LIMIT_S)
    return list(read_committed(clients, {(topic, 0): None for topic in topics.raw_topics(tenant)}))


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS.keys())
def test_a_cloudevents_sdk_reads_every_record_of_every_topic(kafka, landed, reader):
    counts = {topic: sum(each.topic == topic for each in landed) for topic in topics.raw_topics("sdk")}
    assert all(count >= 6 for count in counts.values())
    found = list(reader(kafka.bootstrap, counts))
    for topic in counts:
        wanted = [sdks.expected(each) for each in landed if each.topic == topic]
        assert [each for each in found if each["topic"] == topic] == wanted
