"""The registry of devices on a real broker: changes by the command line, takeovers, and commands that it refuses."""

import asyncio
import json

import pytest
from msgspec.structs import replace

from e2e.device_registry import SWITCH, edited, known, registry
from fogline.address import shard_of
from fogline.amqp.outcome import ACCEPTED, NOT_FOUND
from fogline.commands.command import CommandState
from fogline_cloud.audit.record import decode_audit
from fogline_cloud.commands.client.operator import Ask, Operator
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.kafka.committed_records import read_committed
from fogline_cloud.kafka.topics import audit, devices
from fogline_cloud.settings import DeviceSettings, Learn
from fogline_lab.amqp import within
from fogline_lab.device.command_device import CommandDevice
from fogline_lab.line.bridge_pair import BridgePair
from fogline_lab.line.line import commandable, serving


async def test_the_command_line_sets_lists_shows_and_forgets(line, fogline):
    table = line.folder / "lamp.toml"
    table.write_text('[switch]\nrequired = ["on"]\nproperties.on.type = "boolean"\n')
    async with serving(line):
        status, _, err = await fogline(
            "device", "set", "lamp-1", "--type", "lamp", "--tag", "site=berlin", "--commands", str(table)
        )
        assert (status, err) == (0, "device lamp-1: done\n")
        assert (await fogline("device", "set", "lamp-2", "--type", "lamp", "--tag", "site=paris"))[0] == 0
        status, out, _ = await fogline("device", "list", "--where", "type=lamp,site=berlin", "--json")
        assert (status, [each["device"] for each in json.loads(out)]) == (0, ["lamp-1"])
        shown = json.loads((await fogline("device", "show", "lamp-1", "--json"))[1])
        assert (shown["tags"], shown["version"], list(shown["commands"])) == ({"site": "berlin"}, 1, ["switch"])
        assert "client" in shown["changed_by"]
        assert (await fogline("device", "forget", "lamp-1"))[0] == 0
        assert (await fogline("device", "show", "lamp-1"))[0] == 1
        status, _, err = await fogline("device", "forget", "lamp-1")
        assert (status, err) == (1, "device lamp-1 is not in the registry\n")
    kept = read_committed(KafkaClients(line.cloud.kafka), {(audit(line.tenant), shard): None for shard in range(2)})
    noted = [(each.device, each.decision) for each in map(decode_audit, (record.value for record in kept)) if each.device]
    assert sorted(noted) == [("lamp-1", "DEVICE FORGET"), ("lamp-1", "DEVICE SET"), ("lamp-2", "DEVICE SET")]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("set", "lamp-1", "--tag", "site"), "--tag 'site': expected name=value"),
        (("set", "lamp-1", "--tag", "type=x"), "tag type: this name is a field"),
        (("set", "lamp-1", "--commands", "missing.toml"), "--commands: there is no missing.toml"),
        (("list", "--where", "lamp"), "--where 'lamp': expected name=value"),
    ],
    ids=str,
)
async def test_wrong_input_is_one_sentence_and_status_2(line, fogline, words, says):
    status, _, err = await fogline("device", *words)
    assert (status, err.count("\n")) == (2, 1)
    assert says in err


async def test_a_command_that_the_device_does_not_take_never_travels(line):
    async with commandable(line) as (bridge, _, downlink), Operator("127.0.0.1", line.port, line.tenant) as operator:
        device = CommandDevice(downlink)
        downlink.reachable("lamp-1", device)
        assert await edited(line, "lamp-1", "set", SWITCH) == ACCEPTED
        await known(bridge, lambda table: table.get("lamp-1") is not None)
        wrong = await within(operator.request(Ask("lamp-1", "switch", b'{"on": "maybe"}', "application/json")), "no verdict")
        assert (wrong.state, wrong.status) == (CommandState.REJECTED, 422)
        assert wrong.why == "command switch of device lamp-1: argument on: 'maybe' is not of type 'boolean'"
        unknown = await within(operator.request(Ask("lamp-1", "paint")), "no verdict")
        assert (unknown.status, unknown.why) == (422, "device lamp-1 takes switch, not 'paint'")
        assert device.ran == []
        right = await within(operator.request(Ask("lamp-1", "switch", b'{"on": true}', "application/json")), "no verdict")
        assert (right.status, len(device.ran)) == (200, 1)


async def test_last_seen_and_gateway_are_learnt_and_forgotten(line):
    line.cloud = replace(line.cloud, devices=DeviceSettings(learn=Learn.ALL))
    async with commandable(line) as (bridge, outbox, _):
        await line.put(outbox, 2, 3, 4)
        await line.drained(outbox)
        await known(bridge, lambda table: table.get("lamp-1") is not None)
        learnt = (await asyncio.to_thread(registry, line)).get("lamp-1")
        assert (learnt.gateways, learnt.record) == (["gw-1"], None)
        written = read_committed(KafkaClients(line.cloud.kafka), {(devices(line.tenant), shard): None for shard in range(2)})
        assert len([each for each in await asyncio.to_thread(list, written) if each.key.startswith(b"seen/lamp-1/")]) == 1
        assert await edited(line, "lamp-1", "set", b'{"type": "lamp"}') == ACCEPTED
        assert await edited(line, "lamp-1", "forget") == ACCEPTED
        await known(bridge, lambda table: table.get("lamp-1") is None)
        assert (await edited(line, "lamp-1", "forget")).condition == NOT_FOUND


@pytest.mark.slow
async def test_no_change_is_lost_between_two_bridges_and_a_takeover(line):
    pair = BridgePair(line)
    try:
        await pair.start()
        names = [f"lamp-{n}" for n in range(12)]
        assert {shard_of(each, 2) for each in names} == {0, 1}

        async def tag(number: int, device: str) -> None:
            bridge = pair.addresses[("bridge-1", "bridge-2")[number % 2]]  # half of them are sent to the wrong one
            if bridge in gone:
                bridge = pair.addresses["bridge-2"]
            body = json.dumps({"tags": {f"t{number}": "x"}}).encode()
            assert await edited(line, device, "set", body, bridge) == ACCEPTED

        gone: set[str] = set()
        await asyncio.gather(*(tag(number, device) for number in range(4) for device in names))
        stopping = asyncio.create_task(pair.stop("bridge-1"))
        gone.add(pair.addresses["bridge-1"])
        await asyncio.gather(*(tag(number, device) for number in range(4, 8) for device in names))
        await stopping
        found = await asyncio.to_thread(registry, line)
        for each in names:
            device = found.get(each)
            assert sorted(device.tags) == [f"t{number}" for number in range(8)]
            assert device.record.version == 8
    finally:
        await pair.close()
