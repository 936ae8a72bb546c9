"""The contract of the topics of readings: records follow it, and it changes so that programs for the last version still work.

`tests/contracts/golden/canonical.schema.json` is the schema of the last version. A release replaces it by the present one.
"""

import copy
import json
from pathlib import Path

import pyarrow as pa
import pytest
from jsonschema import Draft202012Validator

from fogline_cloud.canonical_settings import CanonicalSettings
from fogline_cloud.flows.tables.schema import STORED
from fogline_cloud.flows.worker import derive

HERE = Path(__file__).parent
NOW = json.loads((HERE.parent.parent / "docs/reference/canonical.schema.json").read_text())
LAST = json.loads((HERE / "golden/canonical.schema.json").read_text())
_WORDS = {"description", "title", "$id"}


def broken(last, new, where=""):
    """Yield what a program for the schema `last` could not bear in a record of the schema `new`."""
    fixed = {key: value for key, value in last.items() if key not in {*_WORDS, "properties", "required", "items"}}
    for key, value in fixed.items():
        if new.get(key) != value:
            yield f"{where or 'the record'}: {key} was {value}, and is {new.get(key)}"
    for key in new.keys() - last.keys() - _WORDS:
        if key == "additionalProperties":
            yield f"{where}: {key}"
    for name, member in last.get("properties", {}).items():
        if name not in new.get("properties", {}):
            yield f"{where}/{name} is gone"
        else:
            yield from broken(member, new["properties"][name], f"{where}/{name}")
    for name in set(last.get("required", ())) - set(new.get("required", ())):
        yield f"{where}/{name} was always there, and may be missing"
    if "items" in last:
        yield from broken(last["items"], new.get("items", {}), f"{where}[]")


def records():
    """Records of events with readings of each kind, some with a part of the columns only, and of one that is split."""
    readings = [
        {"ordinal": 0, "metric": "temperature", "value": 21.5, "text": None, "unit": "Cel", "time": None},
        {"ordinal": 1, "metric": "state", "value": None, "text": "on", "unit": None, "time": 1_700_000_000_000_000},
        *(
            {"ordinal": n, "metric": "x" * 300, "value": 1e300, "text": None, "unit": None, "time": None}
            for n in range(2, 2000)
        ),
    ]
    columns = {name: [None] * 3 for name in STORED.names} | {
        "outcome": ["ok"] * 3,
        "source": ["/t/devices/d-1"] * 3,
        "id": ["A", "B", "C"],
        "device": ["d-1"] * 3,
        "recordedtime": [1_700_000_000_000_001] * 3,
        "readings": [readings[:1], readings[1:2], readings],
    }
    rows = pa.table([pa.array(columns[field.name], field.type) for field in STORED], schema=STORED)
    return [json.loads(each.value) for each in derive.canonical_records(rows, "t", CanonicalSettings())]


def closed(schema):
    """The schema without room for members that it does not name."""
    strict = copy.deepcopy(schema)
    strict["additionalProperties"] = strict["properties"]["readings"]["items"]["additionalProperties"] = False
    return strict


def test_the_schema_has_changed_compatibly():
    assert list(broken(LAST, NOW)) == []


def test_records_follow_the_schema_and_a_program_for_the_last_one_reads_them():
    made = records()
    assert len(made) > 3, "the long one is split"
    for each in made:
        Draft202012Validator(closed(NOW)).validate(each)
        Draft202012Validator(LAST).validate(each)
    members = {name for each in made for name in each} | {name for each in made for part in each["readings"] for name in part}
    assert members == {*NOW["properties"], *NOW["properties"]["readings"]["items"]["properties"]}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda new: new["properties"].pop("device"), "/device is gone"),
        (lambda new: new["required"].remove("id"), "/id was always there, and may be missing"),
        (lambda new: new["properties"]["device"].update(type="integer"), "/device: type was string, and is integer"),
        (lambda new: _reading(new)["properties"].pop("unit"), "/readings[]/unit is gone"),
        (
            lambda new: _reading(new)["properties"]["value"].update(type="string"),
            "/readings[]/value: type was number, and is string",
        ),
        (lambda new: _reading(new)["required"].remove("metric"), "/readings[]/metric was always there, and may be missing"),
    ],
)
def test_a_change_that_would_break_a_program_is_found(change, why):
    new = copy.deepcopy(LAST)
    change(new)
    assert list(broken(LAST, new)) == [why]


def test_a_member_may_be_added():
    new = copy.deepcopy(LAST)
    _reading(new)["properties"]["quality"] = {"type": "string"}
    assert list(broken(LAST, new)) == []


def _reading(schema):
    return schema["properties"]["readings"]["items"]
