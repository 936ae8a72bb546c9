from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fogline.errors import Poison
from fogline.events.event import Event
from fogline_cloud.flows.parsers import Leftover, Reading, Skip
from fogline_cloud.flows.parsers.csv_values import MAX_BYTES, parse
from fogline_cloud.flows.sandbox.parser_runner import checked
from property_tests import at_most

MakeEvent = Callable[..., Event]
NOON_NS = 1_767_355_200_000_000_000


@pytest.mark.parametrize(
    ("body", "returned"),
    [
        (b"t,rh\r\n21.5,40\r\n", [Reading("t", 21.5), Reading("rh", 40.0)]),
        (b"t,rh\n21.5,\n,41\n", [Reading("t", 21.5), Reading("rh", 41.0)]),
        (b"21.5,open", [Reading("column_1", 21.5), Reading("column_2", text="open")]),
        (b"open,shut", [Reading("column_1", text="open"), Reading("column_2", text="shut")]),
        (b"1,2\n3,4", [Reading(f"column_{1 + n % 2}", n + 1.0) for n in range(4)]),
        (b'name\n"a ""b"", c\r\nd"\n', [Reading("name", text='a "b", c\r\nd')]),
        (b'"t"\n"21.5"\n', [Reading("t", 21.5)]),
        (b"t,\n1,2\n", [Reading("t", 1.0), Reading("column_2", 2.0)]),
        ("\ufefftemp\u00e9rature\n-1.5e-1\n".encode(), [Reading("temp\u00e9rature", -0.15)]),
        (b"time,t\n2026-01-02T13:00:00+01:00,5\n", [Reading("t", 5.0, time_ns=NOON_NS)]),
        (
            b"time,t\n2026-01-02 13:00,5\n",
            [
                Leftover("row 2, time", "not RFC 3339 with an offset"),
                Reading("time", text="2026-01-02 13:00"),
                Reading("t", 5.0),
            ],
        ),
        (
            b"a,b\n1,2\n3\n4,5,6\n",
            [
                Reading("a", 1.0),
                Reading("b", 2.0),
                Leftover("row 3", "1 fields instead of 2"),
                Leftover("row 4", "3 fields instead of 2"),
            ],
        ),
        (b'"a;b",c\n"1;2",\t3\t\n', [Reading("a;b", text="1;2"), Reading("c", 3.0)]),
        (
            b'a,b\n"1"x,2\n3,4\n"5,6\n7,8\n',
            [
                Leftover("row 2", "not CSV: ',' expected after '\"'"),
                Reading("a", 3.0),
                Reading("b", 4.0),
                Leftover("row 4", "not CSV: unexpected end of data"),
            ],
        ),
        (b"nan,inf\n1e999,0x10", [Reading("nan", text="1e999"), Reading("inf", text="0x10")]),
    ],
)
def test_each_cell_is_a_reading_by_the_rules(make_event: MakeEvent, body: bytes, returned: list[Reading | Leftover]) -> None:
    assert list(parse(make_event(body, content_type="text/csv"))) == returned


@pytest.mark.parametrize(
    ("content_type", "metric"),
    [("text/csv; header=present", "1"), ('text/csv;charset=utf-8; Header="absent"', "column_1"), ("text/csv", "column_1")],
)
def test_the_content_type_says_if_there_is_a_header(make_event: MakeEvent, content_type: str, metric: str) -> None:
    readings = checked(parse(make_event(b"1\n2\n", content_type=content_type)))[0]
    assert readings[-1][1:3] == (metric, 2.0)


@pytest.mark.parametrize("body", [b'"a', b'"a"b\n1', b"a;b\n1;2\n", b"a\tb\n1\t2\n", b"a\n" + b"1\n" * MAX_BYTES])
def test_invalid_csv_is_poison(make_event: MakeEvent, body: bytes) -> None:
    with pytest.raises(Poison):
        list(parse(make_event(body, content_type="text/csv")))


@pytest.mark.parametrize("body", [b"", b"\n\n"])
def test_an_empty_body_is_skipped(make_event: MakeEvent, body: bytes) -> None:
    with pytest.raises(Skip):
        list(parse(make_event(body, content_type="text/csv")))


@pytest.mark.parametrize("row", ["21,5;40,2", "21.5\t40.2", "21.5,4;0"])
def test_a_row_that_semicolons_or_tabs_may_separate_gives_no_half_numbers(make_event: MakeEvent, row: str) -> None:
    returned = list(parse(make_event(f"1,2\n{row}\n3,4\n".encode(), content_type="text/csv")))
    assert [each.value for each in returned if isinstance(each, Reading)] == [1.0, 2.0, 3.0, 4.0]
    assert [each.part for each in returned if isinstance(each, Leftover)] == ["row 2"]


@given(st.binary(max_size=200) | st.text('ab1.,;\t"\n\r', max_size=60).map(str.encode))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=at_most(200))
def test_hostile_bytes_give_readings_or_poison(make_event: MakeEvent, body: bytes) -> None:
    with suppress(Poison, Skip):
        checked(parse(make_event(body, content_type="text/csv")))
