"""Events that rules kept back, and `keep_days` keeps: bounded, read beside the gateway, and never at the cost of the outbox."""

import json
import sqlite3

import pytest

from edge.outbox.stores import open_store, roll_back, take
from fogline.events.event import Lane, Receipt
from fogline_edge import cli
from fogline_edge.history.history_file import NAME, HistoryFile, KeptEvent, history_state, read_history
from fogline_edge.machine.boot import moment
from fogline_edge.outbox.writer.ingest import Waiting
from fogline_edge.rule_settings import ReduceTable, RuleSettings
from fogline_lab.clock import RIGHT_NS, FakeClock
from fogline_lab.events import make_arrival, make_noise

FAR_MS = 10**15
RULES = RuleSettings(reduce=[ReduceTable(name="same", on_change=True, keep_days=2)])
SETTINGS = """
tenant = "acme"
gateway = "gw-1"
data = "."
uplink.bridge = "127.0.0.1:5671"
mqtt.port = 0
[[rules.reduce]]
name = "same"
on_change = true
"""


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def store(tmp_path, clock):
    return open_store(tmp_path / "outbox.db", clock=clock, rules=RULES)


def kept(folder, device="lamp-1", since_ms=0, until_ms=FAR_MS):
    return [json.loads(each.body) for each in read_history(folder, device, since_ms, until_ms, 1000)]


def test_event_that_a_rule_keeps_back_is_kept_with_its_time_and_rule(store, tmp_path):
    noise = make_arrival(data=b"\xff", content_type="application/octet-stream", channel="raw", time_ns=RIGHT_NS - 10**9)
    take(store, make_arrival(), make_arrival(), noise, noise)
    first, second = kept(tmp_path)
    assert first == {
        "time": "2026-09-21T14:13:19.000000Z",
        "device": "lamp-1",
        "channel": "raw",
        "type": "telemetry",
        "rule": "same",
        "datacontenttype": "application/octet-stream",
        "data_base64": "/w==",
    }
    assert (second["time"], second["data"]) == ("2026-09-21T14:13:20.000000Z", {"n": 1})


def test_history_is_of_one_device_and_a_span_of_time(store, tmp_path, clock):
    for device in ("a", "b"):
        take(store, *(make_arrival(device=device) for _ in range(2)))
        clock.go_on(10)
    begin_ms = RIGHT_NS // 10**6
    assert len(kept(tmp_path, "a")) == len(kept(tmp_path, "b", begin_ms + 10_000)) == 1
    assert kept(tmp_path, "b", 0, begin_ms + 10_000) == kept(tmp_path, "c") == []


def test_kept_events_are_deleted_after_their_days(store, tmp_path, clock):
    take(store, make_arrival(), make_arrival())
    clock.go_on(2 * 86_400 - 60)
    take(store, *(make_arrival() for _ in range(100)))
    assert len(kept(tmp_path)) == 101
    clock.go_on(61)
    take(store, make_arrival())
    assert len(kept(tmp_path)) == 101
    clock.go_on(2 * 86_400)
    take(store, make_arrival())
    assert len(kept(tmp_path)) == 1


def test_oldest_events_of_a_full_history_are_deleted_and_counted(tmp_path):
    history = HistoryFile(tmp_path, 1_000_000)
    bodies = [make_noise(1000, seed) for seed in range(200)]
    for first in range(0, 4000, 100):
        history.add([KeptEvent("d", first + n, 10**9, bodies[n]) for n in range(100)], 0)
    state = history_state(tmp_path)
    assert state["bytes"] <= 1_000_000
    assert state["forgotten"] > 2500
    assert state["events"] + state["forgotten"] == 4000
    assert read_history(tmp_path, "d", 0, FAR_MS, 1)[0].at_ms == state["forgotten"]
    history.close()


def test_failing_history_costs_no_acknowledgement(store, tmp_path):
    take(store, make_arrival())
    with sqlite3.connect(tmp_path / NAME) as other:
        other.execute("DROP TABLE event")
    assert take(store, make_arrival()) == [Receipt.FILTERED]
    assert store.streams.of_lane(Lane.TELEMETRY).counts.rules == {"same": {"reduced": 1}}


def test_damaged_history_begins_anew(tmp_path):
    (tmp_path / NAME).write_bytes(b"no database" * 1000)
    history = HistoryFile(tmp_path, 1_000_000)
    history.add([KeptEvent("d", 1, 10**9, b"{}")], 0)
    assert history_state(tmp_path)["events"] == 1
    history.close()


def test_events_of_a_transaction_without_room_are_not_kept(store, tmp_path):
    take(store, make_arrival())
    waiting = Waiting(make_arrival(), moment(store.clock), lambda _: None)
    roll_back(store, lambda: store.ingest.store([waiting], store.age.ms))
    take(store, make_arrival(2))
    assert kept(tmp_path) == []


def test_gateway_whose_rules_keep_nothing_has_no_history(tmp_path):
    open_store(tmp_path / "outbox.db", rules=RuleSettings(reduce=[ReduceTable(name="same", on_change=True)]))
    assert not (tmp_path / NAME).exists()
    assert history_state(tmp_path) is None


def test_command_shows_the_kept_events_of_a_running_gateway(store, tmp_path, capsys):
    config = tmp_path / "edge.toml"
    config.write_text(SETTINGS + "keep_days = 2\n")
    take(store, *(make_arrival(channel="hall") for _ in range(4)))
    assert cli.main(["history", "lamp-1", "--config", str(config), "--limit", "2", "--until", "2030-01-01"]) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[1:] == ['2026-09-21T14:13:20Z  hall     same  {"n": 1}'] * 2
    assert "there are more" in printed.err
    assert cli.main(["history", "lamp-1", "--config", str(config), "--json", "--until", "2030-01-01"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (len(found["events"]), found["more"], found["history"]["forgotten"]) == (3, False, 0)


def test_command_says_that_no_rule_keeps_events(tmp_path, capsys):
    config = tmp_path / "edge.toml"
    config.write_text(SETTINGS)
    assert cli.main(["history", "lamp-1", "--config", str(config)]) == 2
    assert "has keep_days" in capsys.readouterr().err


def test_trial_of_rules_leaves_the_history_of_the_gateway_alone(tmp_path):
    config, events = tmp_path / "edge.toml", tmp_path / "events.jsonl"
    config.write_text(SETTINGS + "keep_days = 2\n")
    events.write_text('{"topic": "telemetry", "device": "lamp-1", "body": "1"}\n' * 3)
    assert cli.main(["rules", "test", "--config", str(config), "--events", str(events)]) == 0
    assert not (tmp_path / NAME).exists()
