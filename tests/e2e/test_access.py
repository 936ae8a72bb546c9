"""Who may do what, as `access.toml` says: each cell of the matrix is a peer that tries it over a real connection."""

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from fogline.address import shard_of
from fogline.amqp.driver import AmqpConnection, connect
from fogline.amqp.engine import Engine
from fogline.amqp.login import PLAIN, Login
from fogline.amqp.outcome import UNAUTHORIZED, DeliveryState
from fogline.amqp.scheduler import Share
from fogline.amqp.security import ClientSecurity
from fogline.commands.command import CommandState
from fogline.errors import Unreachable
from fogline.events.event import Lane
from fogline.events.gap import GAP_CONTENT_TYPE, decode_gap
from fogline.gateway import hello
from fogline.gateway.enrolment import PRODUCT
from fogline.message import Message
from fogline_cloud.authority.certificates import Role
from fogline_cloud.cli.administration.audit import _records as audit_records
from fogline_cloud.cli.main import main
from fogline_cloud.commands.client.operator import Ask, Operator
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients
from fogline_lab.amqp import End, within
from fogline_lab.credentials.authority_folder import HERE, PASSWORD, AuthorityFolder
from fogline_lab.device.command_device import CommandDevice
from fogline_lab.line.line import Line, gateway, serving
from fogline_lab.line.secure_line import secure
from fogline_lab.waiting import until_not

ACCESS = """
[[operator]]
name = "alice"
devices = ["lamp-*"]
commands = ["switch"]

[[service]]
name = "weather"
devices = ["station-*"]

[[admin]]
name = "root"

[[device]]
name = "lock-*"
gateways = ["gw-2"]
"""
PEERS: dict[str, tuple[Role, str, dict[str, str]]] = {
    "gateway": (Role.GATEWAY, "gw-1", {"product": hello.PRODUCT}),
    "enrollee": (Role.GATEWAY, "gw-1", {"product": PRODUCT}),
    "device": (Role.DEVICE, "lamp-1", {}),
    "operator": (Role.OPERATOR, "alice", {}),
    "service": (Role.OPERATOR, "weather", {}),
    "admin": (Role.OPERATOR, "root", {}),
    "nobody": (Role.OPERATOR, "eve", {}),
}
LANES = (Lane.TELEMETRY, Lane.ALARM)
OWN, OTHER = shard_of("gw-1", 2), 1 - shard_of("gw-1", 2)
SENDS = {
    "hello": ("hello/{}", ""),
    "batch to its shard": (f"ingest/{{}}/{OWN}", ""),
    "batch to another shard": (f"ingest/{{}}/{OTHER}", ""),
    "enrol itself": ("enroll/{}/gw-1", ""),
    "enrol another": ("enroll/{}/gw-2", ""),
    "granted command": ("command/{}/lamp-1", "switch"),
    "other command": ("command/{}/lamp-1", "dim"),
    "other device's command": ("command/{}/door-1", "switch"),
    "event of lamp-1": ("event/{}/lamp-1", ""),
    "telemetry of station-1": ("telemetry/{}/station-1", ""),
    "telemetry of door-1": ("telemetry/{}/door-1", ""),
}
RECEIVES = {
    "its control": "control/{}/gw-1",
    "another's control": "control/{}/gw-2",
    "replies": "command_response/{}/any",
    "its certificate": "enroll/{}/gw-1",
    "another's certificate": "enroll/{}/gw-2",
    "list of commands": "command/{}",
    "commands to door-1": "command/{}/door-1",
    "list of devices": "device/{}",
    "door-1 of the registry": "device/{}/door-1",
}
LISTS = {each for each in RECEIVES if each.startswith("list of")}
COMMANDS = {each for each in SENDS if "command" in each}
EVENTS = {each for each in SENDS if each.startswith(("event", "telemetry"))}
MAY: dict[str, set[str]] = {
    "gateway": {"hello", "batch to its shard", "its control"},
    "enrollee": {"enrol itself", "its certificate"},
    "device": {"event of lamp-1"},
    "operator": {"granted command", "replies"} | LISTS,
    "service": {"telemetry of station-1"},
    "admin": COMMANDS | EVENTS | {"replies"} | LISTS | {"commands to door-1", "door-1 of the registry"},
    "nobody": set(),
}
"""What ACCESS allows. All else is refused."""


class Trying(End):
    """A peer that notes why each of its links was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.why_closed: dict[str, str] = {}

    def link_closed(self, connection, link, condition):
        """See `End`."""
        super().link_closed(connection, link, condition)
        self.why_closed[link.name] = condition.name if condition is not None else ""


@pytest.fixture
def guarded(line, folder) -> tuple[Line, AuthorityFolder]:
    """A tenant whose bridge knows who may do what."""
    line, site = secure(line)
    (folder / "access.toml").write_text(ACCESS)
    line.cloud = replace(line.cloud, bridge=replace(line.cloud.bridge, access=str(folder / "access.toml")))
    return line, site


def write_access(line: Line, text: str) -> None:
    Path(line.cloud.bridge.access).write_text(text)


@asynccontextmanager
async def trying(line: Line, name: str, properties: dict[str, str], security: ClientSecurity):
    peer = Trying()
    engine = Engine(name, hostname=HERE, properties={"tenant": line.tenant, **properties}, security=security)
    connection = await connect(HERE, line.port, engine, peer)
    await within(peer.is_open.wait(), f"{name} is not let in: {peer.why}")
    try:
        yield connection, peer
    finally:
        connection.close()
        connection.abort()
        await within(peer.is_closed.wait(), "the connection did not close")


async def may_send(connection: AmqpConnection, peer: Trying, link: str, target: str, message: Message) -> bool:
    sender = connection.open_sender(connection.open_session(), link, target, Share(), {})
    try:
        outcome = await within(sender.send(message), f"no outcome at {target}")
    except Unreachable:
        return peer.why_closed.get(link) != UNAUTHORIZED
    return outcome.condition != UNAUTHORIZED


async def may_receive(connection: AmqpConnection, peer: Trying, link: str, source: str) -> bool:
    connection.open_receiver(connection.open_session(), link, source, 1)
    fence = f"{link}: fence"  # the bridge answers in order
    connection.open_sender(connection.open_session(), fence, "no/such/address", Share(), {})

    async def unanswered() -> bool:
        return fence not in peer.why_closed

    await until_not(unanswered, f"no answer at {source}")
    return peer.why_closed.get(link) != UNAUTHORIZED


async def allowed(line: Line, connection: AmqpConnection, peer: Trying) -> set[str]:
    """What a peer could do, after it has tried everything, by links of their own and over the anonymous relay."""
    found = set()
    for what, (pattern, subject) in SENDS.items():
        target = pattern.format(line.tenant)
        message = Message(to=target, subject=subject or None, message_id=what, body=b"{}")
        own = await may_send(connection, peer, f"link: {what}", target, message)
        relayed = await may_send(connection, peer, f"relay: {what}", "", message)
        assert own or not relayed, f"{what}: only the relay lets it pass"
        if own:
            found.add(what)
    for what, source in RECEIVES.items():
        if await may_receive(connection, peer, what, source.format(line.tenant)):
            found.add(what)
    return found


@pytest.mark.parametrize("kind", PEERS)
async def test_peer_may_do_only_what_the_file_allows(guarded, kind):
    line, site = guarded
    role, name, properties = PEERS[kind]
    async with serving(line), trying(line, name, properties, site.client(role, name)) as (connection, peer):
        assert await allowed(line, connection, peer) == MAY[kind]
    assert sorted({each.key.decode() for each in line.records(*LANES)}) == sorted(
        {SENDS[what][0].rpartition("/")[2] for what in MAY[kind] & EVENTS}
    )


async def test_a_password_has_the_grants_of_its_user(guarded):
    line, site = guarded
    security = ClientSecurity(Login(PLAIN, "alice", PASSWORD), site.context())
    async with serving(line), trying(line, "any", {}, security) as (connection, peer):
        assert await allowed(line, connection, peer) == MAY["operator"]


@asynccontextmanager
async def switchable(line: Line):
    """A bridge, and a gateway with the device `lamp-1`."""
    async with serving(line) as bridge, gateway(line) as (outbox, downlink):
        device = CommandDevice(downlink)
        downlink.reachable(device.name, device)
        await line.put(outbox, 0, device=device.name)
        await line.drained(outbox)
        yield bridge, outbox, device


async def test_an_operator_gets_the_replies_to_its_own_commands_only(guarded):
    """Another operator listens at the same reply address, with the newer link."""
    line, site = guarded
    async with (
        switchable(line),
        Operator(HERE, line.port, line.tenant, reply_id="shared", security=site.client(Role.OPERATOR, "alice")) as alice,
    ):
        await within(alice.attached(), alice.why)
        async with trying(line, "root", {}, site.client(Role.OPERATOR, "root")) as (connection, other):
            assert await may_receive(connection, other, "replies", f"command_response/{line.tenant}/shared")
            verdict = await within(alice.request(Ask("lamp-1", "switch")), f"no verdict: {alice.why}")
            assert (verdict.state, other.messages) == (CommandState.SUCCEEDED, [])


@pytest.mark.fault("S2")
async def test_of_a_device_of_another_gateway_nothing_lands_but_a_gap_record_without_it(guarded):
    line, _ = guarded
    async with serving(line), line.gateway() as outbox:
        await line.put(outbox, 1)
        await line.put(outbox, 2, 3, device="lock-1")
        await line.put(outbox, 4)
        await line.drained(outbox)
    records = line.records()
    gaps = [decode_gap(each.value) for each in records if dict(each.headers)["content-type"] == GAP_CONTENT_TYPE.encode()]
    assert line.landed() == [1, 4]
    assert [(gap.first, gap.last, gap.id, gap.device, gap.body_base64) for gap in gaps] == [
        (n, n, None, None, None) for n in (2, 3)
    ]
    assert b"lock-1" not in b"".join(each.value + each.key + repr(each.headers).encode() for each in records)
    refused = [each for each in audit_records(line.cloud) if each.decision == "EVENTS REFUSED"]
    assert {(each.who, each.device) for each in refused} == {(f"gateway {line.tenant}/gw-1", "lock-1")}


async def test_a_command_does_not_go_through_a_gateway_that_may_not_speak_for_the_device(guarded):
    """The gateway had sent events of the device before that was forbidden."""
    line, site = guarded
    async with switchable(line) as (bridge, _, device):
        write_access(line, ACCESS + '[[device]]\nname = "lamp-1"\ngateways = ["gw-2"]\n')
        bridge.read_again()
        async with Operator(HERE, line.port, line.tenant, security=site.client(Role.OPERATOR, "alice")) as alice:
            verdict = await within(alice.request(Ask("lamp-1", "switch")), f"no verdict: {alice.why}")
    assert (verdict.status, device.ran) == (404, [])


async def test_a_changed_file_counts_for_the_connections_that_are_open(guarded):
    line, site = guarded
    async with (
        switchable(line) as (bridge, _, device),
        Operator(HERE, line.port, line.tenant, security=site.client(Role.OPERATOR, "alice")) as alice,
    ):
        await within(alice.request(Ask("lamp-1", "switch")), f"no verdict: {alice.why}")
        write_access(line, ACCESS.replace('devices = ["lamp-*"]', 'devices = ["door-*"]'))
        bridge.read_again()
        verdict = await within(alice.request(Ask("lamp-1", "switch")), f"no verdict: {alice.why}")
        assert (verdict.state, "may not send command 'switch' to lamp-1" in verdict.why) == (CommandState.REJECTED, True)
        for wrong in ("[[operators]]", ""):  # a mistake, and half a file: what was read before still counts
            write_access(line, wrong)
            bridge.read_again()
            verdict = await within(alice.request(Ask("lamp-1", "switch")), f"no verdict: {alice.why}")
            assert verdict.state is CommandState.REJECTED
            assert not bridge._policy.may_speak_for("gw-1", "lock-1")
    assert len(device.ran) == 1


async def test_command_line_names_the_missing_permission(guarded, capsys):
    line, site = guarded
    files = site.files(Role.OPERATOR, "alice")
    config = line.folder / "operator.toml"
    async with switchable(line) as (_, _, device):
        config.write_text(
            f'tenant = "{line.tenant}"\n[operator]\nbridge = "{HERE}:{line.port}"\n'
            f'[operator.tls]\nca = "{files.ca}"\ncertificate = "{files.certificate}"\nkey = "{files.key}"\n'
        )
        for name, status in (("switch", 0), ("dim", 1)):
            arguments = ["command", "send", "lamp-1", name, "--config", str(config)]
            assert await asyncio.to_thread(main, arguments) == status
    assert "may not send command 'dim' to lamp-1" in capsys.readouterr().err
    assert len(device.ran) == 1


async def test_a_gateway_over_its_quota_is_slowed_down_and_loses_nothing(guarded):
    line, _ = guarded
    write_access(line, ACCESS + '[[quota]]\nkind = "gateway"\nname = "gw-*"\nevents_s = 150\n')
    async with serving(line) as bridge, line.gateway() as outbox:
        await line.put(outbox, *range(500))

        async def not_slowed() -> bool:
            peer = bridge.gateways.get("gw-1")
            return peer is None or peer.use.owed_s(asyncio.get_running_loop().time()) == 0

        await until_not(not_slowed, "the quota does not count")
        await line.drained(outbox)
    assert line.landed() == list(range(500))


async def test_commands_over_the_quota_are_refused_with_the_time_to_wait(guarded):
    line, site = guarded
    write_access(line, ACCESS + '[[quota]]\nkind = "client"\nname = "alice"\ncommands_min = 5\nlinks = 4\nconnections = 1\n')
    async with switchable(line), Operator(HERE, line.port, line.tenant, security=site.client(Role.OPERATOR, "alice")) as alice:
        asked = [alice.request(Ask("lamp-1", "switch")) for _ in range(20)]
        verdicts = await within(asyncio.gather(*asked), f"no verdict: {alice.why}")
        refused = [each for each in verdicts if each.state is CommandState.REJECTED]
        assert {each.status for each in refused} == {429}
        assert "is over its quota (bridge.access): again in" in refused[0].why
        assert 5 <= len(verdicts) - len(refused) <= 11
        second = Trying()
        await connect(
            HERE,
            line.port,
            Engine("x", hostname=HERE, properties={"tenant": line.tenant}, security=site.client(Role.OPERATOR, "alice")),
            second,
        )
        await within(second.is_closed.wait(), "a second connection is let in")
        assert "at most 1 connections" in second.why


async def test_a_command_that_is_sent_ten_times_counts_once(guarded, monkeypatch):
    """The bridge releases it while the device's shard is not here; its copies after that need the verdict, not a quota."""
    line, site = guarded
    write_access(line, ACCESS + '[[quota]]\nkind = "client"\nname = "alice"\ncommands_min = 1\n')
    body = Message(
        to=f"command/{line.tenant}/lamp-1", subject="switch", message_id="one", durable=True, ttl_ms=60_000, properties={}
    )
    async with switchable(line) as (bridge, _, device):
        async with trying(line, "alice", {}, site.client(Role.OPERATOR, "alice")) as (connection, _):
            sender = connection.open_sender(connection.open_session(), "x", f"command/{line.tenant}/lamp-1", Share(), {})
            with monkeypatch.context() as patch:
                patch.setattr(type(bridge.shards), "ready", lambda *_: None)
                released = [await within(sender.send(body), "no outcome") for _ in range(5)]
            assert {each.state for each in released} == {DeliveryState.RELEASED}

            async def not_taken() -> bool:
                return (await sender.send(body)).state is not DeliveryState.ACCEPTED

            await until_not(not_taken, "the bridge does not take it")
            taken = [await within(sender.send(body), "no outcome") for _ in range(5)]
        assert {each.state for each in taken} == {DeliveryState.ACCEPTED}

        async def not_run() -> bool:
            return not device.ran

        await until_not(not_run, "the device does not get the command")
        assert len(device.ran) == 1


async def test_links_over_the_quota_are_refused(guarded):
    line, site = guarded
    write_access(line, ACCESS + '[[quota]]\nkind = "client"\nlinks = 4\n')
    async with serving(line), trying(line, "root", {}, site.client(Role.OPERATOR, "root")) as (connection, peer):
        for number in range(6):
            connection.open_receiver(connection.open_session(), f"link {number}", f"command_response/{line.tenant}/{number}", 1)

        async def fewer() -> bool:
            return len(peer.why_closed) < 2

        await until_not(fewer, "no link is refused")
        assert peer.why_closed == {f"link {number}": "amqp:resource-limit-exceeded" for number in (4, 5)}


async def test_every_refusal_is_in_the_audit_and_a_forged_record_shows(guarded, capsys):
    line, site = guarded
    config = line.folder / "audit.toml"
    kafka = line.cloud.kafka["bootstrap.servers"]
    config.write_text(f'tenant = "{line.tenant}"\nshards = 2\n[kafka]\n"bootstrap.servers" = "{kafka}"\n')
    async with serving(line), trying(line, "eve", {}, site.client(Role.OPERATOR, "eve")) as (connection, peer):
        assert not await may_send(connection, peer, "x", f"command/{line.tenant}/lamp-1", Message(subject="switch"))
        refused = Trying()
        engine = Engine(
            "gw-1",
            hostname=HERE,
            properties={"tenant": line.tenant},
            security=ClientSecurity(Login(PLAIN, "eve", "x"), site.context()),
        )
        await connect(HERE, line.port, engine, refused)
        await within(refused.is_closed.wait(), "a wrong password is taken")
    async with serving(line):  # the chain goes on in the next life
        pass
    found = {(each.who, each.decision) for each in audit_records(line.cloud)}
    eve = f"client {line.tenant}/eve (certificate)"
    assert {(eve, "CONNECTED"), (eve, "LINK REFUSED"), ("", "CONNECTION REFUSED")} <= found
    noted = ["--noted", str(line.folder / "links.json")]
    assert await asyncio.to_thread(main, ["audit", "verify", "--config", str(config), *noted]) == 0
    assert await asyncio.to_thread(main, ["audit", "show", "--about", "eve", "--config", str(config)]) == 0
    assert "LINK REFUSED" in capsys.readouterr().out
    producer = KafkaClients(line.cloud.kafka).publisher(lambda *_: None, 10)
    producer.produce(topics.audit(line.tenant), b'{"time_ms":1,"who":"eve","decision":"CONNECTED"}', b"eve", partition=0)
    producer.flush(60)
    assert await asyncio.to_thread(main, ["audit", "verify", "--config", str(config), *noted]) == 1
    assert f"{topics.audit(line.tenant)}[0] at offset" in capsys.readouterr().err
