"""The answers about a small fleet, of which every number can be counted by hand."""

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

import pytest

from fogline.events.event import Lane
from fogline_cloud.devices.silence import SilenceRules
from fogline_cloud.fleet import questions
from fogline_cloud.fleet.buckets import DELAYS_MS, SIZES_BYTES, above, percentile
from fogline_cloud.fleet.questions import FleetDevice
from fogline_cloud.fleet_settings import SilentSettings

MONDAY, TUESDAY = date(2026, 1, 5), date(2026, 1, 6)
NOW = datetime(2026, 1, 6, 12, tzinfo=UTC)
LONG_AGO = datetime(2025, 1, 1, tzinfo=UTC).timestamp()
REGISTRY = {
    "lamp-1": FleetDevice("lamp", "2.0", "gw-1", LONG_AGO),
    "lamp-2": FleetDevice("lamp", "1.0", "gw-2", LONG_AGO),
    "lamp-9": FleetDevice("lamp", "", "", LONG_AGO),
    "meter-1": FleetDevice("meter", "", "gw-2", LONG_AGO),
}
"""Nobody ever heard lamp-9; tag-7 is heard, and not in the registry."""


@pytest.fixture
def rows(counted):
    """lamp-1: both days. lamp-2: Monday, by a gateway that was offline until Tuesday. meter-1 and tag-7: Tuesday."""
    made = [
        ("lamp-1", MONDAY, "gw-1", "telemetry", {"size_bytes": 10}),
        ("lamp-1", TUESDAY, "gw-1", "alarm", {"size_bytes": 20}),
        ("lamp-2", MONDAY, "gw-2", "telemetry", {"size_bytes": 100, "ingested": NOW - timedelta(hours=1)}),
        ("meter-1", TUESDAY, "gw-2", "telemetry", {"size_bytes": 4000, "outcome": "dead", "parser": "csv"}),
        ("tag-7", TUESDAY, "gw-1", "telemetry", {"size_bytes": 5, "outcome": "duplicate"}),
    ]

    def row(n):
        device, day, gateway, lane, more = made[n]
        moment = datetime(day.year, day.month, day.day, 10, tzinfo=UTC)
        usual = {"device": device, "gateway": gateway, "lane": lane, "parser": "json", "properties": [("firmware", "2.0")]}
        return usual | dict.fromkeys(("ingested", "recordedtime", "time"), moment) | more

    counted.events.append(len(made), row=row)
    return questions.of_devices(counted.fleet().current(), "t")


def test_coverage_counts_a_device_on_the_day_on_which_its_gateway_heard_it(rows):
    assert questions.coverage(rows, REGISTRY, ("day",)) == [
        {"day": "2026-01-05", "registered": 4, "heard": 2, "share": 0.5, "events": 2},
        {"day": "2026-01-06", "registered": 4, "heard": 3, "share": 0.5, "events": 3},
        {"day": "all", "registered": 4, "heard": 4, "share": 0.75, "events": 5},
    ]


def test_coverage_of_a_type_has_the_devices_that_were_never_heard(rows):
    assert questions.coverage(rows, REGISTRY, ("type",)) == [
        {"type": None, "registered": 0, "heard": 1, "share": None, "events": 1},
        {"type": "lamp", "registered": 3, "heard": 2, "share": 0.6667, "events": 3},
        {"type": "meter", "registered": 1, "heard": 1, "share": 1.0, "events": 1},
    ]


def test_coverage_by_day_and_type_has_a_row_for_a_type_and_a_day_of_which_nothing_was_heard(rows):
    found = questions.coverage(rows, REGISTRY, ("type", "day"), TUESDAY + timedelta(days=1))
    assert [(each["day"], each["type"], each["heard"]) for each in found] == [
        ("2026-01-05", "lamp", 2),
        ("2026-01-05", "meter", 0),
        ("2026-01-06", None, 1),
        ("2026-01-06", "lamp", 1),
        ("2026-01-06", "meter", 1),
        ("2026-01-07", "lamp", 0),
        ("2026-01-07", "meter", 0),
    ]


def test_days_of_coverage_are_in_their_order(rows):
    found = questions.coverage(rows, REGISTRY, ("day", "gateway"), date(2026, 1, 12))
    days = [each["day"] for each in found]
    assert days == sorted(days)
    assert len({*days}) == 8


def test_a_device_that_was_never_heard_is_silent_since_it_was_registered(rows):
    found = questions.silent(rows, REGISTRY, SilenceRules([]), NOW)
    assert [(each["device"], each["last"], each["silent_s"]) for each in found] == [
        ("lamp-9", None, None),
        ("lamp-2", "2026-01-05T10:00:00Z", 26 * 3600),
    ]
    fresh = {"lamp-9": FleetDevice("lamp", registered_s=NOW.timestamp() - 3600)}
    assert questions.silent(rows, fresh, SilenceRules([]), NOW)[0]["device"] == "lamp-2"


def test_a_lane_may_have_a_stricter_limit(rows):
    rules = SilenceRules(
        [
            SilentSettings(type="lamp", lane=Lane.ALARM, after_s=1800),
            SilentSettings(type="lamp", after_s=7 * 86400),
            SilentSettings(after_s=3600),
        ]
    )
    found = questions.silent(rows, REGISTRY, rules, NOW)
    assert {(each["device"], each["lane"], each["limit_s"]) for each in found} == {
        ("lamp-9", "alarm", 1800),
        ("lamp-9", None, 7 * 86400),
        ("lamp-2", "alarm", 1800),
        ("lamp-1", "alarm", 1800),
        ("meter-1", None, 3600),
        ("tag-7", None, 3600),
    }


def test_silent_devices_of_each_gateway_are_counted(rows):
    found = questions.silent(rows, REGISTRY, SilenceRules([]), NOW)
    assert questions.silent_counts(rows, REGISTRY, found, ("gateway",)) == [
        {"gateway": "gw-1", "devices": 2, "silent": 0, "never": 0},
        {"gateway": "gw-2", "devices": 2, "silent": 1, "never": 0},
        {"gateway": None, "devices": 1, "silent": 1, "never": 1},
    ]


def test_lateness_is_the_time_from_the_gateway_to_kafka(rows):
    one, two = questions.late(rows, REGISTRY, ("gateway",), 3600)
    assert (one["gateway"], one["over"]) == ("gw-1", 0)
    assert {name: two[name] for name in ("gateway", "events", "over", "share", "most_s", "p50_s", "p99_s")} == {
        "gateway": "gw-2",
        "events": 2,
        "over": 1,
        "share": 0.5,
        "most_s": 25 * 3600.0,
        "p50_s": 1.0,
        "p99_s": 25 * 3600.0,
    }


def test_sizes_of_a_type(rows):
    found = {each["type"]: each for each in questions.sizes(rows, REGISTRY, ("type",))}
    assert found["lamp"] == {"type": "lamp", "events": 3, "bytes": 130, "mean": 43, "p50": 20, "p99": 100, "most": 100}
    assert found["meter"]["most"] == 4000


def test_health_of_a_parser_leaves_duplicates_out_of_the_share(rows):
    assert questions.health(rows, REGISTRY, ("parser", "type")) == [
        {"parser": "csv", "type": "meter", "events": 1, "ok": 0, "skip": 0, "slow": 0, "dead": 1, "duplicate": 0, "share": 0.0},
        {"parser": "json", "type": "lamp", "events": 3, "ok": 3, "skip": 0, "slow": 0, "dead": 0, "duplicate": 0, "share": 1.0},
        {"parser": "json", "type": None, "events": 1, "ok": 0, "skip": 0, "slow": 0, "dead": 0, "duplicate": 1, "share": None},
    ]


def test_an_answer_without_any_event_is_empty(rows):
    none = rows.slice(0, 0)
    for question in (questions.sizes, questions.health):
        assert question(none, REGISTRY, ("type",)) == []
    assert questions.coverage(none, {}, ("day",)) == [{"day": "all", "registered": 0, "heard": 0, "share": None, "events": 0}]
    assert questions.silent(none, {}, SilenceRules([]), NOW) == []


def test_percentiles_are_bounds_of_steps():
    assert percentile({}, 0.5) is None
    assert percentile({10: 1, 20: 98, 30: 1}, 0.5) == 20
    assert percentile({10: 1, 20: 98, 30: 1}, 0.99) == 20
    assert percentile({10: 1, 20: 98, 30: 1}, 1.0) == 30
    assert above({10: 1, 20: 98, 30: 1}, 10) == 99
    assert all(each > 0 for each in (*_steps(SIZES_BYTES), *_steps(DELAYS_MS)))


def _steps(bounds):
    return [int(after - before) for before, after in pairwise(bounds)]
