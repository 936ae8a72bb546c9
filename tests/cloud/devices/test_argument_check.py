"""Commands that a device does not take are refused before they travel, and the refusal names the argument."""

import contextlib
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fogline.amqp.outcome import INVALID_FIELD, NOT_IMPLEMENTED
from fogline.commands.history import HISTORY
from fogline.errors import Poison
from fogline_cloud.devices.argument_check import check_schema, refusal_of
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


def test_command_that_the_gateway_executes_itself_needs_no_place_in_the_list_of_the_device():
    assert refused(HISTORY, b"{}") is None


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


def test_commands_of_a_device_come_from_its_type_unless_it_has_its_own():
    types = {"lamp": commands_text({"switch": SWITCH})}
    assert refusal_of(device("lamp"), types, "paint", None, b"").condition == NOT_IMPLEMENTED
    assert refusal_of(device("lamp", paint={}), types, "paint", None, b"") is None


def test_a_schema_that_never_ends_refuses_its_command():
    assert "cannot be applied" in refused("loop", b"{}", where=device(loop=RECURSIVE))[1]


def test_a_reference_elsewhere_is_never_loaded():
    remote = json.loads('{"$ref": "http://127.0.0.1:9/schema"}')
    assert "cannot be applied" in refused("x", b"{}", where=device(x=remote))[1]


HUGE = b"1" * 401
"""A whole number that no float can hold."""
UNFORESEEN = {
    "a float divides a whole number that no float can hold": ({"multipleOf": 0.5}, HUGE),
    "a reference to an element of a list by a word": ({"allOf": [{}], "$ref": "#/allOf/x"}, b"1"),
    "a reference to a number": ({"minimum": 1, "$ref": "#/minimum"}, b"1"),
    "a reference to nothing": ({"$ref": "#/$defs/a"}, b"1"),
    "a reference that is no pointer": ({"$ref": "#%"}, b"1"),
    "a divisor that makes a quotient infinite": ({"multipleOf": 1e-308}, b"1e308"),
}


@pytest.mark.fault("X11")
@pytest.mark.parametrize(("schema", "argument"), UNFORESEEN.values(), ids=UNFORESEEN)
def test_a_pair_of_schema_and_argument_at_which_the_check_fails_refuses_the_command(schema, argument):
    condition, why = refused("level", argument, where=device(level=schema))
    assert condition == INVALID_FIELD
    assert "lamp-1" in why
    assert "\n" not in why


def test_commands_that_are_no_schemas_refuse_the_command():
    broken = DeviceEntry(name="lamp-1", record=DeviceRecord(version=1, changed_ms=1, changed_by="a", commands="[1"))
    assert refused("switch", b"1", where=broken)[0] == INVALID_FIELD


_numbers = st.one_of(
    st.sampled_from([0, -1, 0.5, 1e-308, 1e308, 2**53 + 1, 2**64, 10**400, -(10**400)]),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
)
_texts = st.sampled_from(
    ["", "a", "on", "\0", "\x1b[31m", "\U0001f600", "#", "#/", "#/$defs/a", "#/allOf/a", "#/minimum", "#/%"]
)
_values = st.recursive(
    st.one_of(_numbers, st.none(), st.booleans(), _texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_texts, inner, max_size=3)),
    max_leaves=4,
)
_schemas = st.deferred(lambda: st.lists(st.sampled_from(sorted(_keywords)), max_size=3, unique=True).flatmap(_schema))
_keywords = {
    **dict.fromkeys(["multipleOf", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum"], _numbers),
    **dict.fromkeys(["maxLength", "minItems", "maxContains", "minContains", "minProperties"], _numbers),
    **dict.fromkeys(["not", "if", "then", "else", "contains", "items", "propertyNames"], _schemas),
    **dict.fromkeys(["unevaluatedItems", "unevaluatedProperties", "additionalProperties"], _schemas),
    **dict.fromkeys(["allOf", "anyOf", "oneOf", "prefixItems"], st.lists(_schemas, min_size=1, max_size=2)),
    **dict.fromkeys(["$ref", "$dynamicRef", "$id", "$anchor", "$schema", "format"], _texts),
    **dict.fromkeys(["properties", "$defs", "dependentSchemas"], st.dictionaries(_texts, _schemas, max_size=2)),
    "type": st.sampled_from(["object", "array", "integer", "number", "string", ["null", "boolean"]]),
    "required": st.lists(_texts, max_size=2),
    "const": _values,
    "enum": st.lists(_values, max_size=2),
}


def _schema(names: list[str]) -> st.SearchStrategy:
    return st.fixed_dictionaries({name: _keywords[name] for name in names})


@pytest.mark.fault("X11")
@settings(max_examples=500, suppress_health_check=list(HealthCheck))
@given(_schemas, _values)
def test_of_any_schema_and_any_argument_the_command_passes_or_is_refused_in_one_line(schema, argument):
    with contextlib.suppress(Poison):  # the registry refuses most of what cannot be checked: with a reason as well
        check_schema("level", schema)
    found = refused("level", json.dumps(argument).encode(), where=device(level=schema))
    assert found is None or (found[0] == INVALID_FIELD and "lamp-1" in found[1] and found[1].isprintable())
