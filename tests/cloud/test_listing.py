"""The question of a list, in the properties of its link."""

import pytest

from fogline.errors import Poison
from fogline_cloud.listing import CommandQuery, DeviceQuery, properties_of, read_command_query, read_device_query


@pytest.mark.parametrize("query", [DeviceQuery(), DeviceQuery(where="type=lamp", limit=3)], ids=str)
def test_a_question_for_devices_is_read_as_it_was_asked(query):
    assert read_device_query(properties_of(query)) == query


@pytest.mark.parametrize(
    "query", [CommandQuery(), CommandQuery(state="EXPIRED", id="5f0c", since_ms=17, limit=3), CommandQuery(limit=1000)], ids=str
)
def test_a_question_for_commands_is_read_as_it_was_asked(query):
    assert read_command_query(properties_of(query)) == query


@pytest.mark.parametrize(
    ("read", "properties", "named"),
    [
        (read_device_query, {"state": "EXPIRED"}, "state"),
        (read_device_query, {"where": 1}, "where"),
        (read_device_query, {"where": "a" * 2049}, "where"),
        (read_device_query, {"limit": True}, "limit"),
        (read_device_query, {"limit": "5"}, "limit"),
        (read_device_query, {"limit": -1}, "limit"),
        (read_command_query, {"where": "type=lamp"}, "where"),
        (read_command_query, {"id": "5f0c*"}, "id"),
        (read_command_query, {"since_ms": -1}, "since_ms"),
        (read_command_query, {"since_ms": 1.5}, "since_ms"),
        (read_command_query, {"state": "expired"}, "state"),
        (read_command_query, {"limit": 1001}, "limit"),
        (read_command_query, {"\x1b[2J": 1}, "x1b"),
    ],
)
def test_unreadable_query_is_refused_with_its_name(read, properties, named):
    with pytest.raises(Poison, match=named) as refused:
        read(properties)
    assert refused.value.reason == "bad-query"
    assert str(refused.value).isprintable()
