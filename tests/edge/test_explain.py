"""`fogline-edge explain` shows what the rules do with an event, and changes nothing."""

import asyncio
import io
import json
import sys
from pathlib import Path

import cbor2
import pytest

from fogline_edge.cli import main
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.settings import load
from fogline_lab.credentials.mosquitto_passwords import password_file
from fogline_lab.events import make_arrival
from fogline_lab.gateway.outbox_use import bodies, put

SETTINGS = """\
tenant = "acme"
gateway = "gw-1"
data = "data"
[mqtt]
port = 0
[[rules.identity]]
name = "press"
channel = "plant/+/state"
fields = ["/serial", "/n"]
[[rules.identity]]
name = "timed"
device = "meter-*"
time = true
"""
KEY = "the key is /serial = 'p-7', /n = 4: a second event with this key and content, at this gateway, is not stored again"


@pytest.fixture
def explain(tmp_path: Path, monkeypatch, capsys):
    """Run the command, and return its exit status and what it prints on stdout and stderr."""
    (tmp_path / "edge.toml").write_text(SETTINGS)

    def run(*options: str, data: bytes = b'{"serial": "p-7", "n": 4}') -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        status = main(["explain", "--config", str(tmp_path / "edge.toml"), *options])
        return (status, *capsys.readouterr())

    return run


PRESS = ("--device", "press-7", "--channel", "plant/7/state")


def test_steps_of_a_payload_from_the_standard_input(explain):
    head = "device press-7, channel plant/7/state: application/json, 25 bytes\n"
    assert explain(*PRESS) == (0, f"{head}1. identity, rule press: {KEY}\n", "")
    assert explain(*PRESS[:2], "--channel", "other")[1].endswith("no rule applies: the event is stored as it comes\n")


def test_steps_of_a_file_as_json(explain, tmp_path):
    (tmp_path / "reading.cbor").write_bytes(cbor2.dumps({"serial": "p-7", "n": 4}))
    status, out, _ = explain(*PRESS, "--json", "--content-type", "application/cbor", str(tmp_path / "reading.cbor"))
    found = json.loads(out)
    assert (status, found["bytes"], found["content_type"]) == (0, 15, "application/cbor")
    assert found["steps"] == [{"kind": "identity", "rule": "press", "effect": KEY}]


def test_no_rule_reads_a_large_body_and_one_with_private_fields_is_refused(explain, tmp_path):
    body = b'{"serial": "p-7", "n": 4, "more": "%s"}' % (b"x" * 300_000)
    assert "no rule reads a body of more than 262,144 bytes: the event is stored" in explain(*PRESS, data=body)[1]
    with (tmp_path / "edge.toml").open("a") as file:
        file.write('[[rules.private]]\nname = "people"\ndrop = ["/serial"]\n')
    said = explain(*PRESS, data=body)[1]
    assert "private, rule people: the gateway refuses a large body" in said
    assert "HTTP 413, MQTT 0x83, CoAP 4.13" in said


def test_time_of_the_device_is_an_option(explain):
    meter = ("--device", "meter-1", "--channel", "air")
    assert "rule timed: the event lacks the device's time" in explain(*meter)[1]
    assert "the key is the device's time = 2026-11-28T11:00:00" in explain(*meter, "--time", "2026-11-28T12:00:00+01:00")[1]


async def test_steps_of_an_event_of_the_outbox(explain, tmp_path):
    outbox = Outbox.open(load(tmp_path / "edge.toml"))
    await put(outbox, make_arrival(device="press-7", channel="plant/7/state", data=b'{"serial": "p-7", "n": 4}'))
    (stream,) = await outbox.streams.pending()
    (event,) = await bodies(outbox, stream.stream)
    try:  # the gateway runs
        status, out, _ = await asyncio.to_thread(explain, "--event", event.id)
        assert (status, KEY in out) == (0, True)
        assert "no event of the outbox has the id other" in (await asyncio.to_thread(explain, "--event", "other"))[2]
    finally:
        await outbox.close()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "expected --device and --channel, or --event"),
        ((*PRESS, "absent.json"), "the payload cannot be read"),
        ((*PRESS, "--time", "yesterday"), "--time yesterday: expected RFC 3339"),
        ((*PRESS, "--content-type", "json"), "json"),
        (("--device", "\n", "--channel", "a"), "--device"),
        (("--event", "X"), "there is no outbox"),
    ],
)
def test_wrong_option_is_refused_in_one_line(explain, options, said):
    status, out, err = explain(*options)
    assert (status, out, said in err, err.count("\n")) == (2, "", True, 1)


REACT = """
[[rules.react]]
name = "hot"
when = "event.value.t > 26.0"
then = [{ command = "switch", device = "fan-1" }, { alarm = "it is hot" }, { topic = "rule/hot" }]
[[rules.react]]
name = "noisy"
every = true
when = "event.value.t > 26.0"
then = [{ command = "beep" }]
[[rules.react]]
name = "both"
when = "last.east.value.t > event.value.t"
then = [{ alarm = "east is hotter" }]
[rules.react.last]
east = { device = "hall-east" }
"""


@pytest.mark.parametrize(
    ("data", "hot", "noisy"),
    [
        (
            b'{"t": 27}',
            (
                "the condition event.value.t > 26.0 holds; if it did not hold for the device before: "
                "command switch to fan-1, alarm 'it is hot', message on rule/hot"
            ),
            "the condition event.value.t > 26.0 holds; on each such event: command beep to hall-west",
        ),
        (b'{"t": 20}', *["the condition event.value.t > 26.0 does not hold: the rule does nothing"] * 2),
        (
            b'{"p": 1}',
            *["the condition event.value.t > 26.0 has no value, and the rule does nothing: there is no event.value.t"] * 2,
        ),
    ],
)
def test_rules_that_act_say_what_they_do_with_an_event(explain, tmp_path, data, hot, noisy):
    subscribers = 'port = 0\nusers = "users"\n[mqtt.subscribers]\nviewer = ["rule/#"]'
    password_file(tmp_path, viewer="v")
    (tmp_path / "edge.toml").write_text(SETTINGS.replace("port = 0", subscribers) + REACT)
    status, out, _ = explain("--device", "hall-west", "--channel", "hall", "--json", data=data)
    decides = "last values or the time of day decide if the condition last.east.value.t > event.value.t holds"
    both = f"{decides}: then alarm 'east is hotter'"
    assert (status, [tuple(each.values()) for each in json.loads(out)["steps"]]) == (
        0,
        [("react", "hot", hot), ("react", "noisy", noisy), ("react", "both", both)],
    )
