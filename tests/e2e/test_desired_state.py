"""Desired state: each version reaches the device once, the newest one replaces what waits, and two bridges take part."""

import asyncio
import json
from contextlib import AsyncExitStack

import pytest
from msgspec.structs import replace

from e2e.device_registry import edited, known, registry
from e2e.lamp import Lamp
from fogline.address import shard_of
from fogline.amqp.outcome import ACCEPTED, INVALID_FIELD, NOT_FOUND
from fogline.commands.command import CommandState, Reply
from fogline.commands.signature import TrustedKeys
from fogline_cloud.devices.device_facts import all_facts_of
from fogline_edge.downlink.downlink import Downlink
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.settings import EdgeSettings, UplinkSettings
from fogline_lab.line.bridge_pair import BridgePair
from fogline_lab.line.line import commandable
from fogline_lab.waiting import until_not


def want(**desired) -> bytes:
    return json.dumps({"desired": desired, "command": "switch"}).encode()


async def settled(line, device: str, version: int, state: str) -> dict:
    """Wait until a version has a state, and return what `fogline device show` says."""
    found: dict = {}

    async def not_yet() -> bool:
        entry = (await asyncio.to_thread(registry, line)).get(device)
        found.update(all_facts_of(entry) if entry is not None else {})
        return (found.get("desired_version"), found.get("desired_state")) != (version, state)

    await until_not(not_yet, f"version {version} is not {state}")
    return found


async def test_a_desired_state_is_sent_once_and_the_reported_one_is_beside_it(learning, fogline):
    line = learning
    async with commandable(line) as (bridge, outbox, downlink):
        lamp = Lamp(downlink)
        downlink.reachable("lamp-1", lamp)
        await known(bridge, lambda table: table.get("lamp-1") is not None)
        assert (await fogline("device", "want", "lamp-1", '{"on": true, "level": 5}', "--command", "switch"))[0] == 0
        shown = await settled(line, "lamp-1", 1, "SUCCEEDED")
        assert (lamp.states, shown["reported"], shown["difference"]) == (
            [{"on": True, "level": 5}],
            {"on": True, "level": 5},
            {},
        )
        await line.put(outbox, 2, data=b'{"on": false, "level": 5}', type="reported")
        await known(bridge, lambda table: (found := table.get("lamp-1").reported) is not None and not found.reported["on"])

        async def differs_not() -> bool:
            shown = json.loads((await fogline("device", "show", "lamp-1", "--json"))[1])
            return shown["difference"] != {"on": True}

        await until_not(differs_not, "what the device reported is not shown")


async def test_newest_version_replaces_waiting_ones(learning):
    line = learning
    async with commandable(line) as (bridge, _, downlink):
        await known(bridge, lambda table: table.get("lamp-1") is not None)
        for level in range(5):
            assert await edited(line, "lamp-1", "want", want(level=level)) == ACCEPTED
        await settled(line, "lamp-1", 5, "SENT")
        lamp = Lamp(downlink)
        downlink.reachable("lamp-1", lamp)
        await settled(line, "lamp-1", 5, "SUCCEEDED")
        assert lamp.states == [{"level": 4}]


@pytest.mark.slow
async def test_a_version_in_doubt_is_not_sent_again_and_the_next_one_is(learning):
    line = learning
    line.cloud = replace(line.cloud, commands=replace(line.cloud.commands, max_ttl_s=2.5, grace_s=0.5))
    async with commandable(line) as (bridge, _, downlink):
        await known(bridge, lambda table: table.get("lamp-1") is not None)
        lamp = Lamp(downlink, answer=None)
        downlink.reachable("lamp-1", lamp)
        assert await edited(line, "lamp-1", "want", want(on=True)) == ACCEPTED
        shown = await settled(line, "lamp-1", 1, CommandState.IN_DOUBT)
        assert (len(lamp.states), shown["difference"]) == (1, {"on": True})
        lamp.answer = Reply(200, b'{"on": false}', "application/json")
        assert await edited(line, "lamp-1", "want", want(on=False)) == ACCEPTED
        shown = await settled(line, "lamp-1", 2, "SUCCEEDED")
        assert (lamp.states, shown["reported"]) == ([{"on": True}, {"on": False}], {"on": False})


@pytest.mark.slow
async def test_a_version_has_no_deadline_of_its_own(learning):
    line = learning
    line.cloud = replace(line.cloud, commands=replace(line.cloud.commands, max_ttl_s=2.0, grace_s=0.5))
    async with commandable(line) as (bridge, _, downlink):
        await known(bridge, lambda table: table.get("lamp-1") is not None)
        assert await edited(line, "lamp-1", "want", want(on=True)) == ACCEPTED
        await known(
            bridge, lambda table: (found := table.get("lamp-1").desired) is not None and found.attempt > 2
        )  # each attempt before has expired
        lamp = Lamp(downlink)
        downlink.reachable("lamp-1", lamp)
        await settled(line, "lamp-1", 1, "SUCCEEDED")
        assert lamp.states == [{"on": True}]


async def test_wrong_states_are_refused(learning):
    line = learning
    async with commandable(line) as (bridge, _, _):
        await known(bridge, lambda table: table.get("lamp-1") is not None)
        assert (await edited(line, "nobody", "want", want(on=True))).condition == NOT_FOUND
        schema = {"commands": {"switch": {"properties": {"on": {"type": "boolean"}}}}}
        assert await edited(line, "lamp-1", "set", json.dumps(schema).encode()) == ACCEPTED
        await known(bridge, lambda table: table.get("lamp-1").record is not None)
        refused = await edited(line, "lamp-1", "want", want(on="maybe"))
        assert (refused.condition, "argument on" in refused.description) == (INVALID_FIELD, True)
        assert "8192 bytes" in (await edited(line, "lamp-1", "want", want(on="x" * 9000))).description


@pytest.mark.slow
async def test_two_bridges_and_a_takeover_apply_each_version_once(learning):
    line, pair = learning, BridgePair(learning)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(pair.close)
        await pair.start()
        owner, other = pair.owner("gw-1")
        name = next(each for each in (f"lamp-{n}" for n in range(50)) if shard_of(each, 2) != shard_of("gw-1", 2))
        uplink = UplinkSettings(bridge=[pair.addresses[owner], pair.addresses[other]], batch_events=100)
        outbox = Outbox.open(EdgeSettings(tenant=line.tenant, gateway="gw-1", data=str(line.folder / "gw-1"), uplink=uplink))
        stack.push_async_callback(outbox.close)
        downlink = Downlink(outbox, TrustedKeys())
        await downlink.start()
        stack.callback(downlink.close)
        async with line.uplink(outbox, downlink.received, settings=uplink):
            await line.put(outbox, 1, device=name)
            await line.drained(outbox)
            lamp = Lamp(downlink)
            lamp.name = name
            downlink.reachable(name, lamp)
            assert await edited(line, name, "set", b'{"type": "lamp"}', pair.addresses[other]) == ACCEPTED
            await known(pair.bridges[owner], lambda table: table.get(name) is not None)
            await line.put(outbox, 2, device=name)
            await known(
                pair.bridges[other], lambda table: (found := table.get(name)) is not None and found.gateways == ["gw-1"]
            )
            assert await edited(line, name, "want", want(on=True), pair.addresses[owner]) == ACCEPTED
            await settled(line, name, 1, "SUCCEEDED")
            downlink.unreachable(name, lamp)
            assert await edited(line, name, "want", want(on=False), pair.addresses[other]) == ACCEPTED
            await settled(line, name, 2, "SENT")
            await pair.stop(owner)
            downlink.reachable(name, lamp)
            await settled(line, name, 2, "SUCCEEDED")
            assert lamp.states == [{"on": True}, {"on": False}]
