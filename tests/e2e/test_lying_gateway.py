"""One gateway that lies about commands beside an honest one on the same shard: the honest one is served as ever."""

import asyncio

import pytest

from fogline.address import shard_of
from fogline.commands.command import CommandState
from fogline.events.event import CommandOutcome, Lane
from fogline.events.gap import GAP_CONTENT_TYPE
from fogline_cloud.audit.record import decode_audit
from fogline_cloud.commands.client.operator import Ask, Operator
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.kafka.committed_records import read_committed
from fogline_lab.amqp import within
from fogline_lab.device.command_device import OK, CommandDevice
from fogline_lab.line.line import gateway

HONEST, LIAR = [name for name in (f"gw-{n}" for n in range(100)) if shard_of(name, 2) == 0][:2]


async def lie(line, outbox, command_id: str, state: str = "SUCCEEDED", status: int = 200) -> None:
    """Have the gateway send a reply that it has no right to."""
    outcome = CommandOutcome(command=command_id, state=state, status=status, correlation="string:1")
    await line.put(outbox, 1, lane=Lane.REPLY, channel="command/switch", type="reply", outcome=outcome)


def refusals(line) -> list[str]:
    """Commands of which the audit says that a reply was refused."""
    audits = read_committed(KafkaClients(line.cloud.kafka), {(topics.audit(line.tenant), shard): None for shard in range(2)})
    told = [decode_audit(each.value) for each in audits]
    return sorted(each.command for each in told if each.decision == "REPLY REFUSED")


@pytest.mark.fault("S3")
async def test_gateway_with_forged_replies_ends_no_command_and_stops_no_other(line):
    """B1 and B2 at the bridge's border: unknown states, foreign and made-up commands, and wrong statuses."""
    async with (
        line.bridge() as bridge,
        gateway(line, HONEST) as (outbox, downlink),
        gateway(line, LIAR) as (lying, _),
        Operator("127.0.0.1", line.port, line.tenant) as operator,
    ):
        await line.put(outbox, 1)
        await line.drained(outbox)
        device = CommandDevice(downlink, answer=None)
        downlink.reachable("lamp-1", device)
        asked = asyncio.create_task(operator.request(Ask("lamp-1", "switch", ttl_s=60)))
        await within(device.came.wait(), "the command does not come")
        (real,) = device.ran
        for command_id, state, status in [
            (real, "SUCCEEDED", 200),
            (real, "PAUSED", 200),
            ("made-up", "SUCCEEDED", 200),
            ("made-up", "PAUSED", 10**12),
        ]:
            await lie(line, lying, command_id, state, status)
        await line.put(lying, 2)
        await line.drained(lying)
        assert not asked.done()
        downlink.answer("lamp-1", real, OK, lambda _: None)
        verdict = await within(asked, "its own device's answer does not end it")
        assert (verdict.state, verdict.data) == (CommandState.SUCCEEDED, OK.data)
        await line.put(outbox, 3)
        await line.drained(outbox)
        assert [shard.counters.retaken for shard in bridge.shards] == [0, 0]
    assert line.landed(Lane.TELEMETRY) == [1, 2, 3]
    kinds = [dict(each.headers)["content-type"] for each in line.records(Lane.REPLY)]
    assert kinds.count(GAP_CONTENT_TYPE.encode()) == 4
    assert refusals(line) == sorted([real, real, "made-up", "made-up"])
