"""What rules do becomes durable with the event that caused it."""

import msgspec
import pytest

from edge.outbox.stores import open_store, roll_back, rows, take
from edge.rules.react_world import FAN_ON, event, rule, rules
from fogline.commands.command import Deadline
from fogline.events.codec import decode_event
from fogline.events.event import Lane, Receipt
from fogline.events.identity import Retransmission, UniqueId
from fogline.events.report_on_change import ReportPolicy
from fogline_edge.adapters.mqtt.hono.local_events import event_topic
from fogline_edge.downlink.journal import open_entries
from fogline_edge.operate.status import read_status
from fogline_edge.outbox.rows import command_rows, message_rows
from fogline_edge.outbox.rows.message_rows import unpublished
from fogline_edge.outbox.writer.ingest import keep_value
from fogline_edge.outbox.writer.reactor import STATE_KEY
from fogline_edge.rule_settings import ActionTable, IdentityTable, PrivateTable, ReduceTable, RuleSettings
from fogline_edge.rules.react import MAX_CHAIN
from fogline_lab.clock import YEAR_NS, FakeClock

TOPIC = ActionTable(topic="rule/hot")
ALARM = ActionTable(alarm="the hall is hot", json={"place": "hall"})


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def opened(tmp_path, clock):
    def open_with(*tables, given=None):
        return open_store(tmp_path / "outbox.db", clock=clock, rules=given or rules(*tables))

    return open_with


def open_with_rules(opened, **tables):
    return opened(given=RuleSettings(**tables))


def commands(store):
    return [each.command for each in open_entries(store.connection, store.identity)]


def stored(store, lane):
    return [decode_event(each.body) for each in rows(store, store.streams.of_lane(lane))]


def hot(number, **keys):
    return event(value={"t": 27}, evidence=UniqueId(b"%d" % number), **keys)


def cold(number, **keys):
    return event(value={"t": 20}, evidence=UniqueId(b"%d" % number), **keys)


def test_command_of_a_rule_is_in_the_journal_with_its_event(opened, clock):
    store = opened(rule())
    clock.go_on(5)
    assert take(store, hot(1)) == [Receipt.STORED]
    (command,) = commands(store)
    (cause,) = stored(store, Lane.TELEMETRY)
    assert (command.device, command.name, command.data, command.content_type) == (
        "fan-1",
        "switch",
        b'{"on":true}',
        "application/json",
    )
    assert (command.tenant, command.gateway, command.durable, command.reply) == ("acme", "gw-1", True, True)
    assert command.correlation == f"rule/hot/{cause.id}"
    assert command.deadline == Deadline("boot-1", 35_000)
    assert command.id.startswith("rule.")
    assert store.commands == [command]


def test_command_goes_to_the_device_of_the_event_if_the_action_names_none(opened):
    store = opened(rule(then=[ActionTable(command="stop", text="now")]))
    take(store, event(value={"t": 27}))
    (command,) = commands(store)
    assert (command.device, command.data, command.content_type) == ("press-1", b"now", "text/plain")


def test_alarm_of_a_rule_is_an_event_that_names_rule_and_event(opened):
    store = opened(rule(then=[ALARM, FAN_ON]))
    take(store, event(value={"t": 27}))
    (cause,) = stored(store, Lane.TELEMETRY)
    (alarm,) = stored(store, Lane.ALARM)
    assert (alarm.device, alarm.type, alarm.subject, alarm.dedup) == ("press-1", "alarm", "rule/hot", "strong")
    assert event_topic(alarm) == "event/acme/press-1/rule/hot"
    assert msgspec.json.decode(alarm.data) == {"place": "hall", "alarm": "the hall is hot", "rule": "hot", "event": cause.id}
    assert len(commands(store)) == 1


def test_duplicate_does_not_act_again(opened):
    store = opened(rule(every=True))
    again = Retransmission(b"press-1", again=True, number=7)
    arrivals = [hot(1), hot(1), event(value={"t": 27}, retransmission=msgspec.structs.replace(again, again=False))]
    arrivals.append(event(value={"t": 27}, retransmission=again))
    assert take(store, *arrivals) == [Receipt.STORED, Receipt.DUPLICATE, Receipt.STORED, Receipt.DUPLICATE]
    assert len(commands(store)) == 2


def test_event_that_is_no_news_does_not_act_and_renews_the_last_value(opened, clock):
    store = opened(rule(when="last.p.value.t > 26.0 && last.p.age_s < 5.0", last={"p": "press-1"}, every=True, device="other"))
    report = ReportPolicy(on_change=True)
    assert take(store, event(value={"t": 27}, report=report)) == [Receipt.STORED]
    clock.go_on(10)
    assert take(store, event(value={"t": 27}, report=report)) == [Receipt.FILTERED]
    take(store, event("other", value=None))
    assert len(commands(store)) == 1


def test_transaction_that_is_rolled_back_did_nothing(opened):
    store = opened(rule(then=[FAN_ON, ALARM], last={"p": "press-1"}))
    roll_back(store, lambda: store.ingest.store([], 0), lambda: take_within(store, hot(1)))
    assert (commands(store), stored(store, Lane.ALARM), store.commands) == ([], [], [])
    take(store, hot(1))
    assert (len(commands(store)), len(stored(store, Lane.ALARM)), len(store.commands)) == (1, 1, 1)


def take_within(store, *arrivals):
    from fogline_edge.machine.boot import moment
    from fogline_edge.outbox.writer.ingest import Waiting

    when = moment(store.clock)
    store.ingest.store([Waiting(each, when, lambda _: None) for each in arrivals], store.age.ms)


def test_state_of_rules_survives_a_restart(opened, clock):
    both = rule("both", when="last.east.value.t + last.west.value.t > 52.0", last={"east": "e", "west": "w"}, channel="cellar")
    limited = rule("limited", every=True, burst=1, per_minute=0.001)
    store = opened(rule(), limited, both)
    take(store, hot(1), event("e", value={"t": 27}))
    store.connection.close()
    clock.go_on(60)
    store = opened(rule(), limited, both)
    take(store, hot(2), event("w", value={"t": 26}, channel="cellar"))
    assert sorted(each.correlation.split("/")[1] for each in commands(store)) == ["both", "hot", "hot", "limited"]


def test_reboot_makes_last_values_old(opened, clock):
    store = opened(rule(when="last.e.value.t > 26.0", last={"e": "e"}, device="x"))
    take(store, event("e", value={"t": 27}))
    with store.transaction():
        store.age.save()
    store.connection.close()
    clock.reboot(clock.wall_ns + YEAR_NS)
    store = opened(rule(when="last.e.value.t > 26.0 && last.e.age_s > 600.0", last={"e": "e"}, device="x"))
    take(store, event("x", value={}))
    assert len(commands(store)) == 1


def test_clock_that_jumps_changes_neither_rate_nor_age(opened, clock):
    limited = rule(burst=1, per_minute=1)
    store = opened(limited)
    take(store, hot(1), cold(2))
    clock.wall_ns += 10 * YEAR_NS
    take(store, hot(3))
    assert len(commands(store)) == 1
    clock.wall_ns -= 20 * YEAR_NS
    clock.go_on(60)
    take(store, hot(4))
    assert len(commands(store)) == 2


def test_time_of_day_is_read_only_from_a_clock_that_is_right(opened, clock):
    store = opened(rule(when="event.value.t > 26.0 && time.hour >= 0"))
    clock.synchronized = False
    take(store, hot(1))
    assert commands(store) == []
    clock.synchronized = True
    take(store, hot(2))
    assert len(commands(store)) == 1


def test_alarm_may_lead_to_another_rule_and_a_loop_of_rules_ends(opened):
    again = ActionTable(alarm="again")
    store = opened(
        rule(then=[again]),
        rule("ping", when='event.channel != "rule/ping"', type="alarm", then=[again], every=True),
        rule("pong", when='event.channel != "rule/pong"', type="alarm", then=[again], every=True),
    )
    take(store, hot(1))
    alarms = stored(store, Lane.ALARM)
    assert 4 <= len(alarms) <= 2**4
    assert len({each.id for each in alarms}) == len(alarms)


def test_two_rules_that_command_each_others_devices_end(opened, clock):
    to_b = rule("a", device="a", when="event.value.on", every=True, then=[ActionTable(command="toggle", device="b")])
    to_a = rule("b", device="b", when="event.value.on", every=True, then=[ActionTable(command="toggle", device="a")])
    store, told = opened(to_b, to_a), ["a"]
    while told:
        take(store, event(told.pop(), value={"on": True}))
        clock.go_on(1)
        told += [each.device for each in store.commands]
        store.commands.clear()
        assert len(commands(store)) <= MAX_CHAIN
    clock.go_on(2)
    take(store, event("a", value={"on": True}))
    assert len(commands(store)) == MAX_CHAIN + 1


def test_rule_gives_no_more_commands_than_its_device_may_have_open(opened, monkeypatch):
    monkeypatch.setattr(command_rows, "MAX_OPEN_A_DEVICE", 2)
    store = opened(rule(every=True))
    take(store, *map(hot, range(5)))
    assert [each.device for each in commands(store)] == ["fan-1", "fan-1"]


def test_rule_that_the_settings_no_longer_have_leaves_nothing(opened):
    store = opened(rule(last={"p": "press-1"}))
    take(store, hot(1))
    store.connection.close()
    store = opened(rule("other"))
    take(store, hot(2))
    kept = [key for (key,) in store.connection.execute("SELECT key FROM kept WHERE key GLOB 'rules/*'")]
    assert kept == [f"{STATE_KEY}other"]


def test_state_of_another_version_begins_anew(opened):
    store = opened(rule())
    with store.transaction():
        keep_value(store.connection, f"{STATE_KEY}hot", b"?")
    store.connection.close()
    store = opened(rule())
    take(store, hot(1))
    assert len(commands(store)) == 1


def test_dead_letter_and_reply_cause_no_action(opened):
    store = opened(rule(when="event.device != ''", every=True))
    take(store, event(type="dead", adapter="mqtt"), event(type="reply", adapter="fogline", lane=Lane.REPLY))
    assert commands(store) == []


def test_outcomes_are_counted_by_rule_and_the_last_error_is_in_the_status(opened, tmp_path):
    store = opened(rule(burst=1, per_minute=0.001), rule("none", when="event.value.x > 1"))
    with store.transaction():
        store.connection.execute("INSERT OR REPLACE INTO meta VALUES ('gateway', 'acme/gw-1')")
    take(store, hot(1), cold(2), hot(3), hot(4))
    with store.transaction():
        pass
    status = read_status(tmp_path)
    assert status["rules"] == {"hot": {"fired": 1, "rate": 2}, "none": {"error": 4}}
    assert status["rule_problems"] == {"none": "there is no event.value.x"}


def test_event_that_a_rule_keeps_back_acts_once(opened):
    means = ReduceTable(name="means", fields=["/t"], window_s=60)
    store = open_with_rules(opened, reduce=[means], react=[rule(every=True)])
    assert take(store, hot(1), hot(2), hot(2), cold(3)) == [
        Receipt.FILTERED,
        Receipt.FILTERED,
        Receipt.DUPLICATE,
        Receipt.FILTERED,
    ]
    assert len(commands(store)) == 2
    assert stored(store, Lane.TELEMETRY) == []


def test_event_without_an_id_that_a_rule_keeps_back_acts(opened):
    means = ReduceTable(name="means", fields=["/t"], window_s=60)
    store = open_with_rules(opened, reduce=[means], react=[rule(every=True)])
    take(store, event(value={"t": 27}), event(value={"t": 27}))
    assert len({each.id for each in commands(store)}) == 2


@pytest.mark.parametrize(("duplicates", "acted"), [("drop", 1), ("mark", 1), ("none", 1)])
def test_event_that_its_identity_marks_as_the_same_commands_once(opened, duplicates, acted):
    same = IdentityTable(name="same", fields=["/n"], duplicates=duplicates)
    store = open_with_rules(opened, identity=[same], react=[rule(every=True)])
    take(store, *[event(value={"t": 27, "n": 1})] * 3)
    assert len(commands(store)) == acted


def test_message_of_a_rule_is_noted_with_its_event_and_handed_over_after_the_commit(opened):
    store = opened(
        rule(then=[TOPIC, ActionTable(topic="rule/fan", json={"on": True}), ActionTable(topic="rule/say", text="hot")])
    )
    with store.transaction():
        take_within(store, hot(1))
        assert store.messages == []
    store.ingest.committed()
    (cause,) = stored(store, Lane.TELEMETRY)
    assert [(each.note.topic, each.data, each.content_type) for each in store.messages] == [
        ("rule/hot", cause.data, "application/json"),
        ("rule/fan", b'{"on":true}', "application/json"),
        ("rule/say", b"hot", "text/plain"),
    ]
    assert {(each.note.rule, each.note.event, each.device) for each in store.messages} == {("hot", cause.id, "press-1")}
    assert unpublished(store.connection) == {each.key: each.note for each in store.messages}


def test_message_of_a_transaction_that_is_rolled_back_is_neither_noted_nor_handed_over(opened):
    store = opened(rule(then=[TOPIC]))
    roll_back(store, lambda: take_within(store, hot(1)))
    take(store, cold(2))
    assert (store.messages, unpublished(store.connection)) == ([], {})


def test_rule_gives_no_message_while_too_many_are_unpublished(opened, monkeypatch):
    monkeypatch.setattr(message_rows, "MAX_UNPUBLISHED", 3)
    store = opened(rule(every=True, then=[TOPIC, TOPIC]))
    take(store, hot(1), hot(2))
    assert len(unpublished(store.connection)) == 2
    assert store.streams.of_lane(Lane.TELEMETRY).counts.rules == {"hot": {"fired": 1, "busy": 1}}
    with store.transaction():
        for each in store.messages:
            keep_value(store.connection, each.key, None)
    take(store, hot(3))
    assert len(unpublished(store.connection)) == 2


def test_message_has_no_private_field_of_its_event(opened):
    private = PrivateTable(name="home", drop=["/name"])
    store = open_with_rules(opened, private=[private], react=[rule(then=[TOPIC])])
    take(store, event(value={"t": 27, "name": "Ada"}))
    (message,) = store.messages
    assert msgspec.json.decode(message.data) == {"t": 27}
