from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fogline.errors import Poison
from fogline.events.event import Event
from fogline_cloud.flows.parsers import Reading, Skip
from fogline_cloud.flows.parsers.raw_number import parse
from fogline_cloud.flows.sandbox.parser_runner import checked

MakeEvent = Callable[..., Event]


@pytest.mark.parametrize(
    ("body", "value"),
    [(b"21.5", 21.5), (b" -4\r\n", -4.0), (b"+.5", 0.5), (b"7.", 7.0), (b"1e3", 1000.0), (b"0", 0.0), (b"1E-9999", 0.0)],
)
def test_one_decimal_number_is_one_reading_named_by_the_channel(make_event: MakeEvent, body: bytes, value: float) -> None:
    assert parse(make_event(body, subject="plant/t")) == [Reading("plant/t", value)]
    assert parse(make_event(body, subject="")) == [Reading("value", value)]


@pytest.mark.parametrize(
    "body",
    [b"", b"on", b"1 2", b"0x10", b"nan", b"inf", b"1_000", b"1,5", "\u0661".encode(), b"\x00\x01", b"1" * 65, b"1e99999"],
)
def test_anything_else_is_skipped(make_event: MakeEvent, body: bytes) -> None:
    with pytest.raises(Skip) as skipped:
        parse(make_event(body))
    assert skipped.value.reason == "not-a-number"


def test_a_number_beyond_a_double_is_refused(make_event: MakeEvent) -> None:
    with pytest.raises(Poison) as refused:
        parse(make_event(b"-1e400"))
    assert refused.value.reason == "not-finite"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=80) | st.from_regex(rb"[0-9+\-.eE ]{0,70}", fullmatch=True))
def test_hostile_bytes_give_readings_skip_or_poison(make_event: MakeEvent, body: bytes) -> None:
    event = make_event(body, content_type="text/plain")
    with suppress(Poison, Skip):
        assert len(checked(parse(event))[0]) == 1
