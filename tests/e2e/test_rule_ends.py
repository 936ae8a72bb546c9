"""The end of a rule's command is an event on lane `reply`, with or without an answer of the device."""

from msgspec.structs import replace

from fogline.commands.command import CommandState
from fogline.events.event import Lane, Receipt
from fogline_edge.rule_settings import ActionTable, ReactTable, RuleSettings
from fogline_lab.events import make_arrival
from fogline_lab.gateway.connected_gateway import connected_gateway
from fogline_lab.gateway.outbox_use import put
from fogline_lab.line.line import serving
from fogline_lab.waiting import eventually

FAN = ReactTable(name="fan", when="event.value.t > 30.0", then=[ActionTable(command="on", device="absent", ttl_s=2)])


async def test_a_rules_command_that_no_device_takes_ends_in_a_record(line):
    rules = RuleSettings(react=[FAN])
    async with serving(line), connected_gateway(replace(line.settings(), rules=rules)) as (outbox, _):
        assert await put(outbox, make_arrival(data=b'{"t": 31}')) is Receipt.STORED
        await eventually(lambda: line.records(Lane.REPLY), "its end is no record")
    (record,) = line.records(Lane.REPLY)
    headers = dict(record.headers)
    assert headers["ce_commandstate"] == CommandState.EXPIRED.value.encode()
    assert headers["correlation-id"].startswith(b"rule/fan/")
