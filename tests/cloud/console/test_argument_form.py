"""Forms from JSON Schemas, and the arguments that a form gives."""

import json

import pytest

from fogline_cloud.api.problems import Problem
from fogline_cloud.console.pages.argument_form import MAX_FIELDS, WHOLE, arguments_of, fields_of

SCHEMA = {
    "type": "object",
    "properties": {
        "on": {"type": "boolean"},
        "level": {"type": "integer", "minimum": 0, "maximum": 100, "title": "Level", "description": "in percent"},
        "factor": {"type": "number", "default": 0.5},
        "mode": {"enum": ["day", "night", 3]},
        "text": {"type": "string", "default": "hello"},
        "list": {"type": "array"},
    },
    "required": ["on", "text"],
}


def test_each_property_gets_the_field_that_fits_it():
    fields = {each.name: each for each in fields_of(SCHEMA)}
    assert {name: each.kind for name, each in fields.items()} == {
        "on": "choice",
        "level": "number",
        "factor": "number",
        "mode": "choice",
        "text": "text",
        "list": "json",
    }
    level = fields["level"]
    assert (level.label, level.about, level.step, level.least, level.most) == ("Level", "in percent", "1", "0", "100")
    assert [name for name, each in fields.items() if each.required] == ["on", "text"]
    assert fields["mode"].choices == (('"day"', "day"), ('"night"', "night"), ("3", "3"))
    assert (fields["text"].preset, fields["factor"].preset) == ("hello", "0.5")


def test_filled_form_gives_the_arguments_and_leaves_out_what_is_empty():
    fields = fields_of(SCHEMA)
    keys = {each.name: each.key for each in fields}
    form = {keys["on"]: "true", keys["level"]: " 30 ", keys["mode"]: '"night"', keys["text"]: "", keys["list"]: "[1, {}]"}
    assert json.loads(arguments_of(fields, form)) == {"on": True, "level": 30, "mode": "night", "text": "", "list": [1, {}]}


@pytest.mark.parametrize(("name", "text"), [("level", "much"), ("list", "[1"), ("on", "maybe"), ("factor", "NaN")])
def test_what_is_no_json_is_named_by_its_field(name, text):
    fields = fields_of(SCHEMA)
    (field,) = [each for each in fields if each.name == name]
    with pytest.raises(Problem, match=field.label) as problem:
        arguments_of(fields, {field.key: text})
    assert problem.value.status == 400


@pytest.mark.parametrize(
    "schema",
    [
        None,
        True,
        False,
        {},
        {"type": "array"},
        {"properties": []},
        {"properties": {}},
        {"properties": {str(number): {} for number in range(MAX_FIELDS + 1)}},
    ],
)
def test_other_schemas_get_one_field_of_json(schema):
    fields = fields_of(schema)
    assert [each.key for each in fields] == [WHOLE]
    assert arguments_of(fields, {WHOLE: ' {"a": [1]} '}) == b'{"a":[1]}'
    assert arguments_of(fields, {}) == b""


def test_odd_members_of_a_schema_do_no_harm():
    """The registry checks schemas by the metaschema; annotations may still be anything."""
    odd = {
        "properties": {"a": True, "b": {"title": 3, "description": [], "enum": [], "type": ["string", "null"], "minimum": "x"}}
    }
    fields = fields_of({**odd, "required": "a"})
    assert [(each.label, each.kind, each.least, each.required) for each in fields] == [
        ("a", "json", "", False),
        ("b", "json", "", False),
    ]
