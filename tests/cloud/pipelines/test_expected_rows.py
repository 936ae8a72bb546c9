"""Rows of a table against expected ones."""

from datetime import UTC, date, datetime

import pytest

from fogline.errors import Misconfigured
from fogline_cloud.pipelines.expected_rows import RowDifference, compare, read_rows


def test_rows_are_compared_without_order_by_the_columns_of_the_file():
    expected = read_rows("x", b'{"device": "b", "n": 2}\n\n{"device": "a", "n": 1.0}\n')
    found = [{"device": "a", "n": 1, "more": 1}, {"device": "b", "n": 2.0000000001, "more": 2}]
    assert compare("t", expected, found) == RowDifference("t", [], [])


def test_each_row_counts():
    expected = read_rows("x", b'{"n": 1}\n{"n": 1}\n{"n": 2}\n')
    assert compare("t", expected, [{"n": 1}, {"n": 3}]) == RowDifference("t", ['{"n": 1}', '{"n": 2}'], ['{"n": 3}'])


def test_an_empty_file_expects_an_empty_table():
    assert compare("t", read_rows("x", b"\n"), []).is_none
    assert compare("t", [], [{"n": 1}]).unexpected == ['{"n": 1}']


def test_times_days_bytes_and_lists_are_written_as_json_has_them():
    found = {
        "at": datetime(2026, 1, 4, 10, tzinfo=UTC),
        "day": date(2026, 1, 4),
        "body": b"\x00",
        "names": ["a"],
        "of": {"x": 1.5},
        "ok": True,
        "none": None,
    }
    line = (
        b'{"at": "2026-01-04T10:00:00Z", "day": "2026-01-04", "body": "AA==", "names": ["a"], "of": {"x": 1.5}, "ok": true, '
        b'"none": null}'
    )
    assert compare("t", read_rows("x", line), [found]).is_none


@pytest.mark.parametrize(("content", "words"), [(b"{", "x:1: "), (b'{"a": 1}\n{"b": 1}', "x:2: expected the columns")])
def test_a_wrong_line_is_named(content, words):
    with pytest.raises(Misconfigured, match=words):
        read_rows("x", content)
