"""`fogline-edge rules`: rules are checked and tried before they act."""

import json

import pytest
from msgspec.structs import replace

from edge.outbox.stores import open_store, take
from edge.rules.react_world import event
from fogline.events.event import Arrival, Event, Lane, parse_rfc3339
from fogline.events.large_body import CHUNK_CONTENT_TYPE, BodyChunk, BodyRef
from fogline_edge.cli import main
from fogline_edge.rule_trial.trial import arrival_of
from fogline_lab.clock import FakeClock
from fogline_lab.credentials.mosquitto_passwords import password_file
from fogline_lab.events import make_event

SETTINGS = """
tenant = "acme"
gateway = "gw-1"
data = "data"
[mqtt]
port = 0
[[rules.react]]
name = "fan-on"
device = "hall-*"
when = "last.east.value.t + last.west.value.t > 52.0 && time.hour >= 0"
then = [{ command = "switch", device = "fan-1", json = { on = true } }, { alarm = "hot" }]
[rules.react.last]
east = { device = "hall-east", max_age_s = 60 }
west = { device = "hall-west", max_age_s = 60 }
"""


def line(side, t, **keys):
    return json.dumps({"topic": "hall", "device": f"hall-{side}", "body": json.dumps({"t": t}), **keys})


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "edge.toml"
    path.write_text(SETTINGS)
    return path


@pytest.fixture
def rules(config, tmp_path, capsys):
    def run(command, *lines, more=()):
        given = []
        if lines:
            (tmp_path / "events.jsonl").write_text("\n".join(lines))
            given = ["--events", str(tmp_path / "events.jsonl")]
        status = main(["rules", command, "--config", str(config), *given, *more])
        return status, *capsys.readouterr()

    return run


def test_check_lists_the_rules(rules):
    status, out, _ = rules("check", more=["--json"])
    assert status == 0
    (listed,) = json.loads(out)
    assert (listed["kind"], listed["rule"], listed["events"]) == ("react", "fan-on", "device hall-*")
    assert "hall-*" in rules("check")[1]


def test_check_names_file_key_and_an_example_for_a_wrong_rule(rules, config):
    config.write_text(SETTINGS.replace("last.east.value.t +", "temperature +"))
    status, _, err = rules("check")
    assert status == 2
    assert "rules.react fan-on: when" in err
    assert "such as event.value.temperature > 26.0" in err


def test_trial_shows_what_would_happen_and_nothing_is_left(rules, tmp_path):
    status, out, _ = rules("test", line("east", 27), line("west", 26), line("east", 28), more=["--json"])
    assert status == 0
    found = json.loads(out)
    assert found["events"] == 3
    assert found["rules"] == {"fan-on": {"error": 1, "fired": 1}}
    first, second = found["steps"]
    assert (first["outcome"], first["effect"]) == ("error", "there is no last.west.value.t")
    assert (second["outcome"], second["event"]) == ("fired", f"{tmp_path / 'events.jsonl'}:2")
    assert second["effect"].startswith('command switch to fan-1 {"on":true}; alarm {"alarm":"hot","rule":"fan-on","event":"')
    assert not (tmp_path / "data").exists()


def test_expectation_that_is_not_met_fails_the_test(rules):
    met = [line("east", 27, expect={"fan-on": "error"}), line("west", 20, expect={"fan-on": "quiet"})]
    assert rules("test", *met)[0] == 0
    status, _, err = rules("test", *met, line("west", 21, expect={"fan-on": "fired"}))
    assert status == 1
    assert "events.jsonl:3: fan-on is quiet, expected fired" in err


def test_time_between_events_and_the_state_of_the_clock_count(rules):
    east = line("east", 27, recordedtime="2026-01-01T00:00:00Z")
    late = line("west", 27, recordedtime="2026-01-01T00:01:00Z", expect={"fan-on": "error"})
    early = line("west", 27, recordedtime="2026-01-01T00:00:59Z", expect={"fan-on": "fired"})
    unset = line("west", 27, clock_right=False, expect={"fan-on": "clock"})
    assert [rules("test", east, each)[0] for each in (late, early, unset)] == [0, 0, 0]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("{", ":1: "),
        ('{"topic": "a"}', "either as body (text) or as base64"),
        ('{"topic": "a", "base64": "?"}', "base64"),
        ('{"topic": "a", "body": "1", "expect": {"nope": "fired"}}', "there is no rule nope"),
        ('{"topic": "a", "body": "1", "recordedtime": "yesterday"}', "yesterday"),
    ],
)
def test_bad_line_of_events_is_named(rules, wrong, why):
    status, _, err = rules("test", wrong)
    assert status == 2
    assert why in err
    assert "events.jsonl:1" in err


def test_dry_run_takes_the_events_that_wait_in_the_outbox(rules, tmp_path):
    import time

    clock = FakeClock(wall_ns=time.time_ns() - 7200 * 10**9)
    (tmp_path / "data").mkdir()
    store = open_store(tmp_path / "data" / "outbox.db", clock=clock)
    take(store, event("hall-east", value={"t": 27}))
    clock.go_on(7190)
    take(store, event("hall-east", value={"t": 27}), event("hall-west", value={"t": 27}))
    status, out, _ = rules("dry-run", more=["--json"])
    assert (status, json.loads(out)["rules"], json.loads(out)["events"]) == (0, {"fan-on": {"error": 1, "fired": 1}}, 2)
    assert json.loads(rules("dry-run", more=["--json", "--since", "3h"])[1])["events"] == 3
    assert store.connection.execute("SELECT count(*) FROM command").fetchone() == (0,)


def test_dry_run_and_test_run_no_rule_on_a_large_body_or_its_chunks(rules, config, tmp_path):
    """The gateway does not either, whatever the bytes of a chunk are."""
    config.write_text(SETTINGS + '[[rules.private]]\nname = "people"\ndrop = ["/t"]\n')
    (tmp_path / "data").mkdir()
    store, one = open_store(tmp_path / "data" / "outbox.db"), event("hall-east", value={"t": 27})
    name = "0f" * 16
    chunk = replace(one, content_type=CHUNK_CONTENT_TYPE, lane=Lane.BULK, dataref=str(BodyChunk(name, 0)))
    whole = replace(one, data=b"", lane=Lane.BULK, dataref=str(BodyRef(name, 1, 300_000, "a" * 64)), body_digest=b"x" * 16)
    take(store, chunk, whole)
    found = json.loads(rules("dry-run", more=["--json", "--since", "9000d"])[1])
    assert (found["events"], found["rules"]) == (2, {})
    status, _, err = rules("test", line("east", 27, body="x" * 300_000))
    assert (status, "no rule reads a body of more than 262,144 bytes" in err) == (2, True)


def test_check_says_which_rules_refuse_large_bodies(rules, config):
    assert "262,144" not in rules("check")[1]
    config.write_text(SETTINGS + '[[rules.private]]\nname = "people"\ndrop = ["/t"]\n')
    assert "bodies of more than 262,144 bytes: refused for events of people" in rules("check")[1]


def test_dry_run_refuses_what_is_no_duration(rules, capsys):
    with pytest.raises(SystemExit):
        rules("dry-run", more=["--since", "soon"])
    assert "such as 1h" in capsys.readouterr().err


TO_TOPIC = SETTINGS.replace('{ alarm = "hot" }', '{ topic = "rule/fan", text = "on" }')


def test_trial_shows_messages_and_a_topic_that_nobody_may_read_is_refused(rules, config):
    config.write_text(TO_TOPIC)
    status, _, err = rules("check")
    assert status == 2
    assert (
        'then, action 2: no user of [mqtt.subscribers] may read topic rule/fan: add one, for example viewer = ["rule/fan"]'
        in err
    )
    reading = '[mqtt]\nport = 0\nusers = "users"\n[mqtt.subscribers]\nviewer = ["rule/#"]'
    config.write_text(TO_TOPIC.replace("[mqtt]\nport = 0", reading))
    password_file(config.parent, viewer="viewer")
    status, out, err = rules("test", line("east", 27), line("west", 26), more=["--json"])
    assert (status, err) == (0, "")
    assert json.loads(out)["steps"][1]["effect"] == 'command switch to fan-1 {"on":true}; message on rule/fan on'


def test_stored_event_is_tried_with_all_that_a_device_sent():
    """Names that both have are the same thing. The others of an `Arrival`: time, and what is not stored."""
    sent = {
        "lane": Lane.ALARM,
        "type": "t",
        "properties": "a=b",
        "dataref": "body:1",
        "content_type": "text/x",
        "adapter": "http",
    }
    stored = make_event(device="d", subject="c", data=b"x", time="2026-11-29T12:00:00.5Z", **sent)
    tried = arrival_of(stored)
    assert {name: getattr(tried, name) for name in set(Arrival.__struct_fields__) & set(Event.__struct_fields__)} == {
        **sent,
        "device": "d",
        "data": b"x",
    }
    assert (tried.channel, tried.time_ns) == ("c", parse_rfc3339("2026-11-29T12:00:00.5Z"))
