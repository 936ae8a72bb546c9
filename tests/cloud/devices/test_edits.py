"""Changes of a device's record: what `set` merges, and what it refuses."""

import json

import pytest

from fogline.errors import Poison
from fogline_cloud.devices.edits import FORGET, SET, DeviceEdit, apply_edit, request_of
from fogline_cloud.devices.record import DeviceRecord, decode_device, encode_device

SWITCH = {"switch": {"type": "object", "required": ["on"], "properties": {"on": {"type": "boolean"}}}}


def edit(action=SET, **body) -> DeviceEdit:
    return DeviceEdit("lamp-1", action, "alice", json.dumps(body).encode())


def changed(current: DeviceRecord | None = None, **body) -> DeviceRecord:
    record = apply_edit(edit(**body), current, 1000)
    assert record is not None
    return record


def test_set_merges_tags_and_leaves_other_fields():
    first = changed(type="lamp", tags={"site": "berlin", "floor": "2"}, commands=SWITCH)
    second = changed(first, tags={"floor": None, "room": "12"})
    assert (second.version, second.type, second.tags) == (2, "lamp", {"room": "12", "site": "berlin"})
    assert json.loads(second.commands) == SWITCH
    assert changed(second, type=None, commands=None, tags=None) == DeviceRecord(version=3, changed_ms=1000, changed_by="alice")


def test_a_change_that_changes_nothing_keeps_the_version():
    first = changed(type="lamp")
    assert apply_edit(edit(type="lamp"), first, 2000) is first


def test_a_record_on_kafka_is_read_as_it_was_written():
    record = changed(type="lamp", tags={"site": "berlin"}, commands=SWITCH)
    assert decode_device(encode_device(record)) == record
    assert json.loads(encode_device(record))["commands"] == SWITCH


def test_forget_leaves_nothing():
    assert apply_edit(edit(FORGET), changed(type="lamp"), 1000) is None


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ({"colour": "red"}, "colour"),
        ({"type": "a lamp"}, "type 'a lamp'"),
        ({"tags": {"site": "a b"}}, "tag site"),
        ({"tags": {"type": "x"}}, "tag type"),
        ({"tags": {f"t{n}": "1" for n in range(33)}}, "tags"),
        ({"commands": {"a b": {}}}, "'a b'"),
        ({"commands": {"switch": {"type": "lamp"}}}, "commands.switch"),
        ({"commands": {"switch": "x"}}, "commands.switch"),
        ({"commands": {"switch": {"properties": {"on": {"$ref": "http://127.0.0.1/x"}}}}}, "$ref"),
        ({"commands": {"switch": {"properties": {"on": {"pattern": "(a+)+$"}}}}}, "pattern"),
        ({"commands": {"switch": {"properties": {"on": {"uniqueItems": True}}}}}, "uniqueItems"),
        ({"commands": {"switch": {"description": "x" * 40_000}}}, "32768 bytes"),
        ({"commands": {f"c{n}": {} for n in range(65)}}, "commands"),
    ],
    ids=str,
)
def test_a_wrong_field_is_refused_by_name(body, names):
    with pytest.raises(Poison, match=names.replace("$", r"\$")):
        apply_edit(edit(**body), None, 1000)


def test_an_unknown_action_is_refused():
    with pytest.raises(Poison, match="'paint' is not an action"):
        apply_edit(edit("paint"), None, 1000)


def test_properties_may_have_the_names_of_keywords():
    schema = {"properties": {"pattern": {"type": "string"}, "uniqueItems": {"type": "boolean"}}}
    assert json.loads(changed(commands={"draw": schema}).commands) == {"draw": schema}


def test_messages_are_copies_only_if_all_of_their_ids_agree():
    long = "string:" + "k" * 250
    ids = [("op-1", long + "1"), ("op-1", long + "2"), ("op-1", "string:1"), ("op-2", "string:1"), ("", "op-1/string:1")]
    requests = [request_of(*each) for each in ids]
    assert len(set(requests)) == len(ids)
    assert requests == [request_of(*each) for each in ids]
    assert {len(each) for each in requests} == {32}
