"""When a rule acts: the pure decision."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.rules.react_world import event, rule
from fogline.errors import Misconfigured
from fogline.gateway.ledger import RuleOutcome
from fogline_edge.rule_settings import ActionTable, LastTable
from fogline_edge.rules.event_rules import react_rules_of
from fogline_edge.rules.react import (
    MAX_CHAIN,
    MAX_HOLDING,
    MAX_PAYLOAD_BYTES,
    NO_TIME,
    LastValue,
    ReactRules,
    RuleState,
    Seen,
    commanded,
    decide,
    depth_of,
    last_value,
    view_of,
)

FIRED, QUIET, ERROR = RuleOutcome.FIRED, None, RuleOutcome.ERROR


class Watched:
    """One rule, its state, and the age in seconds."""

    def __init__(self, table):
        self.rules = ReactRules([table])
        (self.rule,) = self.rules.rules
        self.age_s = 0.0
        self.state = self.rule.start(0)
        self.last = {}

    def see(self, value=None, device="press-1", depth=0, time=None):
        now_ms = int(self.age_s * 1000)
        arrival = event(device, value)
        for each in self.rules.heard(arrival):
            self.last[each.key] = last_value(arrival, each.tree, now_ms)
        seen = Seen(device, view_of(arrival), self.last, time or {}, now_ms)
        decision = decide(self.rule, self.state, seen, depth)
        self.state = decision.state
        return decision.outcome

    def see_all(self, *values, **keys):
        return [self.see(each, **keys) for each in values]


def test_rule_acts_when_its_condition_becomes_true():
    hot = Watched(rule())
    assert hot.see_all({"t": 20}, {"t": 27}, {"t": 28}, {"t": 20}, {"t": 27}) == [QUIET, FIRED, QUIET, QUIET, FIRED]


def test_rule_with_every_acts_on_each_event_while_its_condition_holds():
    hot = Watched(rule(every=True))
    assert hot.see_all({"t": 27}, {"t": 28}, {"t": 20}, {"t": 27}) == [FIRED, FIRED, QUIET, FIRED]


def test_rule_that_reads_the_event_watches_each_device_by_itself():
    hot = Watched(rule())
    assert [hot.see({"t": 27}, device=each) for each in ("a", "b", "a", "b")] == [FIRED, FIRED, QUIET, QUIET]


def test_rule_over_last_values_is_watched_as_a_whole():
    both = Watched(rule(when="last.east.value.t + last.west.value.t > 52.0", last={"east": "e", "west": "w"}))
    assert both.see({"t": 27}, device="e") is ERROR
    assert both.state.problem == "there is no last.west.value.t"
    assert [both.see({"t": 26}, device="w"), both.see({"t": 28}, device="e")] == [FIRED, QUIET]


def test_last_value_beyond_its_age_is_absent():
    both = Watched(rule(when="has(last.east) && last.east.value.t > 26.0", last={"east": LastTable(device="e", max_age_s=60)}))
    both.see({"t": 20}, device="e")
    both.last["e #"] = LastValue(0, {"value": {"t": 27.0}})
    both.age_s = 60
    assert both.see({}, device="other") is QUIET
    both.age_s = 59.999
    assert both.see({}, device="other") is FIRED


def test_last_value_is_of_the_channel_that_the_rule_names():
    table = rule(when="last.east.value.t > 26.0", last={"east": LastTable(device="e", channel="hall/#")})
    heard = ReactRules([table]).heard
    assert [len(heard(event("e", channel=each))) for each in ("hall/x", "yard/x")] == [1, 0]
    assert not heard(event("f", channel="hall/x"))


def test_error_of_a_condition_leaves_the_rule_as_it_is():
    hot = Watched(rule())
    assert hot.see_all({"t": 27}, {"t": "?"}, {}, {"t": 27}, {"t": 20}, {"t": 27}) == [FIRED, ERROR, ERROR, QUIET, QUIET, FIRED]
    assert hot.state.problem == "there is no event.value.t"


def test_rule_that_may_not_act_tries_again_while_the_condition_holds():
    hot = Watched(rule(burst=1, per_minute=1))
    assert hot.see_all({"t": 27}, {"t": 20}, {"t": 27}, {"t": 27}) == [FIRED, QUIET, RuleOutcome.RATE, RuleOutcome.RATE]
    hot.age_s = 60
    assert hot.see_all({"t": 27}, {"t": 27}) == [FIRED, QUIET]


def test_rule_does_not_act_on_the_effect_of_its_own_command():
    hot = Watched(rule(every=True))
    hot.state = commanded(hot.state, "press-1", 0, 1)
    assert hot.see({"t": 27}) is RuleOutcome.ECHO
    assert hot.see({"t": 27}, device="press-2") is FIRED
    hot.age_s = 2
    assert hot.see({"t": 27}) is FIRED


def test_chain_of_actions_ends():
    hot = Watched(rule())
    assert hot.see({"t": 27}, depth=MAX_CHAIN) is RuleOutcome.CHAIN
    assert hot.see({"t": 27}, depth=MAX_CHAIN - 1) is FIRED


def test_depth_of_an_event_counts_the_commands_to_its_device_just_now():
    rules = ReactRules([rule("a"), rule("b", echo_s=10)])
    states = {"a": RuleState(1, 0, commanded={"lamp": (1000, 1)}), "b": RuleState(1, 0, commanded={"lamp": (1000, 3)})}
    assert [depth_of(rules.rules, states, "lamp", at) for at in (999, 1000, 2999, 10_999, 11_000)] == [0, 3, 3, 3, 0]
    assert depth_of(rules.rules, states, "other", 1000) == 0


def test_rule_by_the_time_of_day_does_not_act_while_the_clock_is_not_right():
    night = Watched(rule(when="event.value.t > 26.0 && time.hour >= 22"))
    assert night.see({"t": 27}) is RuleOutcome.CLOCK
    assert night.state.problem == NO_TIME
    assert night.see({"t": 27}, time={"hour": 23}) is FIRED


def test_rule_by_value_or_time_acts_by_the_value_alone_while_the_clock_is_not_right():
    either = Watched(rule(when="event.value.t > 80.0 || time.hour >= 22"))
    assert either.see_all({"t": 20}, {"t": 90}) == [RuleOutcome.CLOCK, FIRED]


def test_payload_over_the_limit_is_not_decoded():
    assert "value" in view_of(event(value="x" * (MAX_PAYLOAD_BYTES - 2)))
    assert view_of(event(value="x" * (MAX_PAYLOAD_BYTES - 1))).keys() == {"device", "channel", "type", "lane", "adapter"}


def test_text_is_read_where_the_payload_is_no_json():
    on = Watched(rule(when='event.text == "ON"'))
    seen = Seen("p", view_of(event(data=b"ON", content_type="text/plain")), {}, {}, 0)
    assert decide(on.rule, on.state, seen, 0).outcome is FIRED


def test_remembered_devices_are_bounded():
    hot = Watched(rule(burst=1000))
    for number in range(MAX_HOLDING + 1):
        assert hot.see({"t": 27}, device=f"d{number}") is FIRED
        hot.state = commanded(hot.state, f"d{number}", 0, 1)
    assert len(hot.state.holding) == len(hot.state.commanded) == MAX_HOLDING


def test_events_of_the_gateway_itself_are_seen_only_by_rules_that_name_their_type():
    rules = ReactRules([rule("any"), rule("alarms", type="alarm")])
    alarm = event(adapter="fogline", type="alarm")
    assert [each.name for each in rules.of(alarm)] == ["alarms"]
    assert [each.name for each in rules.of(event())] == ["any"]
    assert rules.of(event(type="dead")) == ()


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"when": "last.east.value > 1"}, r"last.east is not in \[rules.react.last.east\]"),
        ({"when": "event.temperature > 1.0"}, "event has no temperature, only device, .*is event.value.temperature"),
        ({"when": "has(event.t) || event.value > 1"}, "event has no t, only"),
        ({"when": "time.minutes == 1"}, "time has no minutes, only hour, minute, weekday$"),
        ({"when": "last.a.t > 1", "last": {"a": LastTable(device="a")}}, "last.a has no t, only value, text, age_s"),
        ({"then": [ActionTable()]}, "action 1: it has either `command`, `alarm` or `topic`: then = "),
        ({"then": [ActionTable(command="a", alarm="b")]}, "either"),
        ({"then": [ActionTable(command="a b")]}, "is not a name of a command"),
        ({"then": [ActionTable(command="a", json=1, text="x")]}, "not both"),
        ({"then": [ActionTable(alarm="a", device="x")]}, "is for commands"),
        ({"then": [ActionTable(alarm="a", text="x")]}, "is for commands and messages"),
        ({"then": [ActionTable(topic="rule/a", device="x")]}, "is for commands"),
        ({"then": [ActionTable(topic="rule/+")]}, "has a wildcard: expected a topic name, such as rule/fan"),
        ({"then": [ActionTable(topic="event/acme/x")]}, "topics below event are not for rules"),
        ({"then": [ActionTable(topic="$SYS/x")]}, r"topics below \$SYS are not for rules"),
        ({"then": [ActionTable(alarm="a", json=1)]}, "is a table"),
        ({"then": [ActionTable(command="a", text="x" * 300_000)]}, "262144 bytes"),
    ],
)
def test_rule_that_cannot_work_is_refused(keys, why):
    with pytest.raises(Misconfigured, match=why) as error:
        react_rules_of([rule(**keys)])
    assert "rules.react hot" in str(error.value)


steps = st.lists(
    st.tuples(st.sampled_from(["a", "b"]), st.sampled_from([20, 27, None]), st.sampled_from([0, 0.1, 5, 40])), max_size=40
)


def model(every, burst, per_minute, taken):
    """Yield the outcomes of a plain Python rule."""
    held, tokens, at = set(), float(burst), 0.0
    for device, value, age_s in taken:
        if value is None:
            yield ERROR
            continue
        if value <= 26:
            held.discard(device)
            yield QUIET
            continue
        if device in held and not every:
            yield QUIET
            continue
        full = min(burst, tokens + (age_s - at) * per_minute / 60)
        if full < 1 - 1e-9:
            yield RuleOutcome.RATE
            continue
        tokens, at = full - 1, age_s
        held.add(device)
        yield FIRED


@given(steps, st.booleans(), st.integers(1, 3))
def test_rule_decides_as_a_plain_model(given_steps, every, burst):
    watched, taken, found = Watched(rule(every=every, burst=burst, per_minute=3)), [], []
    for device, value, pause_s in given_steps:
        watched.age_s += pause_s
        taken.append((device, value, watched.age_s))
        found.append(watched.see({"t": value} if value is not None else {}, device=device))
    assert found == list(model(every, burst, 3, taken))
    fired = [age_s for (_, _, age_s), each in zip(taken, found, strict=True) if each is FIRED]
    assert all(late >= early for early, late in pairwise(fired))
