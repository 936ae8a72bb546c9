"""Programs that rely on the topics of readings: on the bucket in the key, and on a topic of one type. Real Kafka, no Spark."""

import json
import threading
import time
from collections import defaultdict

import pyarrow as pa
import pytest
from confluent_kafka import Consumer
from msgspec.structs import replace

from fogline_cloud.canonical_settings import CanonicalSettings, CanonicalTopicSettings
from fogline_cloud.flows.tables.schema import STORED
from fogline_cloud.flows.worker.derive import canonical_records
from fogline_cloud.flows.worker.publish import publish
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.settings import CloudSettings
from fogline_cloud.shard.topic_admin import check_topics, create_topics

HOUR_US = 3_600_000_000
BEGIN_US = 1_700_000_000_000_000 // HOUR_US * HOUR_US
PARTS = ("ordinal", "metric", "value", "text", "unit", "time")
LIMIT_S = 60.0
SHARDS = 4


def rows_of(*events):
    """Rows of `events`: device, type, time in hours since `BEGIN_US`, and value of each."""
    count = len(events)
    columns = {name: [None] * count for name in STORED.names} | {
        "outcome": ["ok"] * count,
        "lane": ["alarm" if kind == "alarm" else "telemetry" for _, kind, _, _ in events],
        "source": [f"/t/devices/{device}" for device, *_ in events],
        "id": [f"ID{number}" for number in range(count)],
        "device": [device for device, *_ in events],
        "type": [kind for _, kind, _, _ in events],
        "subject": ["s"] * count,
        "recordedtime": [BEGIN_US + round(hours * HOUR_US) for _, _, hours, _ in events],
        "readings": [
            [{"ordinal": 0, "metric": "m", "value": value, "text": None, "unit": None, "time": None}] for *_, value in events
        ],
    }
    return pa.table([pa.array(columns[field.name], field.type) for field in STORED], schema=STORED)


class Program(threading.Thread):
    """A program's member of a consumer group, with the partition, key and body of each record that it reads."""

    def __init__(self, settings, topic, group):
        super().__init__(daemon=True)
        kafka = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        self.consumer = Consumer({**settings.kafka, **kafka})
        self.consumer.subscribe([topic])
        self.partitions = 0
        self.found = []
        self.ended = threading.Event()

    def run(self):
        while not self.ended.is_set():
            message = self.consumer.poll(0.1)
            self.partitions = len(self.consumer.assignment())
            if message is not None and message.error() is None:
                self.found.append((message.partition(), message.key().decode(), json.loads(message.value())))
        self.consumer.close()


def wait_until(condition, what):
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, what
        threading.Event().wait(0.02)


@pytest.fixture
def programs():
    """Start the members of a group, which share the partitions of a topic evenly."""
    started = []

    def start(settings, topic, members):
        made = [Program(settings, topic, f"g-{settings.tenant}") for _ in range(members)]
        started.extend(made)
        for each in made:
            each.start()
        shares = [SHARDS // members] * members
        wait_until(lambda: [each.partitions for each in made] == shares, "the partitions are not shared")
        return made

    yield start
    for each in started:
        each.ended.set()
    for each in started:
        each.join(LIMIT_S)


@pytest.fixture
def settings(kafka, tenant):
    """A tenant with a topic for alarms."""
    alarms = CanonicalTopicSettings(name="alarms", type="alarm")
    made = CloudSettings(tenant=tenant, kafka={"bootstrap.servers": kafka.bootstrap}, shards=SHARDS)
    made = replace(made, flow=replace(made.flow, canonical=CanonicalSettings(topics=[alarms])))
    create_topics(KafkaClients(made.kafka), made, 1)
    assert check_topics(KafkaClients(made.kafka), made) == []
    return made


def send(settings, *events):
    publish(settings.kafka, canonical_records(rows_of(*events), settings.tenant, settings.flow.canonical))


def test_two_programs_sum_by_device_and_hour_without_talking_to_each_other(settings, programs):
    """Each bucket is in one partition, so one of them has all of it, whatever came between; a device is in several."""
    events = [(f"d-{n % 2}", "telemetry", n / 4, 1.0) for n in range(96)]
    pair = programs(settings, topics.canonical(settings.tenant), 2)
    send(settings, *events)
    wait_until(lambda: sum(len(each.found) for each in pair) == len(events), "records are missing")
    sums = []
    places = defaultdict(set)
    for each in pair:
        own = defaultdict(float)
        for partition, key, body in each.found:
            device, _, bucket = key.partition("/")
            assert device == body["device"]
            assert bucket[:13] == body["recordedtime"][:13]
            places[key].add(partition)
            own[key] += body["readings"][0]["value"]
        sums.append(own)
    assert sums[0].keys().isdisjoint(sums[1])
    assert {**sums[0], **sums[1]} == dict.fromkeys(places, 2.0)
    assert len(places) == 48
    assert all(len(partitions) == 1 for partitions in places.values())
    assert len({next(iter(places[key])) for key in places if key.startswith("d-0/")}) > 1, (
        "a device does not fill one partition"
    )


def test_a_program_that_wants_alarms_reads_their_topic_and_nothing_else(settings, programs):
    send(settings, *((f"d-{n}", "alarm" if n % 3 == 0 else "telemetry", 0, float(n)) for n in range(30)))
    (program,) = programs(settings, topics.canonical_topic(settings.tenant, "alarms"), 1)
    wait_until(lambda: len(program.found) >= 10, "alarms are missing")
    assert sorted(body["readings"][0]["value"] for _, _, body in program.found) == [float(n) for n in range(0, 30, 3)]


def test_the_first_rule_that_matches_decides_and_all_other_events_stay():
    rules = [
        CanonicalTopicSettings(name="meters", device="meter-*", lane="telemetry"),
        CanonicalTopicSettings(name="all-alarms", lane="alarm"),
    ]
    rows = rows_of(("meter-1", "telemetry", 0, 1.0), ("meter-1", "alarm", 0, 2.0), ("lamp-1", "telemetry", 0, 3.0))
    made = canonical_records(rows, "t", CanonicalSettings(topics=rules, bucket_s=0))
    assert [(each.topic, each.key) for each in made] == [
        ("fogline.canonical-meters.t", b"meter-1"),
        ("fogline.canonical-all-alarms.t", b"meter-1"),
        ("fogline.canonical.t", b"lamp-1"),
    ]
