"""Roll-outs of the operator's page against a real bridge, with a restart of the API in the middle."""

from msgspec.structs import replace

from e2e.console_client import log_in, origin, token, visitor
from e2e.guarded import guarded
from e2e.http_api import api
from fogline_cloud.commands.client.command_group import GroupFile
from fogline_cloud.settings import DeviceSettings, Learn
from fogline_lab.device.command_device import CommandDevice
from fogline_lab.line.line import commandable
from fogline_lab.waiting import until

ADDRESS = "/console/rollouts"


async def begin(client, **fields):
    """Begin a roll-out by the form, and return its address."""
    form = {"csrf": await token(client, f"{ADDRESS}/new"), "rate_s": "50", "ttl_s": "60", "name": "switch", **fields}
    listed = await client.post(f"{ADDRESS}/new", data=form, headers=origin(client))
    assert listed.status_code == 200, listed.text
    hidden = {name: listed.text.partition(f'name="{name}" value="')[2].partition('"')[0] for name in ("id", "seen")}
    begun = await client.post(f"{ADDRESS}/new", data={**form, **hidden, "start": "yes"}, headers=origin(client))
    assert begun.status_code == 303, begun.text
    again = await client.post(f"{ADDRESS}/new", data={**form, **hidden, "start": "yes"}, headers=origin(client))
    assert again.headers["location"] == begun.headers["location"], "a form that is sent twice is one roll-out"
    return begun.headers["location"]


async def test_roll_out_goes_on_after_a_restart_of_the_api_and_no_device_gets_it_twice(line):
    line, https = guarded(line)
    access = line.folder / "access.toml"
    access.write_text(access.read_text().partition("[[quota]]")[0])
    line.cloud = replace(line.cloud, devices=DeviceSettings(learn=Learn.ALL))
    folder = line.folder / "rollouts"
    more = {"rollouts": str(folder), **https}
    async with commandable(line) as (_, outbox, downlink):
        await line.put(outbox, 1, device="lamp-2")
        await line.drained(outbox)
        device = CommandDevice(downlink)
        async with api(line, **more) as found, visitor(found, verify=https["verify"]) as client:
            await log_in(client, "alice")
            await until(lambda: len(found.api.context.devices) == 2, "the registry does not learn the devices")
            address = await begin(client, where="device=lamp-*")
            await until(lambda: len([*found.api.context.commands.newest_first()]) == 2, "the commands are not sent")
        assert GroupFile.read(folder, address.rpartition("/")[2]).left == ["lamp-1", "lamp-2"]

        async with api(line, **more) as found, visitor(found, verify=https["verify"]) as client:
            await log_in(client, "alice")
            assert "PAUSED" in (await client.get(address)).text
            downlink.reachable("lamp-1", device)
            form = {"csrf": await token(client, address)}
            await client.post(f"{address}/go-on", data=form, headers=origin(client))
            read = lambda: GroupFile.read(folder, address.rpartition("/")[2])
            await until(lambda: dict(read().states) == {"SUCCEEDED": 1}, "the command that waited has no verdict")
            assert len([*found.api.context.commands.newest_first()]) == 2, "a command was sent once more"
            await client.post(f"{address}/stop", data=form, headers=origin(client))
            await until(lambda: not read().left, "it does not stop")
            assert dict(read().states) == {"SUCCEEDED": 1, "CANCELLED": 1}
            assert "DONE" in (await client.get(address)).text
    assert len(device.ran) == 1
