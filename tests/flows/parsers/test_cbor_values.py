from collections.abc import Callable
from contextlib import suppress
from datetime import UTC
from typing import Any

import cbor2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fogline.errors import Poison
from fogline.events.event import Event
from fogline_cloud.flows.parsers import Reading, Skip
from fogline_cloud.flows.parsers.cbor_values import parse
from fogline_cloud.flows.parsers.strict_json import MAX_BYTES, MAX_DEPTH
from fogline_cloud.flows.sandbox.parser_runner import checked

MakeEvent = Callable[..., Event]


@pytest.mark.parametrize(
    ("body", "readings"),
    [
        ("f94d60", [Reading("value", 21.5)]),
        ("626f6e", [Reading("value", text="on")]),
        ("f6", []),
        ("f7", []),
        ("a0", []),
        ("a3 6174 f94d60 626f6b f5 636f6666 f4", [Reading("t", 21.5), Reading("ok", 1.0), Reading("off", 0.0)]),
        ("a1 63616972 a1 6174 01", [Reading("air.t", 1.0)]),
        ("a1 01 82 02 6178", [Reading("1.0", 2.0), Reading("1.1", text="x")]),
        ("a1 20 03", [Reading("-1", 3.0)]),
        ("bf 6174 9f 01 ff ff", [Reading("t.0", 1.0)]),
        ("7f 6161 6162 ff", [Reading("value", text="ab")]),
        ("43 f0003f", [Reading("value", text="8AA_")]),
        ("1b0020000000000001", [Reading("value", 9007199254740992.0, "9007199254740993")]),
        ("c2 49 010000000000000000", [Reading("value", 18446744073709551616.0, "18446744073709551616")]),
        ("c3 41 01", [Reading("value", -2.0)]),
        ("c4 82 21 196ab3", [Reading("value", 273.15)]),
        ("c5 82 20 03", [Reading("value", 1.5)]),
        ("d9d9f7 01", [Reading("value", 1.0)]),
        ("c1 1a514b67b0", [Reading("value", 1363896240.0)]),
        ("c0 74323031332d30332d32315432303a30343a30305a", [Reading("value", text="2013-03-21T20:04:00Z")]),
    ],
)
def test_values_become_readings_named_by_their_path(make_event: MakeEvent, body: str, readings: list[Reading]) -> None:
    assert list(parse(make_event(bytes.fromhex(body)))) == readings


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"\x82\x01", "malformed"),
        (b"\x01\x01", "malformed"),
        (b"\x1c", "malformed"),
        (b"\xff", "malformed"),
        (b"\x5b" + b"\x7f" * 8, "malformed"),
        (b"\x9b" + b"\x7f" * 8, "malformed"),
        (bytes.fromhex("a261610161610281"), "malformed"),
        (bytes.fromhex("a26161016161025b") + b"\x7f" * 8, "malformed"),
        (bytes.fromhex("a3616101616102bb") + b"\xff" * 8, "malformed"),
        (b"\x81" * 100_000, "too-deep"),
        (b"\xc4" * 100_000, "too-deep"),
        (b"\xa2\x00\x00\x00" + b"\x81" * 100_000, "too-deep"),
        (b"\x5a" + MAX_BYTES.to_bytes(4) + bytes(MAX_BYTES), "too-big"),
    ],
)
@pytest.mark.fault("D8")
def test_unbounded_or_ambiguous_cbor_is_refused(make_event: MakeEvent, body: bytes, reason: str) -> None:
    with pytest.raises(Poison) as refused:
        parse(make_event(body))
    assert refused.value.reason == reason


@pytest.mark.parametrize(
    "odd",
    [
        "f97e00",  # NaN
        "f97c00",  # infinity
        "c482193e8001",  # a decimal fraction beyond a double
        "c582193e8001",
        "c25880" + "ff" * 128,
        "c201",  # tags with wrong content
        "c25881" + "01" * 129,
        "c4821b7f7f7f7f7f7f7f7f01",
        "c401",
        "c1f6",
        "f0",  # a simple value without a meaning
        "62ffff",  # text that is not UTF-8
        "d81c81d81d00",
        "d9010280",
        "d90100816161",
        "d8236161",
        "01 636f6464 02",  # the same key twice
        "a2 01 01 01 02",
        "bf 01 01 01 02 ff",
        "01 636f6464 a2 01 02 02 a2 01 81 01 01 02",
        "81" * (MAX_DEPTH + 1) + "01",
        "a101" * (MAX_DEPTH + 1) + "01",
        "7a00010001" + "78" * 65_537,
    ],
)
def test_one_odd_value_is_named_and_costs_no_other_value(make_event: MakeEvent, odd: str) -> None:
    members = "a4" if odd.startswith("01 636f6464") else "a3"
    body = bytes.fromhex(f"{members} 6161 f94d60 636f6464 {odd} 6162 02")
    readings, leftovers = checked(parse(make_event(body)))
    assert [each[1:3] for each in readings] == [("a", 21.5), ("b", 2.0)]
    assert [each.part.partition(".")[0] for each in leftovers] == ["odd"]


@pytest.mark.parametrize("key", ["f6", "f5", "8101", "c24101", "a0"])
def test_one_odd_key_is_named_and_costs_no_other_value(make_event: MakeEvent, key: str) -> None:
    readings, leftovers = checked(parse(make_event(bytes.fromhex(f"a2 {key} 01 6162 02"))))
    assert [each[1:3] for each in readings] == [("b", 2.0)]
    assert len(leftovers) == 1


def test_a_key_as_an_integer_and_as_a_text_gives_no_reading(make_event: MakeEvent) -> None:
    readings, leftovers = checked(parse(make_event(bytes.fromhex("a3 01 01 6131 02 6162 02"))))
    assert [each[1:3] for each in readings] == [("b", 2.0)]
    assert [each.part for each in leftovers] == ["1"]


def test_an_empty_body_is_skipped(make_event: MakeEvent) -> None:
    with pytest.raises(Skip):
        parse(make_event(b""))


def test_an_item_at_the_limits_is_parsed(make_event: MakeEvent) -> None:
    assert list(parse(make_event(b"\x81" * MAX_DEPTH + b"\x01"))) == [Reading(".".join("0" * MAX_DEPTH), 1.0)]


_values: Any = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.datetimes(timezones=st.just(UTC))
    | st.decimals(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200) | _values.map(cbor2.dumps))
def test_hostile_bytes_give_readings_or_poison(make_event: MakeEvent, body: bytes) -> None:
    with suppress(Poison, Skip):
        checked(parse(make_event(body, content_type="application/cbor")))
