import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fogline.errors import Poison
from fogline.events.event import Event, parse_rfc3339
from fogline_cloud.flows.parsers import Leftover, Reading, Skip
from fogline_cloud.flows.parsers.senml import parse
from fogline_cloud.flows.sandbox.parser_runner import checked

MakeEvent = Callable[..., Event]
RECORDED = "2026-01-02T03:04:05.000006Z"
NOW_NS = parse_rfc3339(RECORDED)


def parsed(make_event: MakeEvent, pack: Any) -> list[Reading | Leftover]:
    return list(parse(make_event(json.dumps(pack).encode(), content_type="application/senml+json", recordedtime=RECORDED)))


def test_one_value_with_its_unit(make_event: MakeEvent) -> None:
    assert parsed(make_event, [{"n": "urn:dev:ow:10e2073a01080063", "u": "Cel", "v": 23.1}]) == [
        Reading("urn:dev:ow:10e2073a01080063", 23.1, unit="Cel")
    ]


def test_base_fields_hold_for_the_records_after_them_until_they_change(make_event: MakeEvent) -> None:
    pack = [
        {"bn": "dev:1:", "bt": 1.7e9, "bu": "A", "bver": 10, "n": "current", "v": 1.2},
        {"n": "voltage", "u": "V", "t": -5, "v": 120.1},
        {"bn": "dev:2:", "bu": "W", "n": "power", "v": 3},
    ]
    assert parsed(make_event, pack) == [
        Reading("dev:1:current", 1.2, unit="A", time_ns=1_700_000_000_000_000_000),
        Reading("dev:1:voltage", 120.1, unit="V", time_ns=1_699_999_995_000_000_000),
        Reading("dev:2:power", 3.0, unit="W", time_ns=1_700_000_000_000_000_000),
    ]


def test_a_base_value_and_a_base_sum_are_added(make_event: MakeEvent) -> None:
    pack = [{"bn": "m", "bv": 20, "bs": 100, "v": 1.5, "s": 7, "u": "W"}, {"v": -1}, {"vs": "x"}, {"s": 1}]
    assert [(r.metric, r.value, r.text, r.unit) for r in parsed(make_event, pack)] == [
        ("m", 21.5, None, "W"),
        ("m.sum", 107.0, None, "W.s"),
        ("m", 19.0, None, None),
        ("m.sum", 100.0, None, None),
        ("m", None, "x", None),
        ("m.sum", 100.0, None, None),
        ("m.sum", 101.0, None, None),
    ]


@pytest.mark.parametrize(
    ("record", "value", "text"),
    [
        ({"v": 5}, 5.0, None),
        ({"vb": True}, 1.0, None),
        ({"vb": False}, 0.0, None),
        ({"vs": "on"}, None, "on"),
        ({"vd": "8AA_-w"}, None, "8AA_-w"),
    ],
)
def test_every_kind_of_value(make_event: MakeEvent, record: dict[str, Any], value: float | None, text: str | None) -> None:
    assert parsed(make_event, [{"n": "x", **record}]) == [Reading("x", value, text)]


def test_a_time_below_2_to_the_28_is_relative_to_when_the_event_was_stored(make_event: MakeEvent) -> None:
    pack = [
        {"n": "x", "v": 1, "t": -60},
        {"n": "x", "v": 2, "t": 2**28 - 1},
        {"n": "x", "v": 3, "t": 2**28},
        {"n": "x", "v": 4},
    ]
    times = [reading.time_ns for reading in parsed(make_event, pack)]
    assert times == [NOW_NS - 60_000_000_000, NOW_NS + (2**28 - 1) * 1_000_000_000, 2**28 * 1_000_000_000, None]


def test_unknown_labels_are_ignored(make_event: MakeEvent) -> None:
    assert parsed(make_event, [{"n": "x", "v": 1, "ut": 10, "foo": {"deep": [1]}}]) == [Reading("x", 1.0)]


@pytest.mark.parametrize(
    ("pack", "reason"),
    [
        ({}, "malformed"),
        ([], "malformed"),
        ([{"n": "x", "v": 1, "bver": 11}], "bad-version"),
        ([{"n": "x", "v": 1, "new_": 1}], "must-understand"),
    ],
)
def test_packs_that_the_standard_forbids_are_refused(make_event: MakeEvent, pack: Any, reason: str) -> None:
    with pytest.raises(Poison) as refused:
        parsed(make_event, pack)
    assert refused.value.reason == reason


@pytest.mark.parametrize(
    "odd",
    [
        "1",
        "{}",
        '{"n": "x"}',
        '{"n": "x", "v": 1, "vs": "a"}',
        '{"n": "x", "v": "1"}',
        '{"n": "x", "v": true}',
        '{"n": "x", "v": 1, "v": 2}',
        '{"n": "x", "vd": "not base64!"}',
        '{"v": 1}',
        '{"n": "-x", "v": 1}',
        '{"n": "a b", "v": 1}',
        '{"n": "\u00fc", "v": 1}',
        '{"n": "x", "v": 1, "t": 1e18}',
        '{"n": "x", "v": 1, "t": -1e12}',
        '{"n": "x", "v": 1e999}',
        '{"n": "x", "v": NaN}',
        '{"n": "x", "v": 1, "t": 1e999}',
    ],
)
def test_a_record_that_the_standard_forbids_costs_no_other_record(make_event: MakeEvent, odd: str) -> None:
    pack = f'[{{"n": "a", "v": 1}}, {odd}, {{"n": "b", "v": 2}}]'
    first, second, third = parse(make_event(pack.encode(), recordedtime=RECORDED))
    assert (first, third) == (Reading("a", 1.0), Reading("b", 2.0))
    assert isinstance(second, Leftover)
    assert second.part == "record 2"


def test_the_base_fields_of_a_record_that_is_not_understood_hold_for_the_next(make_event: MakeEvent) -> None:
    pack = [{"bn": "dev:1:", "bu": "Cel", "n": "a", "v": "?"}, {"n": "b", "v": 2}]
    assert parsed(make_event, pack)[1:] == [Reading("dev:1:b", 2.0, unit="Cel")]


def test_nothing_is_read_after_a_base_field_that_cannot_be_read(make_event: MakeEvent) -> None:
    pack = [{"n": "a", "v": 1}, {"bn": 5, "n": "b", "v": 2}, {"n": "c", "v": 3}]
    first, rest = parsed(make_event, pack)
    assert first == Reading("a", 1.0)
    assert isinstance(rest, Leftover)
    assert rest.part == "records 2 to 3"


_labels = st.sampled_from(["n", "u", "v", "vs", "vb", "vd", "s", "t", "bn", "bt", "bu", "bv", "bs", "bver", "x_", "?"])
_values = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.lists(st.integers(), max_size=2)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.dictionaries(_labels, _values, max_size=6) | _values, max_size=5).map(lambda pack: json.dumps(pack).encode())
    | st.binary()
)
def test_hostile_packs_give_readings_or_poison(make_event: MakeEvent, body: bytes) -> None:
    event = make_event(body, content_type="application/senml+json")
    with suppress(Poison, Skip):
        checked(parse(event))
