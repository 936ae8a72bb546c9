"""Every door refuses the same wrong input with the same status and the same sentence: AMQP, HTTP and the command line."""

import asyncio
import base64
import re
from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from e2e.device_registry import SWITCH, known
from e2e.guarded import guarded
from e2e.http_api import Served, basic, served
from fogline.address import DeviceAddress
from fogline.amqp.login import PLAIN, Login
from fogline.amqp.outcome import ACCEPTED
from fogline.amqp.security import ClientSecurity
from fogline.process.files.durable_file import write_new
from fogline_cloud.authority.ca_folder import ROOT
from fogline_cloud.bridge.door.passwords import password_line
from fogline_cloud.cli.main import main
from fogline_cloud.commands.client.operator import Ask, Operator
from fogline_cloud.devices.client import edit_device
from fogline_lab.amqp import within
from fogline_lab.credentials.authority_folder import HERE, PASSWORD
from fogline_lab.device.command_device import CommandDevice

USERS = ("alice", "busy-amqp", "busy-http", "busy-cli")
ACCESS = """
[[operator]]
name = "alice"
devices = ["lamp-1", "nobody"]
commands = ["switch"]

[[manager]]
name = "alice"
devices = ["lamp-1"]
"""
BUSY = """
[[operator]]
name = "{0}"
devices = ["lamp-1"]

[[quota]]
kind = "client"
name = "{0}"
commands_min = 1
"""
ON = b'{"on": true}'


def ask(device="lamp-1", name="switch", data=ON, **other):
    return Ask(device, name, data, "application/json", **other)


@dataclass
class Doors:
    """The ways in. Each sends a command, or cancels one, as a user, and returns the status and the sentence."""

    line: object
    found: Served
    security: ClientSecurity
    capsys: pytest.CaptureFixture

    async def amqp(self, wanted, user="alice"):
        async with self.operator(user) as operator:
            verdict = await within(operator.request(wanted), "no verdict")
            return verdict.status, general(verdict.why)

    def operator(self, user="alice", name=""):
        security = ClientSecurity(Login(PLAIN, user, PASSWORD), self.security.tls)
        return Operator(HERE, self.line.port, self.line.tenant, name=name, security=security)

    async def http(self, wanted, user="alice", **headers):
        data = {"data_base64": base64.b64encode(wanted.data).decode(), "content_type": wanted.content_type}
        body = {"name": wanted.name, **data, "ttl_s": wanted.ttl_s}
        path = f"/v1/devices/{wanted.device}/commands"
        return problem(await self.found.http.post(path, json=body, headers={**basic(user, PASSWORD), **headers}))

    async def cli(self, wanted, user="alice"):
        (self.line.folder / "arguments").write_bytes(wanted.data)
        data = ["--json", wanted.data.decode()] if len(wanted.data) < 1000 else ["--file", self.line.folder / "arguments"]
        return await self.run(user, "send", wanted.device, wanted.name, *data, "--ttl", f"{wanted.ttl_s}s")

    async def run(self, user, *words):
        """`fogline command`: the line that it prints ends with the status and the sentence."""
        folder = self.line.folder
        operator = f'[operator]\nbridge = "{HERE}:{self.line.port}"\nuser = "{user}"\npassword_file = "password"\n'
        text = f'tenant = "{self.line.tenant}"\nshards = 2\n{operator}[operator.tls]\nca = "{folder / "ca" / ROOT}"\n'
        (folder / "cloud.toml").write_text(text)
        arguments = ["command", *map(str, words), "--config", str(folder / "cloud.toml")]
        if await asyncio.to_thread(main, arguments) == 0:
            return 0, ""
        line = self.capsys.readouterr().err.strip().splitlines()[-1]
        found = re.search(r": (?:[A-Z_]+ )?(\d+), (.*)$", line)
        assert found is not None, line
        return int(found[1]), general(found[2])


def problem(response):
    if response.is_success:
        return response.status_code, ""
    assert response.headers["content-type"] == "application/problem+json", response.text
    return response.status_code, general(response.json()["detail"])


def general(sentence):
    """A sentence without what differs from request to request."""
    sentence = re.sub(r"busy-(amqp|http|cli)", "busy", re.sub(r"\b[0-9a-f]{32}\b", "ID", sentence))
    return re.sub(r"again in \d+ s", "again in N s", sentence)


@pytest.fixture
def doors(line, capsys):
    """The line with users, rights and quotas. Returns how to enter it."""
    line, https = guarded(line)
    write_new(line.folder / "users-2", "\n".join(password_line(each, PASSWORD) for each in USERS).encode())
    write_new(line.folder / "password", PASSWORD.encode())
    access = line.folder / "access-2.toml"
    access.write_text(ACCESS + "".join(BUSY.format(each) for each in USERS[1:]))
    line.cloud = replace(line.cloud, bridge=replace(line.cloud.bridge, access=str(access), users=str(line.folder / "users-2")))
    return lambda found: Doors(line, found, ClientSecurity(tls=https["verify"]), capsys), https


async def test_every_wrong_input_gets_the_same_status_and_sentence_at_every_door(line, doors):
    enter, https = doors
    async with served(line, **https) as (found, downlink, bridge, _):
        at, table = enter(found), {}
        downlink.reachable("lamp-1", CommandDevice(downlink))
        alice = ClientSecurity(Login(PLAIN, "alice", PASSWORD), at.security.tls)
        lamp = DeviceAddress(line.tenant, "lamp-1")
        assert await edit_device(f"{HERE}:{line.port}", lamp, "set", SWITCH, security=alice) == ACCEPTED
        await known(bridge, lambda table: (device := table.get("lamp-1")) is not None and device.record is not None)
        for what, wanted in {
            "unknown device": ask("nobody"),
            "wrong argument": ask(data=b'{"on": 1}'),
            "ttl too long": ask(ttl_s=3_000_000.0),
            "body too big": ask(data=b" " * 262_145),
            "no grant": ask(name="reboot"),
        }.items():
            table[what] = [await door(wanted) for door in (at.amqp, at.http, at.cli)]
        table["same id, other body"] = await other_body(at)
        table["cancelled too late"] = await too_late(at)
        everywhere = zip((at.amqp, at.http, at.cli), USERS[1:], strict=True)
        table["over quota"] = [await over_quota(door, user) for door, user in everywhere]
    assert {what: answers[0][0] for what, answers in table.items()} == {
        "unknown device": 404,
        "wrong argument": 422,
        "ttl too long": 400,
        "body too big": 413,
        "no grant": 403,
        "same id, other body": 409,
        "cancelled too late": 409,
        "over quota": 429,
    }
    for what, answers in table.items():
        assert len(set(answers)) == 1, f"{what}: {answers}"
        assert answers[0][1], what


async def other_body(at):
    """The command line makes a new id for each command, so it has no such refusal."""
    async with at.operator(name="op-1") as operator:
        done = await within(operator.request(ask(message_id="m-1")), "no verdict")
        assert done.status == 200, done
        refused = await within(operator.request(ask(data=b'{"on": false}', message_id="m-1")), "no verdict")
    key = {"idempotency-key": "order-1"}
    assert (await at.http(ask(), **key))[0] == 201
    return [(refused.status, general(refused.why)), await at.http(ask(data=b'{"on": false}'), **key)]


async def too_late(at):
    async with at.operator() as operator:
        done = await within(operator.request(ask()), "no verdict")
        refused = await within(operator.cancel(done.command_id), "no verdict")
    over_http = await at.found.http.delete(f"/v1/commands/{done.command_id}", headers=basic("alice", PASSWORD))
    return [(refused.status, general(refused.why)), problem(over_http), await at.run("alice", "cancel", done.command_id)]


async def over_quota(door, user):
    """Send commands until one is refused: the first ones use up the quota."""
    for _ in range(5):
        answer = await door(ask(ttl_s=5.0), user)
        if answer[0] == 429:
            return answer
    raise AssertionError(f"{user} may send more than its quota")
