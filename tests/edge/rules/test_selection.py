"""Which rules apply to an arrival."""

import pytest

from fogline.errors import Misconfigured
from fogline.events.event import Arrival, Lane
from fogline_edge.rule_settings import RuleTable
from fogline_edge.rules.selection import MAX_REMEMBERED, RuleSelection


def arrival(device="press-1", channel="hall/press-1", kind="telemetry", adapter="mqtt"):
    return Arrival(
        device=device,
        channel=channel,
        lane=Lane.TELEMETRY,
        content_type="application/json",
        data=b"{}",
        adapter=adapter,
        type=kind,
    )


def applies(given=None, **table):
    return bool(RuleSelection("rules.identity", [(RuleTable(name="r", **table), "rule")]).of(given or arrival()))


def test_rule_without_keys_applies_to_every_arrival():
    assert applies()
    assert applies(arrival(channel="$SYS/x")) is False  # [MQTT-4.7.2-1]


@pytest.mark.parametrize(
    "table",
    [
        {"device": "press-*"},
        {"device": "press-[12]"},
        {"channel": "hall/+"},
        {"channel": "hall/#"},
        {"type": "telemetry"},
        {"adapter": "mqtt"},
        {"device": "press-1", "channel": "hall/press-1", "type": "telemetry", "adapter": "mqtt"},
    ],
)
def test_rule_applies_where_every_key_fits(table):
    assert applies(**table)


@pytest.mark.parametrize(
    "table",
    [
        {"device": "lamp-*"},
        {"device": "press"},
        {"channel": "hall"},
        {"channel": "+"},
        {"type": "alarm"},
        {"adapter": "coap"},
        {"device": "press-1", "adapter": "coap"},
    ],
)
def test_rule_does_not_apply_where_one_key_does_not_fit(table):
    assert not applies(**table)


def test_rules_keep_the_order_of_the_settings():
    tables = [RuleTable(name=name, device=device) for name, device in (("b", "*"), ("no", "lamp"), ("a", "press-*"))]
    assert RuleSelection("rules.identity", [(each, each.name) for each in tables]).of(arrival()) == ("b", "a")


def test_many_sources_do_not_fill_the_memory():
    selection = RuleSelection("rules.identity", [(RuleTable(name="r", device="press-*"), "rule")])
    for number in range(3 * MAX_REMEMBERED):
        assert selection.of(arrival(device=f"press-{number}")) == ("rule",)
        assert selection.of(arrival(device=f"lamp-{number}")) == ()
    assert len(selection._known) <= MAX_REMEMBERED


def test_channel_that_is_no_filter_is_refused_with_its_rule():
    with pytest.raises(Misconfigured, match=r"rules\.identity r: channel = 'a\+'"):
        RuleSelection("rules.identity", [(RuleTable(name="r", channel="a+"), "rule")])
