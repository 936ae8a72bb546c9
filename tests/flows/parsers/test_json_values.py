import json
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fogline.errors import Poison
from fogline.events.event import Event
from fogline_cloud.flows.parsers import MAX_READINGS, Reading, Skip
from fogline_cloud.flows.parsers.json_values import parse
from fogline_cloud.flows.parsers.strict_json import MAX_BYTES, MAX_DEPTH
from fogline_cloud.flows.sandbox.parser_runner import checked

MakeEvent = Callable[..., Event]


@pytest.mark.parametrize(
    ("body", "readings"),
    [
        ("21.5", [Reading("value", 21.5)]),
        ('"on"', [Reading("value", text="on")]),
        ("null", []),
        ("{}", []),
        ('{"t": 21.5, "ok": true, "off": false}', [Reading("t", 21.5), Reading("ok", 1.0), Reading("off", 0.0)]),
        ('{"air": {"t": 1, "rh": {"now": 2}}}', [Reading("air.t", 1.0), Reading("air.rh.now", 2.0)]),
        ('{"state": "open", "none": null}', [Reading("state", text="open")]),
        (
            '{"v": [1, [2, "x"], {"a": 3}]}',
            [Reading("v.0", 1.0), Reading("v.1.0", 2.0), Reading("v.1.1", text="x"), Reading("v.2.a", 3.0)],
        ),
        ("[1, 2]", [Reading("0", 1.0), Reading("1", 2.0)]),
        (' {"t": -0.5e-3} ', [Reading("t", -0.0005)]),
        ('{"time": 1700000000, "ts": 5}', [Reading("time", 1_700_000_000.0), Reading("ts", 5.0)]),
        ('{"n": 9007199254740993}', [Reading("n", 9007199254740992.0, "9007199254740993")]),
        ('{"größe": 1}', [Reading("größe", 1.0)]),
        ("\ufeff1", [Reading("value", 1.0)]),
    ],
)
def test_values_become_readings_named_by_their_path(make_event: MakeEvent, body: str, readings: list[Reading]) -> None:
    assert list(parse(make_event(body.encode()))) == readings


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"{", "malformed"),
        (b'{"a": 1} x', "malformed"),
        ('{"a": 1}'.encode("utf-16"), "malformed"),
        (b"[" * 100_000, "too-deep"),
        (b'"' + b"x" * MAX_BYTES + b'"', "too-big"),
    ],
)
@pytest.mark.fault("D8")
def test_unbounded_or_ambiguous_json_is_refused(make_event: MakeEvent, body: bytes, reason: str) -> None:
    with pytest.raises(Poison) as refused:
        parse(make_event(body))
    assert refused.value.reason == reason


def test_a_document_at_the_limits_is_parsed(make_event: MakeEvent) -> None:
    deepest = b"[" * MAX_DEPTH + b"1" + b"]" * MAX_DEPTH
    assert list(parse(make_event(deepest))) == [Reading(".".join("0" * MAX_DEPTH), 1.0)]
    assert len(checked(parse(make_event(json.dumps([0] * MAX_READINGS).encode())))[0]) == MAX_READINGS


@pytest.mark.parametrize(
    "odd",
    [
        b"NaN",
        b"-Infinity",
        b"1e999",
        b"9" * 400,
        b"9" * 5000,
        b'1, "odd": 1',
        b'1, "\\u006fdd": 2',
        b'"K\xfcche"',
        b'"\\ud800"',
        b'"' + b"x" * 65_537 + b'"',
        b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1),
        b'{"a":' * 40 + b"1" + b"}" * 40,
    ],
)
def test_one_odd_value_is_named_and_costs_no_other_value(make_event: MakeEvent, odd: bytes) -> None:
    readings, leftovers = checked(parse(make_event(b'{"first": 21.5, "odd": ' + odd + b', "last": {"x": 2}}')))
    assert [each[1:3] for each in readings] == [("first", 21.5), ("last.x", 2.0)]
    assert [each.part.partition(".")[0] for each in leftovers] == ["odd"]


def test_an_empty_body_is_skipped(make_event: MakeEvent) -> None:
    with pytest.raises(Skip):
        parse(make_event(b""))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.binary(max_size=200)
    | st.text(max_size=100).map(str.encode)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ).map(lambda value: json.dumps(value).encode())
)
def test_hostile_bytes_give_readings_or_poison(make_event: MakeEvent, body: bytes) -> None:
    event = make_event(body, content_type="application/json")
    with suppress(Poison, Skip):
        checked(parse(event))
