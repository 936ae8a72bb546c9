"""The demo's pure parts: what it calls lost and twice, what devices say, who is killed next, how fast something is."""

import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "deploy"))

from demo.evidence import read_book
from demo.judgement import Evidence, Judgement, Report, judge
from demo.payload import METRICS, SENML, Device, Kind, content_type, counter_of, encode, fleet, topic
from demo.picture import Meter
from demo.plan import ROUND, by_kind, enough, next_victim
from fogline.event import Event, Lane, TimeQuality
from fogline_cloud.flows.parsers import installed, parser_name
from fogline_edge.adapters.mqtt.topics import Topics
from fogline_edge.settings import TopicSettings

LAMP = [("lamp-01", 1), ("lamp-01", 2), ("lamp-02", 1)]
SENT = {"lamp-01": 2, "lamp-02": 1}


def verdict(acknowledged=LAMP, kafka=LAMP, table=LAMP) -> Judgement:
    return judge(Evidence(set(acknowledged), SENT, Counter(kafka), Counter(table)))


def test_three_equal_sets_hold():
    found = verdict()
    assert found.holds
    assert found.equal
    assert found.sentence == "3 acknowledged, 3 in Kafka, 3 in the table: lost 0, duplicate 0"


@pytest.mark.parametrize("place", ["kafka", "table"])
def test_what_is_missing_in_one_place_is_lost(place):
    found = verdict(**{place: LAMP[1:]})
    assert found.lost == [("lamp-01", 1)]
    assert not found.holds


@pytest.mark.parametrize("place", ["kafka", "table"])
def test_what_is_there_twice_is_a_duplicate_even_if_the_totals_agree(place):
    found = verdict(**{place: [LAMP[0], LAMP[0], LAMP[1]]})
    assert found.duplicate == [LAMP[0]]
    assert found.lost == [LAMP[2]]


def test_what_no_device_sent_is_a_phantom():
    found = verdict(kafka=[*LAMP, ("lamp-02", 2), ("cat-01", 1)], table=[*LAMP, ("lamp-02", 2), ("cat-01", 1)])
    assert found.phantom == [("cat-01", 1), ("lamp-02", 2)]
    assert not found.holds


def test_what_landed_without_an_acknowledgement_is_allowed_and_told():
    found = verdict(acknowledged=LAMP[:2])
    assert found.holds
    assert not found.equal
    assert found.unacknowledged == 1


def test_what_nobody_was_told_of_still_has_to_be_in_both_kafka_and_table():
    found = verdict(acknowledged=LAMP[:2], table=LAMP[:2])
    assert found.unequal == [LAMP[2]]
    assert not found.holds


def test_a_problem_on_the_way_fails_the_report():
    fine = Report(verdict(), {"edge": 1, "bridge": 1}, {"gateway": 2})
    assert fine.status == 0
    assert Report(verdict(), {}, {}, problems=["the ledger does not balance"]).status == 1
    assert Report(verdict(table=LAMP[1:]), {}, {}).status == 1


def test_the_report_counts_and_names_examples():
    found = Report(verdict(table=LAMP[1:]), {"edge": 2, "bridge": 3}, {"spark": 1}, details={"load_s": 1.0}).as_json()
    assert (found["acknowledged"], found["kafka"], found["table"], found["lost"]) == (3, 3, 2, 1)
    assert found["examples"] == {"lost": ["lamp-01 1"]}
    assert found["refused"] == {"edge": 2, "bridge": 3}
    assert found["load_s"] == 1.0


def test_a_line_of_the_book_that_was_cut_off_promises_nothing(folder):
    book = folder / "book"
    book.write_text("lamp-01 1\nlamp-01 2\nlamp-02 1")
    assert read_book(book) == {("lamp-01", 1), ("lamp-01", 2)}


def test_the_fleet_has_all_kinds_both_versions_and_all_gateways():
    devices = fleet(40, 2)
    assert len({device.name for device in devices}) == 40
    assert {device.kind for device in devices} == set(Kind)
    assert Counter(device.gateway for device in devices) == {0: 20, 1: 20}
    assert {(device.version, device.gateway) for device in devices} == {(4, 0), (4, 1), (5, 0), (5, 1)}
    assert {device.version for device in devices if device.kind is Kind.WEATHER} == {4, 5}


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("version", [4, 5])
def test_the_counter_comes_back_out_of_the_record_and_of_the_readings(kind, version):
    device = Device(f"{kind}-01", kind, version, 0)
    topics = Topics("demo", [TopicSettings(topic="plant/{device}/#", content_type="application/json")])
    target = topics.resolve(topic(device))
    body = encode(device, 4711, 21.5)
    sniffed = "application/json" if body[:1] in b"{[" else "application/octet-stream"
    media_type = content_type(device) or target.content_type or sniffed
    assert counter_of(media_type, body) == 4711
    event = Event(
        id="1", tenant="demo", device=device.name, type="telemetry", subject=target.channel, content_type=media_type,
        recordedtime="2026-01-01T00:00:00.000000Z", data=body, gateway="gateway-1", stream="0" * 16, sequence=1,
        lane=Lane.TELEMETRY, timequality=TimeQuality.SYNCED, dedup="weak", adapter="mqtt",
    )  # fmt: skip
    parser = parser_name(media_type, {})
    assert parser is not None
    values = [reading.value for reading in installed()[parser](event) if reading.metric in METRICS]
    assert values == [4711.0]


@pytest.mark.parametrize("body", [b"", b"hello", b'{"temperature": 1}', b"true", b"[]", b"null"])
def test_a_body_of_somebody_else_has_no_counter(body):
    assert counter_of("application/json", body) is None
    assert counter_of(SENML, body) is None


def test_every_kind_is_killed_in_turn():
    killed: list[str] = []
    for _ in range(2 * len(ROUND)):
        assert not enough(killed) or len(killed) >= len(ROUND)
        killed.append(next_victim(killed))
    assert killed == [*ROUND, *ROUND]
    assert by_kind(killed) == {"gateway": 4, "bridge": 4, "spark": 4}
    assert enough(killed)


def test_no_kind_may_be_left_out():
    assert not enough(["gateway-1", "gateway-2", "bridge", "bridge", "spark"])
    assert enough(["gateway-1", "gateway-2", "bridge", "bridge", "spark", "spark"])


def test_a_meter_forgets_what_is_older_than_its_window():
    meter = Meter(window_s=1.0)
    for tick in range(9):
        meter.set(100 * tick if tick < 5 else 400, tick / 4)
    assert meter.total == 400
    assert meter.rate(2.0) == 0.0
    meter.set(800, 3.0)
    assert meter.rate(3.0) == 400.0
    assert meter.rate(30.0) == 0.0


def test_a_count_that_was_read_late_does_not_go_back():
    meter = Meter()
    meter.set(10, 1.0)
    meter.set(7, 2.0)
    assert meter.total == 10
