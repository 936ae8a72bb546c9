from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import cbor2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fogline.errors import Poison
from fogline.events.event import Event, parse_rfc3339
from fogline_cloud.flows.parsers import Leftover, Reading, Skip
from fogline_cloud.flows.parsers.senml_cbor import parse
from fogline_cloud.flows.sandbox.parser_runner import checked

MakeEvent = Callable[..., Event]
RECORDED = "2026-01-02T03:04:05.000006Z"
RFC_8428_SECTION_6 = bytes.fromhex(
    "87a721781b75726e3a6465763a6f773a3130653230373361303130383030363a22fb41d303a15b00106223614120050067766f6c7461676501615602"
    "fb405e066666666666a3006763757272656e74062402fb3ff3333333333333a3006763757272656e74062302fb3ff4cccccccccccda30067637572"
    "72656e74062202fb3ff6666666666666a3006763757272656e74062102f93e00a3006763757272656e74062002fb3ff999999999999aa300676375"
    "7272656e74060002fb3ffb333333333333"
)


def readings_of(returned: Iterable[Reading | Leftover]) -> list[Reading]:
    found = list(returned)
    assert not any(isinstance(each, Leftover) for each in found)
    return [each for each in found if isinstance(each, Reading)]


def parsed(make_event: MakeEvent, pack: Any) -> list[Reading | Leftover]:
    return list(parse(make_event(cbor2.dumps(pack), content_type="application/senml+cbor", recordedtime=RECORDED)))


def test_the_example_of_the_standard(make_event: MakeEvent) -> None:
    readings = readings_of(parse(make_event(RFC_8428_SECTION_6)))
    base, now = "urn:dev:ow:10e2073a0108006:", 1_276_020_076_001_000_000
    assert readings[0] == Reading(f"{base}voltage", 120.1, unit="V", time_ns=now)
    assert [(each.metric, each.value, each.unit, each.time_ns) for each in readings[1:]] == [
        (f"{base}current", value, "A", now - ago * 1_000_000_000)
        for value, ago in ((1.2, 5), (1.3, 4), (1.4, 3), (1.5, 2), (1.6, 1), (1.7, 0))
    ]


@pytest.mark.parametrize(
    ("record", "value", "text"),
    [
        ({2: 5}, 5.0, None),
        ({4: True}, 1.0, None),
        ({3: "on"}, None, "on"),
        ({8: b"\xf0\x00\x3f\xfb"}, None, "8AA_-w"),
        ({2: 1, 9: 7, "foo": [1]}, 1.0, None),
        ({"v": 1}, 1.0, None),
    ],
)
def test_every_kind_of_value(make_event: MakeEvent, record: dict[Any, Any], value: float | None, text: str | None) -> None:
    assert parsed(make_event, [{0: "x", **record}]) == [Reading("x", value, text)]


def test_a_value_may_be_a_decimal_fraction(make_event: MakeEvent) -> None:
    assert list(parse(make_event(bytes.fromhex("81a2006178 02 c48221196ab3")))) == [Reading("x", 273.15)]


def test_base_fields_and_relative_times(make_event: MakeEvent) -> None:
    pack = [{-2: "m", -5: 20, -6: 100, -4: "W", -1: 10, 2: 1.5, 5: 7, 6: -60}]
    now_ns = parse_rfc3339(RECORDED) - 60_000_000_000
    assert parsed(make_event, pack) == [
        Reading("m", 21.5, unit="W", time_ns=now_ns),
        Reading("m.sum", 107.0, unit="W.s", time_ns=now_ns),
    ]


@pytest.mark.parametrize(
    ("pack", "reason"),
    [
        ({}, "malformed"),
        ([], "malformed"),
        ([{0: "x", 2: 1, -1: 11}], "bad-version"),
        ([{0: "x", 2: 1, "new_": 1}], "must-understand"),
    ],
)
def test_packs_that_the_standard_forbids_are_refused(make_event: MakeEvent, pack: Any, reason: str) -> None:
    with pytest.raises(Poison) as refused:
        parsed(make_event, pack)
    assert refused.value.reason == reason


@pytest.mark.parametrize(
    "odd",
    [
        1,
        {0: "x"},
        {0: "x", 2: 1, 3: "a"},
        {0: "x", 2: "1"},
        {0: "x", 3: b"a"},
        {0: "x", 8: "text"},
        {2: 1},
        {0: "x", "n": "y", 2: 1},
        {0: "x", 2: 1, 6: 1e18},
        {0: "x", 2: float("nan")},
    ],
)
def test_a_record_that_the_standard_forbids_costs_no_other_record(make_event: MakeEvent, odd: Any) -> None:
    first, second, third = parsed(make_event, [{0: "a", 2: 1}, odd, {0: "b", 2: 2}])
    assert (first, third) == (Reading("a", 1.0), Reading("b", 2.0))
    assert isinstance(second, Leftover)
    assert second.part == "record 2"


_labels = st.integers(-8, 10) | st.sampled_from(["n", "x_", "?"])
_values = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.binary(max_size=8)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.dictionaries(_labels, _values, max_size=6) | _values, max_size=5).map(cbor2.dumps) | st.binary())
def test_hostile_packs_give_readings_or_poison(make_event: MakeEvent, body: bytes) -> None:
    with suppress(Poison, Skip):
        checked(parse(make_event(body, content_type="application/senml+cbor")))
