"""A command that takes two operators, with bridge, gateway, API and a real broker: nothing happens before the second."""

import asyncio
import ssl
from contextlib import AsyncExitStack, asynccontextmanager

import httpx
import pytest
from msgspec.structs import replace

from e2e.command_states import in_state
from e2e.http_api import COMMANDS, SWITCH, api
from fogline.commands.command import CommandState
from fogline.process.files.durable_file import write_new
from fogline.process.files.tls_files import TlsSettings
from fogline_cloud.api_settings import ApiTlsSettings
from fogline_cloud.authority.ca_folder import ROOT
from fogline_cloud.authority.certificates import Role
from fogline_cloud.bridge.door.passwords import password_line
from fogline_cloud.cli.administration.audit import _records as audit_records
from fogline_cloud.commands.client.operator import Ask, Operator
from fogline_cloud.settings import OperatorSettings
from fogline_lab.amqp import within
from fogline_lab.credentials.authority_folder import HERE, PASSWORD
from fogline_lab.device.command_device import CommandDevice
from fogline_lab.line.line import commandable, gateway, serving
from fogline_lab.line.secure_line import secure
from fogline_lab.waiting import until_not

ACCESS = """
[[operator]]
name = "alice"
devices = ["*"]

[[operator]]
name = "bob"
devices = ["*"]

[[operator]]
name = "eve"
devices = ["door-*"]

[[approval]]
devices = ["lamp-*"]
commands = ["switch"]
"""
TTL_S = 120.0


@pytest.fixture
def two_persons(line, folder):
    """A tenant in which `switch` of a lamp takes two operators."""
    line, site = secure(line)
    (folder / "access.toml").write_text(ACCESS)
    line.cloud = replace(line.cloud, bridge=replace(line.cloud.bridge, access=str(folder / "access.toml")))
    return line, site


@asynccontextmanager
async def operators(line, site, *names):
    """Connected operators, each with a certificate of its own."""
    async with AsyncExitStack() as stack:
        clients = (Operator(HERE, line.port, line.tenant, security=site.client(Role.OPERATOR, name)) for name in names)
        yield [await stack.enter_async_context(each) for each in clients]


async def test_a_command_runs_once_another_operator_has_approved_it(two_persons):
    """Not its sender, and not one who may not send it."""
    line, site = two_persons
    async with commandable(line) as (_, _, downlink), operators(line, site, "alice", "bob", "eve") as (alice, bob, eve):
        device = CommandDevice(downlink)
        downlink.reachable("lamp-1", device)
        told = []
        asked = asyncio.create_task(alice.request(Ask("lamp-1", "switch", ttl_s=TTL_S), lambda *each: told.append(each)))
        command_id = await in_state(line, CommandState.PROPOSED)
        assert told == [(command_id, True)]
        refused = [await within(each.approve(command_id), "no answer") for each in (alice, eve)]
        assert [each.status for each in refused] == [403, 403]
        assert "another operator must approve" in refused[0].why
        assert (device.ran, asked.done()) == ([], False)
        assert (await within(bob.approve(command_id), "no answer")).status == 200
        verdict = await within(asked, "no verdict")
        assert (verdict.state, device.ran) == (CommandState.SUCCEEDED, [command_id])
        assert (await within(bob.approve("nobody-knows"), "no answer")).status == 404
        assert (await within(alice.approve(command_id), "no answer")).status == 409
        assert (await within(bob.approve(command_id), "no answer")).status == 200, "a copy of the approval"
        other = await within(alice.request(Ask("lamp-1", "blink", ttl_s=TTL_S)), "no verdict")
        assert other.state is CommandState.SUCCEEDED, "only what the file names takes two"
    audit = [(each.decision, each.who) for each in audit_records(line.cloud) if each.command == command_id]
    assert audit[:2] == [
        ("PROPOSED", f"client {line.tenant}/alice (certificate)"),
        ("ACCEPTED", f"client {line.tenant}/bob (certificate)"),
    ]


async def test_a_command_that_waits_survives_its_bridge_and_the_next_one_does_not_send_it(two_persons):
    line, site = two_persons
    async with commandable(line), operators(line, site, "alice") as (alice,):
        asked = asyncio.create_task(alice.request(Ask("lamp-1", "switch", ttl_s=TTL_S)))
        command_id = await in_state(line, CommandState.PROPOSED)
        asked.cancel()
    async with serving(line), gateway(line) as (_, downlink), operators(line, site, "alice", "bob") as (alice, bob):
        device = CommandDevice(downlink)
        downlink.reachable("lamp-1", device)
        other = await within(alice.request(Ask("lamp-1", "blink", ttl_s=TTL_S)), "no verdict")
        assert device.ran == [other.command_id], "a later command passes, and the one that waits is not sent"
        assert (await within(bob.approve(command_id), "no answer")).status == 200
        await until_ran(device, command_id)
    assert device.ran == [other.command_id, command_id]


async def until_ran(device, command_id):
    async def not_yet() -> bool:
        return command_id not in device.ran

    await until_not(not_yet, "the device does not get it")


async def test_a_command_that_nobody_approves_expires_or_is_cancelled_and_its_device_never_sees_it(two_persons):
    line, site = two_persons
    async with commandable(line) as (_, _, downlink), operators(line, site, "alice", "bob") as (alice, bob):
        device = CommandDevice(downlink)
        downlink.reachable("lamp-1", device)
        late = await within(alice.request(Ask("lamp-1", "switch", ttl_s=2.0)), "no verdict")
        assert (late.state, late.why) == (CommandState.EXPIRED, "no second operator approved it in time")
        assert (await within(bob.approve(late.command_id), "no answer")).status == 409
        asked = asyncio.create_task(alice.request(Ask("lamp-1", "switch", ttl_s=TTL_S)))
        command_id = await in_state(line, CommandState.PROPOSED)
        assert (await within(bob.cancel(command_id), "no answer")).state is CommandState.CANCELLED
        assert (await within(asked, "no verdict")).state is CommandState.CANCELLED
        direct = await within(alice.request(Ask("lamp-1", "switch", ttl_s=None, durable=False)), "no verdict")
        assert (direct.state, direct.status) == (CommandState.REJECTED, 400)
        assert "send it durable" in direct.why
        assert device.ran == []


async def test_without_proof_of_names_a_command_that_takes_two_is_refused(line, folder):
    (folder / "access.toml").write_text(ACCESS)
    line.cloud = replace(line.cloud, bridge=replace(line.cloud.bridge, access=str(folder / "access.toml")))
    async with commandable(line), Operator(HERE, line.port, line.tenant, name="alice") as alice:
        verdict = await within(alice.request(Ask("lamp-1", "switch", ttl_s=TTL_S)), "no verdict")
    assert (verdict.state, verdict.status) == (CommandState.REJECTED, 403)


async def test_a_command_is_approved_over_http(two_persons):
    line, site = two_persons
    site.users.unlink()
    write_new(site.users, "\n".join(password_line(name, PASSWORD) for name in ("alice", "bob")).encode())
    line.cloud = replace(line.cloud, operator=OperatorSettings(tls=TlsSettings(ca=str(site.ca.path / ROOT))))
    files = site.files(Role.BRIDGE, "api")
    tls = ApiTlsSettings(certificate=files.certificate, key=files.key)
    verify = ssl.create_default_context(cafile=str(site.ca.path / ROOT))
    async with (
        commandable(line) as (_, _, downlink),
        api(line, auth=("alice", PASSWORD), tls=tls, verify=verify) as alice,
        httpx.AsyncClient(base_url=alice.url, auth=("bob", PASSWORD), verify=verify, timeout=60) as bob,
    ):
        device = CommandDevice(downlink)
        downlink.reachable("lamp-1", device)
        sent = await alice.http.post(COMMANDS, json={**SWITCH, "ttl_s": TTL_S})
        assert (sent.status_code, sent.json()["state"]) == (201, "PROPOSED")
        approval = f"{sent.headers['location']}/approval"
        assert (await alice.http.post(approval)).status_code == 403
        approved = await bob.post(approval)
        assert (approved.status_code, approved.json()["approved_by"]) == (200, f"client {line.tenant}/bob (password)")
        shown = await alice.http.get(sent.headers["location"], params={"wait": "30s"})
        assert (shown.json()["state"], len(device.ran)) == ("SUCCEEDED", 1)
        assert (await bob.post("/v1/commands/none/approval")).status_code == 404
