"""Selectors of AMQP consumers."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fogline.errors import Poison
from fogline_cloud.selector import MAX_SELECTOR, read_selector

EVENT = {
    "device_id": "lamp-1",
    "orig_adapter": "mqtt",
    "ttd": 30,
    "content-type": "text/plain",
    "cloudEvents_subject": "plant/7/x",
    "on": True,
}


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("device_id = 'lamp-1'", True),
        ("device_id <> 'lamp-1'", False),
        ("device_id = 'it''s'", False),
        ("ttd > 29.5 AND ttd <= 30 and ttd <> 31", True),
        ("ttd BETWEEN 1 AND 29", False),
        ("ttd NOT BETWEEN 1 AND 29", True),
        ("ttd = '30'", False),
        ("device_id > 'a'", False),
        ("orig_adapter IN ('ble', 'mqtt')", True),
        ("orig_adapter NOT IN ('ble', 'mqtt')", False),
        ("cloudEvents_subject LIKE 'plant/%/_'", True),
        ("cloudEvents_subject LIKE 'plant/_'", False),
        ("cloudEvents_subject NOT LIKE 'p%'", False),
        ("device_id LIKE 'lamp!-1' ESCAPE '!'", True),
        ("status IS NULL AND ttd IS NOT NULL", True),
        ("status = 200", None),
        ("NOT status = 200", None),
        ("status = 200 OR ttd = 30", True),
        ("status = 200 AND ttd = 31", False),
        ("status LIKE 'x' OR status IN ('x') OR status BETWEEN 1 AND 2", None),
        ("\"content-type\" = 'text/plain'", True),
        ("on", True),
        ("NOT on OR on = FALSE", False),
        ("NOT (device_id = 'a' OR device_id = 'b') AND (on = TRUE)", True),
        ("30 = ttd AND 3e1 = ttd AND -1 < ttd AND .5 < ttd", True),
    ],
)
def test_events_that_a_selector_matches(selector, found):
    assert read_selector(selector)(EVENT) is found


@pytest.mark.parametrize(
    "selector",
    ["", " ", "device_id =", "= 'a'", "a = 'b", "a = 'b' c", "a IN ()", "a IN ('b'", "a LIKE b", "a LIKE 'b' ESCAPE 'cd'",
     "a IS 'b'", "a NOT = 'b'", "'text'", "(a = 'b'", "a = 'b')", "a + 1 = 2", "a = 'b' AND", "NOT", "a = ~", "a = 'ä' ÄND",
     "(" * 40 + "a" + ")" * 40, "NOT " * 40 + "a", "a" * (MAX_SELECTOR + 1), "a BETWEEN 1", "IN = 'a'"],
)  # fmt: skip
def test_invalid_selector_is_refused_with_the_reason(selector):
    with pytest.raises(Poison, match=r"selector|ESCAPE"):
        read_selector(selector)


@given(st.text(alphabet="ab'\"()=<>%_ ,.1NOTINLIKEANDORISULBETWEEN-", max_size=80))
def test_a_selector_is_read_or_refused(text):
    try:
        condition = read_selector(text)
    except Poison:
        return
    assert condition(EVENT) in (True, False, None)


def test_a_pattern_of_many_wildcards_is_matched():
    pattern = "%a" * 900
    assert read_selector(f"x LIKE '{pattern}b'")({"x": "a" * 5000}) is False
    assert read_selector(f"x LIKE '{pattern}b'")({"x": "a" * 5000 + "b"}) is True


@given(st.text(alphabet="ab%_!", max_size=12), st.text(alphabet="ab%_!\n", max_size=12), st.sampled_from(["", "!", "%"]))
def test_like_matches_as_sql_says(pattern, value, escape):
    expected, rest = "", iter(pattern)
    for each in rest:
        if each == escape:
            expected += re.escape(next(rest, escape))
        else:
            expected += {"%": ".*", "_": "."}.get(each, re.escape(each))
    condition = read_selector(f"x LIKE '{pattern}'" + (f" ESCAPE '{escape}'" if escape else ""))
    assert condition({"x": value}) is (re.fullmatch(expected, value, re.DOTALL) is not None)


@pytest.mark.parametrize("make", ["%{}b", "%{}_b%", "{}"], ids=ascii)
def test_the_time_of_a_like_hardly_grows_with_its_pattern(make):
    """A pattern of a hundred times the length: compared at each place of the value it would take a hundred times as long."""
    value = {"x": "a" * 4096}

    def seconds(length):
        condition = read_selector(f"x LIKE '{make.format('a' * length)}'")
        found = []
        for _ in range(7):
            began = time.process_time()
            condition(value)
            found.append(time.process_time() - began)
        return min(found)

    assert seconds(1000) < 20 * seconds(10) + 0.001
