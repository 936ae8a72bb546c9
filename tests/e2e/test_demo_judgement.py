"""The demo's pure parts: what it calls lost and twice, what devices say, who is killed next, how fast something is."""

import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "deploy"))

from demo.coap_device import command_name
from demo.device_log import did_line, lost_line, parse_log
from demo.evidence import read_book
from demo.judgement import CommandJudgement, judge_commands
from demo.operator_commands import DURABLE_TTLS_S, TTLS_S, CommandRow, SentCommand, planned_command
from demo.payload import (
    FORMATS,
    METRICS,
    SENML,
    Device,
    DeviceKind,
    content_type,
    counter_of,
    encode,
    fleet,
    path,
    question,
    topic,
)
from demo.plan import ROUND, by_kind, enough, next_victim
from demo.report import DemoReport
from demo.snapshot import Meter
from e2e.demo_verdict import LAMP, verdict
from fogline.commands.command import CommandState, check_name
from fogline.events.event import Event, Lane, TimeQuality
from fogline_cloud.flows.parsers import installed, parser_name
from fogline_edge.adapters.coap.paths import Paths
from fogline_edge.adapters.coap.wire import media_type
from fogline_edge.adapters.mqtt.hono.topics import Topics
from fogline_edge.broker_settings import TopicSettings


def test_three_equal_sets_hold():
    found = verdict()
    assert found.holds
    assert found.equal
    assert found.sentence == "3 acknowledged, 3 in Kafka, 3 in the table: lost 0, duplicate 0"


@pytest.mark.parametrize("place", ["kafka", "table"])
def test_event_missing_in_one_place_is_lost(place):
    found = verdict(**{place: LAMP[1:]})
    assert found.lost == [("lamp-01", 1)]
    assert not found.holds


@pytest.mark.parametrize("place", ["kafka", "table"])
def test_repeated_event_is_a_duplicate_even_if_totals_agree(place):
    found = verdict(**{place: [LAMP[0], LAMP[0], LAMP[1]]})
    assert found.duplicate == [LAMP[0]]
    assert found.lost == [LAMP[2]]


def test_event_that_no_device_sent_is_a_phantom():
    found = verdict(kafka=[*LAMP, ("lamp-02", 2), ("cat-01", 1)], table=[*LAMP, ("lamp-02", 2), ("cat-01", 1)])
    assert found.phantom == [("cat-01", 1), ("lamp-02", 2)]
    assert not found.holds


def test_event_in_kafka_without_acknowledgement_is_allowed_and_reported():
    found = verdict(acknowledged=LAMP[:2])
    assert found.holds
    assert not found.equal
    assert found.unacknowledged == 1


def test_event_without_acknowledgement_must_be_in_both_kafka_and_table_or_neither():
    found = verdict(acknowledged=LAMP[:2], table=LAMP[:2])
    assert found.unequal == [LAMP[2]]
    assert not found.holds


def test_a_problem_on_the_way_fails_the_report():
    fine = DemoReport(verdict(), {"edge": 1, "bridge": 1}, {"gateway": 2})
    assert fine.status == 0
    assert DemoReport(verdict(), {}, {}, problems=["the ledger does not balance"]).status == 1
    assert DemoReport(verdict(table=LAMP[1:]), {}, {}).status == 1


def test_the_report_counts_and_names_examples():
    found = DemoReport(verdict(table=LAMP[1:]), {"edge": 2, "bridge": 3}, {"spark": 1}, details={"load_s": 1.0}).as_json()
    assert (found["acknowledged"], found["kafka"], found["table"], found["lost"]) == (3, 3, 2, 1)
    assert found["examples"] == {"lost": ["lamp-01 1"]}
    assert found["refused"] == {"edge": 2, "bridge": 3}
    assert found["load_s"] == 1.0


def test_a_line_of_the_book_that_was_cut_off_promises_nothing(folder):
    acknowledged_file = folder / "book"
    acknowledged_file.write_text("lamp-01 1\nlamp-01 2\nlamp-02 1")
    assert read_book(acknowledged_file) == {("lamp-01", 1), ("lamp-01", 2)}


def test_the_fleet_has_all_kinds_both_versions_and_all_gateways():
    devices = fleet(40, 2)
    assert len({device.name for device in devices}) == 40
    assert {device.kind for device in devices} == set(DeviceKind)
    assert Counter(device.gateway for device in devices) == {0: 20, 1: 20}
    mqtt = [device for device in devices if not device.coap]
    assert {(device.version, device.gateway) for device in mqtt} == {(4, 0), (4, 1), (5, 0), (5, 1)}
    assert {device.version for device in mqtt if device.kind is DeviceKind.WEATHER} == {4, 5}
    assert {(device.version, device.command_qos) for device in mqtt} == {(4, 1), (4, 2), (5, 1), (5, 2)}


def test_a_quarter_of_the_fleet_speaks_coap_and_takes_commands_in_both_ways():
    devices = [device for device in fleet(40, 2) if device.coap]
    assert Counter((device.kind, device.gateway) for device in devices) == {
        (DeviceKind.TANK, 0): 3, (DeviceKind.TANK, 1): 3, (DeviceKind.SOIL, 0): 2, (DeviceKind.SOIL, 1): 2,
    }  # fmt: skip
    assert {device.kind for device in devices if device.serves} == {DeviceKind.TANK}
    assert {device.version for device in devices} == {0}


COAP = (DeviceKind.TANK, DeviceKind.SOIL)


@pytest.mark.parametrize(
    ("kind", "version"), [(kind, version) for kind in DeviceKind for version in ((0,) if kind in COAP else (4, 5))]
)
def test_the_counter_comes_back_out_of_the_record_and_of_the_readings(kind, version):
    device = Device(f"{kind}-01", kind, version, 0)
    topics = Topics("demo", [TopicSettings(topic="plant/{device}/#", content_type="application/json")])
    target = Paths("demo", []).resolve(path(device)) if device.coap else topics.resolve(topic(device))
    assert not device.coap or target.device == device.name
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


def test_the_numbers_of_coap_are_the_gateways():
    assert {media_type(number): number for number in FORMATS.values()} == FORMATS


def test_a_question_for_a_command_has_no_counter():
    assert counter_of(SENML, question(71.5)) is None


@pytest.mark.parametrize(
    ("query", "name"), [((), None), (("a=b",), None), (("hono-command=dim.7",), "dim.7"), (("a=b", "hono-command=x"), "x")]
)
def test_the_command_in_a_response(query, name):
    assert command_name(query) == name


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


def test_meter_forgets_values_older_than_its_window():
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


# --- commands


def told(state=CommandState.SUCCEEDED, record=CommandState.SUCCEEDED, effects=1, **other) -> CommandJudgement:
    """One command: what its operator was told, what its record says (`None`: there is none), what the device did."""
    provisional = other.pop("provisional", False)
    times = [other.pop("at_s", 1.0)] * effects
    sent = SentCommand("dim.1", "lamp-01", 20.0, state=state, provisional=provisional, took_s=0.1, **other)
    records = [CommandRow("dim.1", "lamp-01", record)] if record else []
    return judge_commands([sent], records, {("lamp-01", "dim.1"): times} if times else {})


@pytest.mark.parametrize(
    "found",
    [
        told(),
        told(CommandState.FAILED, CommandState.FAILED, 1),
        told(CommandState.EXPIRED, CommandState.EXPIRED, 0),
        told(CommandState.IN_DOUBT, CommandState.IN_DOUBT, 0),
        told(CommandState.IN_DOUBT, CommandState.IN_DOUBT, 1),
        told(CommandState.REJECTED, CommandState.REJECTED, 0, durable=False),
        told(CommandState.REJECTED, None, 0, durable=False),
        told(CommandState.SUCCEEDED, CommandState.SUCCEEDED, 2, idempotent=True),
        told(CommandState.ACCEPTED, CommandState.SUCCEEDED, 1, reply=False),
        told(CommandState.ACCEPTED, CommandState.EXPIRED, 0, reply=False),
        told(CommandState.ACCEPTED, CommandState.IN_DOUBT, 1, reply=False),
        told(CommandState.IN_DOUBT, CommandState.SUCCEEDED, 1),
        told(CommandState.IN_DOUBT, None, 0, provisional=True),
    ],
)
def test_accepted_ends_of_a_command(found):
    assert found.problems == []
    assert DemoReport(verdict(), {}, {}, commands=found).status == 0


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (told(None, None, 0), "its operator has no result"),
        (told(None), "its operator has no result"),
        (told(CommandState.SUCCEEDED, None, 1), "the operator has SUCCEEDED, and there is no record"),
        (told(CommandState.ACCEPTED, None, 1, reply=False), "the operator has ACCEPTED, and there is no record"),
        (told(CommandState.SUCCEEDED, CommandState.IN_DOUBT), "the operator has SUCCEEDED, and the record IN_DOUBT"),
        (
            told(CommandState.REJECTED, CommandState.SUCCEEDED, durable=False),
            "the operator has REJECTED, and the record SUCCEEDED",
        ),
        (told(CommandState.EXPIRED, CommandState.IN_DOUBT), "the operator has EXPIRED, and the record IN_DOUBT"),
        (told(CommandState.IN_DOUBT, CommandState.DISPATCHED), "it has no final state: DISPATCHED"),
        (told(CommandState.ACCEPTED, CommandState.ACCEPTED, 0, reply=False), "it has no final state: ACCEPTED"),
        (told(CommandState.CANCELLED, CommandState.CANCELLED, 0), "it has no final state: CANCELLED"),
        (told(CommandState.REJECTED, CommandState.REJECTED, 0), "it was rejected, although it is durable"),
        (told(effects=2), "it was executed 2 times"),
        (told(at_s=23.0), "it was executed 3.0 s after its time to live"),
        (told(CommandState.IN_DOUBT, CommandState.IN_DOUBT, 2), "it was executed 2 times"),
        (told(CommandState.EXPIRED, CommandState.EXPIRED, 1), "it is EXPIRED, and was executed"),
        (told(CommandState.REJECTED, None, 1, durable=False), "it is REJECTED, and was executed"),
        (told(effects=0), "it succeeded, and was not executed"),
        (told(CommandState.ACCEPTED, CommandState.SUCCEEDED, 0, reply=False), "it succeeded, and was not executed"),
    ],
)
def test_refused_ends_of_a_command(found, problem):
    assert f"command dim.1 to lamp-01: {problem}" in found.problems
    assert DemoReport(verdict(), {}, {}, commands=found).status == 1


def test_command_that_no_operator_sent_is_neither_recorded_nor_run():
    stray = CommandRow("dim.9", "lamp-01", CommandState.SUCCEEDED)
    assert judge_commands([], [stray], {}).problems == ["command dim.9 has a record, but was never sent"]
    assert judge_commands([], [], {("lamp-01", "dim.9"): [1.0]}).problems == ["lamp-01 executed dim.9, but it was never sent"]
    sent = SentCommand("dim.1", "lamp-01", 20.0, state=CommandState.SUCCEEDED)
    twice = judge_commands([sent], [CommandRow("dim.1", "lamp-01", CommandState.SUCCEEDED)] * 2, {("lamp-01", "dim.1"): [1.0]})
    assert twice.problems == ["command dim.1 to lamp-01: it has 2 records"]


def test_the_report_counts_commands():
    commands = [SentCommand(f"dim.{n}", "lamp-01", 20.0, state=CommandState.SUCCEEDED, took_s=n / 100) for n in range(1, 101)]
    commands += [
        SentCommand("dim.101", "lamp-01", 20.0, state=CommandState.IN_DOUBT),
        SentCommand("dim.102", "lamp-01", 20.0, idempotent=True),
    ]
    records = [CommandRow(each.name, each.device, each.state) for each in commands if each.state]
    effects = {(each.device, each.name): [1.0] for each in commands} | {("lamp-01", "dim.102"): [1.0, 2.0, 3.0]}
    found = DemoReport(verdict(), {}, {}, commands=judge_commands(commands, records, effects)).as_json()["commands"]
    assert found == {
        "sent": 102,
        "by_state": {"IN_DOUBT": 1, "SUCCEEDED": 100, "none": 1},
        "unanswered": 1,
        "in_doubt": 1,
        "resolved": 0,
        "effects_max": 1,
        "effects_max_idempotent": 3,
        "p50_ms": 510.0,
        "p99_ms": 1000.0,
    }


def test_orders_are_of_all_sorts_and_none_has_the_name_of_another():
    commands = [planned_command(n, "lamp-01") for n in range(1, 301)]
    assert len({check_name(each.name) for each in commands}) == 300
    assert {each.ttl_s for each in commands if each.durable} == set(DURABLE_TTLS_S)
    assert {each.ttl_s for each in commands if not each.durable} == set(TTLS_S)
    sorts = Counter((each.durable, each.reply, each.idempotent) for each in commands)
    assert set(sorts) == {
        (True, True, False),
        (True, True, True),
        (True, False, False),
        (False, True, False),
        (False, False, False),
    }
    assert sorts[True, True, False] == 150


def test_a_devices_log_is_read_as_it_was_written():
    lines = [did_line(1.5, "lamp-01", "dim.1"), lost_line(2.25, "lamp-01"), did_line(3.0, "lamp-01", "dim.1")]
    found = parse_log("".join(lines).splitlines())
    assert found.effects == {("lamp-01", "dim.1"): [1.5, 3.0]}
    assert found.lost == {"lamp-01": [2.25]}
