"""Which events a rule keeps back by report on change, intervals and sampling."""

import cbor2
import pytest

from fogline.dead_letter import DEAD_TYPE
from fogline.errors import Misconfigured
from fogline.events.event import Lane
from fogline.gateway.ledger import RuleOutcome
from fogline_edge.rule_settings import ReduceTable
from fogline_edge.rules import reduction as module
from fogline_edge.rules.reduction import Reduction
from fogline_lab.events import make_arrival

TEMPERATURE = {"fields": ("/temperature",)}


def stored(values, *, every_s=1.0, **table):
    """The values that are stored, of events that say them one after the other."""
    rules = Reduction([ReduceTable(name="r", **table)])
    bodies = [b'{"temperature": %s}' % str(each).encode() for each in values]
    found = [rules.decide(make_arrival(data=body), round(number * every_s * 1000)) for number, body in enumerate(bodies)]
    return [value for value, decision in zip(values, found, strict=True) if decision is None]


@pytest.mark.parametrize(
    ("table", "values", "news"),
    [
        ({"on_change": True}, [1, 1, 2, 2, 1], [1, 2, 1]),
        ({"on_change": True}, ["true", "1", "true", '"true"'], ["true", "1", "true", '"true"']),
        ({"on_change": True}, ["1", "1.0", "null", "null"], ["1", "null"]),
        ({"change": 0.5}, [20, 20.4, 20.5, 20.9, 20.1, 20.0], [20, 20.5, 20.0]),
        ({"change": 0.1}, [20.0, 20.1, 20.2, 20.25, 20.3, 20.4], [20.0, 20.1, 20.2, 20.3, 20.4]),
        ({"change_percent": 10}, [100, 109, 110, 120, 121, 108.9], [100, 110, 121, 108.9]),
        ({"change_percent": 10}, [0, 0, 0.001, -0.001], [0, 0.001, -0.001]),
        ({"change": 5, "change_percent": 10}, [10, 11, 15, 16, 17.6], [10, 11, 15, 17.6]),
        ({"dead_band": (-1, 1)}, [0, 0.9, -1, 1.1, 1.2, 1, 0.5], [0, 1.1, 1.2, 1]),
        ({"dead_band": (-1, 1), "change": 2}, [0, 1.5, 2.0, 3.9, 4], [0, 2.0, 4]),
    ],
)
def test_event_is_stored_if_its_number_changed_enough_since_the_last_stored_one(table, values, news):
    assert stored(values, **TEMPERATURE, **table) == news


def test_without_fields_the_payload_is_compared():
    assert stored([1, 1, 2, 2], on_change=True) == [1, 2]


def test_intervals_bound_how_often_an_event_is_stored():
    changing = list(range(10))
    assert stored(changing, min_interval_s=3) == [0, 3, 6, 9]
    assert stored([5] * 10, on_change=True, max_interval_s=4) == [5, 5, 5]
    assert stored(changing, on_change=True, min_interval_s=4, max_interval_s=5) == [0, 4, 8]


def test_sampling_stores_every_nth_event():
    assert stored(list(range(10)), every=4) == [0, 4, 8]


def test_devices_and_channels_are_compared_with_themselves():
    rules = Reduction([ReduceTable(name="r", on_change=True)])
    arrivals = [make_arrival(device=device, channel=channel) for device in ("a", "b") for channel in ("x", "y")]
    assert [rules.decide(each, 0) for each in arrivals] == [None] * 4
    assert [rules.decide(each, 0).outcome for each in arrivals] == [RuleOutcome.REDUCED] * 4


def test_first_rule_that_can_read_the_event_decides():
    rules = Reduction([ReduceTable(name="t", on_change=True, **TEMPERATURE), ReduceTable(name="all", every=2)])
    kinds = [make_arrival(data=b'{"temperature": 1}'), make_arrival(data=b'{"humidity": 1}')]
    assert [rules.decide(each, 0) for each in kinds] == [None, None]
    assert [rules.decide(each, 0).rule.name for each in kinds] == ["t", "all"]


@pytest.mark.parametrize("data", [b'{"humidity": 1}', b"no document", b"[" * 100_000, b""])
def test_event_without_the_fields_is_stored_and_counted(data):
    rules = Reduction([ReduceTable(name="r", on_change=True, **TEMPERATURE)])
    for _ in range(2):
        assert rules.decide(make_arrival(data=data), 0).outcome is RuleOutcome.UNREADABLE


def test_document_too_deep_to_compare_is_stored():
    rules = Reduction([ReduceTable(name="r", on_change=True, fields=("/a",))])
    nested: object = 1
    for _ in range(60):
        nested = {"a": nested}
    deep = b'{"a": ' + b"[" * 900 + b"]" * 900 + b"}"
    for data, kind in ((cbor2.dumps(nested), "application/cbor"), (deep, "application/json")):
        arrival = make_arrival(data=data, content_type=kind)
        assert rules.decide(arrival, 0) is None
        rules.decide(arrival, 0)  # kept back or stored, but it never fails


@pytest.mark.parametrize(
    "other", [{"lane": Lane.ALARM}, {"lane": Lane.REPLY}, {"type": DEAD_TYPE}], ids=["alarm", "reply", "dead letter"]
)
def test_alarms_replies_and_dead_letters_are_never_reduced(other):
    assert not Reduction([ReduceTable(name="r", every=2)]).applies(make_arrival(**other))


def test_after_a_rollback_the_events_of_the_transaction_are_forgotten():
    rules = Reduction([ReduceTable(name="r", on_change=True)])
    one, other = make_arrival(1), make_arrival(2)
    assert rules.decide(one, 0) is None
    rules.committed()
    assert rules.decide(other, 0) is None
    rules.rolled_back()
    assert rules.decide(one, 0).outcome is RuleOutcome.REDUCED
    assert rules.decide(other, 0) is None


def test_devices_beyond_the_bound_are_stored(monkeypatch):
    monkeypatch.setattr(module, "MAX_REMEMBERED", 10)
    rules = Reduction([ReduceTable(name="r", on_change=True)])
    devices = [make_arrival(device=f"d-{number}") for number in range(20)]
    assert [rules.decide(each, 0) for _ in range(2) for each in devices] == [None] * 40
    assert len(rules._last) == 10


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ({}, "expected one kind of reduction: every = 10"),
        ({"every": 2, "on_change": True}, "expected one kind of reduction"),
        ({"window_s": 60, "every": 2}, "expected one kind of reduction"),
        ({"every": 2, "max_interval_s": 5}, "max_interval_s = 5 needs on_change = true"),
        ({"change": 1.0}, r"change_percent and dead_band need fields, such as fields = \['/temperature'\]"),
        ({"window_s": 60}, "window_s needs fields with numbers"),
        ({"window_s": 60, "fields": ("bytes:0-1",)}, "window_s needs fields with numbers"),
        ({"window_s": 60, "fields": ("/a.b", "/a/b")}, "the fields a.b, a.b have the same name"),
        ({"on_change": True, "fields": ("a",)}, "fields = 'a': expected a JSON pointer"),
    ],
)
def test_table_that_makes_no_sense_is_refused_with_an_example(table, why):
    with pytest.raises(Misconfigured, match=rf"^rules\.reduce r: .*{why}"):
        Reduction([ReduceTable(name="r", **table)])
