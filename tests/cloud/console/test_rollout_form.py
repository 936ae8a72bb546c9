"""The form of a roll-out: its order of devices, its numbers, and the words for what is wrong."""

import base64

import pytest
from msgspec.structs import replace

from fogline_cloud.api.problems import Problem
from fogline_cloud.console.rollouts.rollout_form import MAX_FIRST, digest_of, read_form

FIELDS = {"where": "type=lamp", "name": "switch", "data": ' {"on": true} ', "rate_s": "2.5", "stop_percent": "12.5"}


def test_first_devices_come_as_they_are_named_and_the_others_by_name():
    form = read_form({**FIELDS, "first": " lamp-7\r\n\nlamp-2\nlamp-7\n"})
    assert form.in_order(["lamp-1", "lamp-2", "lamp-10", "lamp-7"]) == ["lamp-7", "lamp-2", "lamp-1", "lamp-10"]
    with pytest.raises(Problem, match="'lamp-7' is not among the devices"):
        form.in_order(["lamp-2"])
    many = replace(form, first="\n".join(map(str, range(MAX_FIRST + 1))))
    with pytest.raises(Problem, match="at most"):
        many.in_order(map(str, range(MAX_FIRST + 1)))


def test_form_is_a_group_of_its_user_and_the_same_one_however_often_it_is_sent():
    form = read_form(FIELDS)
    command = form.command("t", ["a", "b"], "client t/alice (password)", 7)
    assert read_form({**FIELDS, "id": form.id}).command("t", ["a", "b"], "client t/alice (password)", 7) == command
    assert (command.rate_s, command.stop_share, command.durable, command.ttl_s) == (2.5, 0.125, True, 300.0)
    assert base64.b64decode(command.data_base64) == b'{"on":true}'
    assert read_form({**FIELDS, "id": "../../etc"}).id != "../../etc"
    assert read_form({**FIELDS, "stop_percent": ""}).command("t", ["a"], "x", 7).stop_share is None
    assert digest_of(["a", "b"]) != digest_of(["b", "a"])


@pytest.mark.parametrize(
    ("field", "text", "why"),
    [
        ("name", "", "Command"),
        ("data", "{", "is not JSON"),
        ("rate_s", "0", "Rate: expected more than 0"),
        ("rate_s", "1e9", "Rate"),
        ("rate_s", "fast", "'?fast'? is not a number"),
        ("rate_s", "nan", "Rate"),
        ("stop_percent", "101", "Stop at failures"),
        ("ttl_s", "0.5", "Time to live: expected at least 1"),
        ("where", "lamp", "Devices: .*where 'lamp': expected name=value"),
    ],
)
def test_field_that_is_wrong_is_named(field, text, why):
    form = read_form({**FIELDS, field: text})
    read = form.filter if field == "where" else lambda: form.command("t", ["a"], "alice", 7)
    with pytest.raises(Problem, match=why) as problem:
        read()
    assert problem.value.status == 400
