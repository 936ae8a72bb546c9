"""Commands that a device does not take are refused before they travel, and the refusal names the argument."""

import json

import pytest

from fogline.amqp.outcome import INVALID_FIELD, NOT_IMPLEMENTED
from fogline_cloud.devices.argument_check import refusal_of
from fogline_cloud.devices.device_table import DeviceEntry
from fogline_cloud.devices.record import DeviceRecord, commands_text

SWITCH = {"type": "object", "required": ["on"], "properties": {"on": {"type": "boolean"}, "level": {"maximum": 100}}}
RECURSIVE = {"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}
JSON = "application/json"


def device(kind="", **commands) -> DeviceEntry:
    text = commands_text(commands) if commands else ""
    return DeviceEntry(name="lamp-1", record=DeviceRecord(version=1, changed_ms=1, changed_by="a", type=kind, commands=text))


def refused(
    name: str, data: bytes, content_type: str | None = JSON, where: DeviceEntry | None = None
) -> tuple[str, str] | None:
    outcome = refusal_of(where or device(switch=SWITCH, reset=True), {}, name, content_type, data)
    return (outcome.condition, outcome.description) if outcome is not None else None


def test_right_arguments_pass():
    assert refused("switch", b'{"on": true}') is None
    assert refused("reset", b"") is None
    assert refused("anything", b"\0", None, device()) is None


@pytest.mark.parametrize(
    ("data", "names"),
    [
        (b'{"on": "maybe"}', "argument on: 'maybe' is not of type 'boolean'"),
        (b'{"on": true, "level": 101}', "argument level: 101 is greater"),
        (b"{}", "arguments: 'on' is a required property"),
        (b"", "'on' is a required property"),
        (b"[1]", "is not of type 'object'"),
        (b"{", "not readable"),
        (b"[" * 20_000, "not readable"),
        (b" " * 40_000, "32768 bytes"),
        (b'{"on": "' + b"x" * 9000 + b'"}', "argument on"),
    ],
    ids=lambda value: ascii(value)[:20],
)
def test_a_wrong_argument_is_named(data, names):
    condition, why = refused("switch", data)
    assert condition == INVALID_FIELD
    assert names in why
    assert "lamp-1" in why
    assert len(why) < 400


def test_arguments_that_are_not_json_are_refused():
    assert "application/json" in refused("switch", b"on", "text/plain")[1]


def test_a_command_that_the_device_does_not_list_is_refused():
    assert refused("paint", b"") == (NOT_IMPLEMENTED, "device lamp-1 takes reset, switch, not 'paint'")


def test_the_type_says_what_a_device_takes_unless_the_device_does():
    types = {"lamp": commands_text({"switch": SWITCH})}
    assert refusal_of(device("lamp"), types, "paint", None, b"").condition == NOT_IMPLEMENTED
    assert refusal_of(device("lamp", paint={}), types, "paint", None, b"") is None


def test_a_schema_that_never_ends_refuses_its_command():
    assert "cannot be applied" in refused("loop", b"{}", where=device(loop=RECURSIVE))[1]


def test_a_reference_elsewhere_is_never_loaded():
    remote = json.loads('{"$ref": "http://127.0.0.1:9/schema"}')
    assert "cannot be applied" in refused("x", b"{}", where=device(x=remote))[1]
