"""Conditions in CEL: what they may use, what they read, and what one evaluation may cost."""

import pytest

from fogline.errors import Misconfigured
from fogline_edge.rules.cel import MAX_NESTED, MAX_TEXT_BYTES, MAX_VALUES, EvaluationError, RuleCondition, pick


def condition(source):
    return RuleCondition("rules.react r: when", source)


def holds(source, value=None, last=None, time=None, **event):
    event = {"device": "press-1", **event} | ({"value": value} if value is not None else {})
    return condition(source).holds({"event": event, "last": last or {}, "time": time or {}})


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("event.value.temperature > 26.0", {"temperature": 26.5}),
        ("event.value.temperature > 26", {"temperature": 27}),
        ("event.value.temperature + 0.5 > 26.0", {"temperature": 26}),
        ('event.value["my key"].list[1] == "b"', {"my key": {"list": ["a", "b"]}}),
        ("event.value == 3", 3),
        ("event.value[0] in [1, 2]", [2]),
        ('event.value.state == "ON" && event.device.startsWith("press-")', {"state": "ON"}),
        ("event.value.on ? event.value.level > 1 : false", {"on": True, "level": 2}),
        ("!has(event.value.error)", {"on": True}),
        ('event.value.text.matches("^a+$")', {"text": "aaa"}),
        ("size(event.value.items) == 2", {"items": [1, 2]}),
        ("event.value.none == null", {"none": None}),
        ("has ( event.value.there ) && !has(event.value.missing) && !has(event.missing.at.all)", {"there": 0}),
        ("has(event.value.list[0].a) && size(event) == 2", {"list": [{"a": 1}]}),
        ("'event.value.t' == \"event.value.t\" && event . value . t == 1", {"t": 1}),
        ("event.value.n<1e-2&&event.value.n>-1.5E+3", {"n": 0}),
        ("event.value.missing > 1 || event.value.there > 1", {"there": 2}),
    ],
)
def test_condition_reads_json_as_cel_does(source, value):
    assert holds(source, value) is True


def test_whole_numbers_of_json_are_doubles_so_that_a_sensor_may_leave_out_the_point():
    assert holds("event.value.a + event.value.b == 47.5", {"a": 21, "b": 26.5})


def test_condition_reads_last_values_and_time():
    last = {"west": {"value": {"t": 27.0}, "age_s": 3.0}}
    assert holds(
        "last.west.value.t > 26.0 && last.west.age_s < 60.0 && time.hour * 60 + time.minute >= 390",
        last=last,
        time={"hour": 6, "minute": 30},
    )


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("event.value.t >", "this is not CEL"),
        ("event.value.t > 'x", "a text has no end"),
        ("temperature > 26.0", "temperature is not known; use `event`, `last` and `time`, such as"),
        ("1 < 2", "it reads nothing"),
        ("event.value.x.exists(i, i > 1)", r"exists\(\) cannot be used; there are contains, double"),
        ("event.value.x.map(i, i).size() > 1", r"map\(\) cannot be used"),
        ("event.value.s.matches(event.value.p)", r"the pattern of matches\(\) must be a text"),
        ("event.value.s.matches('(a{99}){99}')", r"a text without \{"),
        ('__import__("os").system("x")', r"__import__\(\) cannot be used"),
    ],
)
def test_bad_condition_is_refused_with_its_key_and_an_example(source, why):
    with pytest.raises(Misconfigured, match=why) as error:
        condition(source)
    assert "rules.react r: when" in str(error.value)


@pytest.mark.parametrize(
    ("source", "value", "why"),
    [
        ("event.value.t > 1", {}, "there is no event.value.t"),
        ("event.value.t > 1", None, "there is no event.value"),
        ("event.value.t > 1", {"t": "warm"}, "overload"),
        ("event.value.t", {"t": 1}, "neither true nor false"),
        ("event.value.a / event.value.b > 1 / 0", {"a": 1, "b": 0}, "division"),
    ],
)
def test_condition_without_a_value_says_why(source, value, why):
    with pytest.raises(EvaluationError, match=why):
        holds(source, value)


def test_only_the_values_that_the_condition_names_are_taken():
    assert condition(
        'event.value.a.b > 1 && event.value.a["c d"] > 1 && last.x.value > 2 && event.device != "event.value.z"'
    ).reads == {
        "event": {"value": {"a": {"b": None, "c d": None}}, "device": None},
        "last": {"x": {"value": None}},
    }
    assert condition("event.value.list[0] > 1 && event.value.text.startsWith('a')").reads["event"] == {
        "value": {"list": None, "text": None}
    }
    assert condition("event.value[event.device] > 1").reads["event"] == {"value": None, "device": None}
    assert holds("event.value.t > 1", {"t": 2, "other": ["x"] * (2 * MAX_VALUES)})


def _nested(levels):
    return [_nested(levels - 1)] if levels else 1


@pytest.mark.parametrize(
    "value",
    [
        list(range(MAX_VALUES + 1)),
        ["x" * (MAX_TEXT_BYTES // 2 + 1)] * 2,
        _nested(MAX_NESTED + 1),
        {"a": {"b": [{}] * MAX_VALUES}},
    ],
)
def test_payload_beyond_the_bounds_has_no_value(value):
    with pytest.raises(EvaluationError, match=r"more than \d+"):
        holds("event.value.x == 1", {"x": value})


def test_number_that_is_no_double_is_absent():
    assert pick({"n": 10**400, "m": -(10**400), "f": 1e300}, {"n": None, "m": None, "f": None}) == {
        "n": None,
        "m": None,
        "f": 1e300,
    }
