"""Lists of devices and commands over AMQP: bridge, Kafka and clients, also those that mean no good."""

import asyncio
import threading
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace
from proton.reactor import Selector
from proton.utils import BlockingConnection, LinkDetached

from e2e.device_registry import edited
from e2e.listing import commands, devices, ids, write
from fogline.address import DeviceAddress, shard_of
from fogline.amqp.driver import connect
from fogline.amqp.engine import Engine
from fogline.amqp.login import PLAIN, Login
from fogline.amqp.outcome import ACCEPTED, INVALID_FIELD, NOT_IMPLEMENTED, RESOURCE_LIMIT
from fogline.amqp.security import ClientSecurity
from fogline.commands.command import CommandState
from fogline.errors import Misconfigured, Poison, SlowDown, Unreachable
from fogline_cloud import bridge_exchange, listing_client
from fogline_cloud.bridge.commands import list_sender, lists
from fogline_cloud.bridge.commands.command_search import CommandSearch
from fogline_cloud.bridge.commands.devices import Devices
from fogline_cloud.bridge.door.passwords import password_line
from fogline_cloud.devices.client import edit_device
from fogline_cloud.kafka.clients import KafkaClients
from fogline_lab.amqp import End, within
from fogline_lab.bridge.command_records import make_record
from fogline_lab.credentials.authority_folder import HERE, PASSWORD
from fogline_lab.line.line import serving
from fogline_lab.line.secure_line import secure
from fogline_lab.waiting import until

LIMIT_S = 60
GATEWAYS = [next(f"gw-{n}" for n in range(100) if shard_of(f"gw-{n}", 2) == shard) for shard in (0, 1)]
LAMPS = [f"lamp-{number:02}" for number in range(40)]


def command(number: int, **other):
    """A command, accepted at second `number`; every other one in the other shard."""
    attributes = {"gateway": GATEWAYS[number % 2], "accepted_ms": 1000 * number, "device": f"lamp-{number % 4}"}
    return make_record(f"{number:032x}", **{**attributes, **other})


async def test_commands_come_newest_first_of_all_shards_and_the_rest_is_counted(line):
    async with serving(line):
        await asyncio.to_thread(write, line, *map(command, range(20)))
        found = await commands(line, limit=5)
        assert (ids(found), found.more) == ([f"{number:032x}" for number in (19, 18, 17, 16, 15)], 15)
        found = await commands(line)
        assert (len(found.records), found.more) == (20, 0)
        assert "answer_base64" not in found.records[0]
        assert ids(await commands(line, since_ms=18_000)) == [f"{number:032x}" for number in (19, 18)]
        assert ids(await commands(line, "lamp-3")) == [f"{number:032x}" for number in (19, 15, 11, 7, 3)]


async def test_only_the_newest_record_of_a_command_counts(line):
    over = {"state": CommandState.SUCCEEDED, "status": 200, "reply_base64": "b2s=", "reply_type": "text/plain"}
    async with serving(line):
        await asyncio.to_thread(
            write, line, command(1), command(2), command(1, **over), command(1, **over, reply_delivered=True)
        )
        assert ids(await commands(line, state="ACCEPTED")) == [f"{2:032x}"]
        assert ids(await commands(line, state="SUCCEEDED")) == [f"{1:032x}"]
        (shown,) = (await commands(line, id=f"{1:032x}")).records
        assert (shown["state"], shown["answer_base64"], shown["answer_type"]) == ("SUCCEEDED", "b2s=", "text/plain")


async def test_devices_come_by_name_with_every_change_that_was_accepted_before(line):
    async with serving(line):
        for number, name in enumerate(reversed(LAMPS[:10])):
            body = b'{"type": "lamp", "tags": {"site": "%s"}}' % (b"berlin" if number % 2 else b"paris")
            assert await edited(line, name, "set", body) == ACCEPTED
            assert name in ids(await devices(line, name)), "the list does not have what was set before"
        found = await devices(line, where="type=lamp", limit=3)
        assert (ids(found), found.more) == (LAMPS[:3], 7)
        assert ids(await devices(line, where="site=b*")) == LAMPS[0:10:2]
        assert ids(await devices(line, "lamp-99")) == []
        assert await edited(line, LAMPS[0], "forget") == ACCEPTED
        assert LAMPS[0] not in ids(await devices(line))


@pytest.mark.parametrize(
    ("ask", "query", "why"),
    [
        (commands, {"state": "DONE"}, "state 'DONE': expected one of"),
        (commands, {"id": "5f/0c"}, "id '5f/0c'"),
        (commands, {"limit": 1001}, "limit: expected an integer from 1 to 1000"),
        (devices, {"limit": 0}, "limit: expected an integer from 1 to 250000"),
        (devices, {"where": "lamp"}, "where 'lamp': expected name=value"),
    ],
)
async def test_a_wrong_question_is_refused_by_name(line, ask, query, why):
    async with serving(line):
        with pytest.raises(Poison, match=why):
            await ask(line, **query)


@asynccontextmanager
async def client(line, name="reader", **more):
    """A client that decides itself what it takes."""
    made = End(**more)
    connection = await connect("127.0.0.1", line.port, Engine(name, properties={"tenant": line.tenant}), made)
    await within(made.is_open.wait(), "the client is not let in")
    try:
        yield made, connection
    finally:
        connection.abort()
        await within(made.is_closed.wait(), "the connection does not close")


def attach(line, connection, name, credit, kind="device", **properties):
    return connection.open_receiver(connection.open_session(), name, f"{kind}/{line.tenant}", credit, properties)


async def refusal(end, count=1):
    await until(lambda: len(end.link_conditions) == count, "the link is not ended")
    return end.link_conditions[-1]


async def test_a_property_that_the_bridge_does_not_know_is_refused_as_it_could_be_a_misspelt_filter(line):
    async with serving(line), client(line) as (end, connection):
        attach(line, connection, "a", 1, wehre="type=lamp")
        condition = await refusal(end)
        assert (condition.name, "'wehre'" in condition.description) == (INVALID_FIELD, True)


@pytest.mark.parametrize("credit", [0, 1000])
async def test_a_client_that_takes_nothing_gets_no_more_than_the_window_and_loses_its_link(line, monkeypatch, credit):
    monkeypatch.setattr(list_sender, "IDLE_S", 0.3)
    async with serving(line) as bridge:
        for name in LAMPS:
            assert await edited(line, name, "set", b'{"type": "lamp"}') == ACCEPTED
        async with client(line, answer=lambda _: None) as (end, connection):
            attach(line, connection, "a", credit)
            condition = await refusal(end)
            assert condition.name == RESOURCE_LIMIT
            assert len(end.messages) == min(credit, list_sender.WINDOW)
            assert not bridge._lists._lists
            assert not end.is_closed.is_set()


class Held:
    """Searches that wait until their client is gone, or until they are let go."""

    def __init__(self, monkeypatch):
        self.running = self.most = self.stopped = 0
        self.let_go = threading.Event()
        self._lock = threading.Lock()
        run = CommandSearch.run
        monkeypatch.setattr(CommandSearch, "run", lambda search, *more: self.hold(run, search, *more))

    def hold(self, run, search, clients, stopping):
        with self._lock:
            self.running += 1
            self.most = max(self.most, self.running)
        while not (self.let_go.wait(0.01) or stopping.is_set()):
            pass
        with self._lock:
            self.running -= 1
            self.stopped += stopping.is_set()
        return run(search, clients, stopping)


async def test_one_search_runs_at_a_time_a_client_has_few_and_all_end_with_their_clients(line, monkeypatch):
    held = Held(monkeypatch)
    async with serving(line) as bridge:
        async with client(line) as (end, connection), client(line, "other") as (_, second):
            for number in range(lists.MAX_OF_ONE + 1):
                attach(line, connection, f"a{number}", 10, "command")
            condition = await refusal(end)
            assert (condition.name, "reads 2 lists" in condition.description) == (RESOURCE_LIMIT, True)
            attach(line, second, "b", 10, "command")
            await until(lambda: len(bridge._lists._lists) == lists.MAX_OF_ONE + 1, "a list is not waiting")
            await until(lambda: held.running == 1, "nothing is read")
            found = await devices(line)
            assert found.records == [], "a list of devices waits for commands"
        await until(lambda: not bridge._lists._lists, "a list is left of a client that is gone")
    assert (held.most, held.running) == (1, 0)


async def test_a_busy_bridge_says_so_after_a_while_and_not_before(line, monkeypatch):
    held = Held(monkeypatch)
    monkeypatch.setattr(lists, "MAX_LISTS", 1)
    async with serving(line) as bridge, client(line) as (_, connection):
        attach(line, connection, "a", 10, "command")
        await until(lambda: held.running == 1, "nothing is read")
        asking = asyncio.create_task(commands(line))
        monkeypatch.setattr(bridge_exchange, "RETRY_S", 0.01)
        held.let_go.set()
        assert (await asking).records == []
        held.let_go.clear()
        attach(line, connection, "b", 10, "command")
        await until(lambda: held.running == 1, "nothing is read")
        monkeypatch.setattr(listing_client, "LIMIT_S", 0.1)
        with pytest.raises(SlowDown, match="busy with 1 lists"):
            await commands(line)
        held.let_go.set()
        assert bridge is not None


async def test_a_list_is_whole_although_its_bridge_stops_in_the_middle(line, monkeypatch):
    held = Held(monkeypatch)
    write(line, *map(command, range(5)))
    async with serving(line):
        asking = asyncio.create_task(commands(line))
        await until(lambda: held.running == 1, "nothing is read")
    assert (held.running, held.stopped) == (0, 1)
    held.let_go.set()
    async with serving(line):
        assert len((await within(asking, "the client does not ask again", LIMIT_S)).records) == 5


async def test_a_registry_that_is_not_read_yet_is_asked_again(line, monkeypatch):
    monkeypatch.setattr(Devices, "loaded", property(lambda _: False))
    async with line.bridge():
        monkeypatch.setattr(listing_client, "LIMIT_S", 0.1)
        with pytest.raises(SlowDown, match="the bridge is reading the registry of devices"):
            await devices(line)


@pytest.mark.parametrize("ask", [commands, devices])
async def test_list_is_retried_while_kafka_is_down_and_then_reports_the_reason(line, monkeypatch, ask):
    def fail(*_, **__):
        raise Unreachable("Kafka is away")

    async with serving(line):
        monkeypatch.setattr(KafkaClients, "stable_ends", fail)
        monkeypatch.setattr(KafkaClients, "bounds", fail)
        monkeypatch.setattr(listing_client, "LIMIT_S", 0.1)
        with pytest.raises(SlowDown, match="the list cannot be read at present: Kafka is away"):
            await ask(line)


async def test_filters_are_refused(line):
    def use():
        connection = BlockingConnection(f"127.0.0.1:{line.port}", allowed_mechs="ANONYMOUS", timeout=LIMIT_S)
        try:
            with pytest.raises(LinkDetached, match=NOT_IMPLEMENTED):
                connection.create_receiver(f"device/{line.tenant}", options=Selector("device = 'a'")).receive(timeout=LIMIT_S)
        finally:
            connection.close()

    async with serving(line):
        await asyncio.to_thread(use)


ACCESS = """
[[operator]]
name = "alice"
devices = ["lamp-*"]
commands = ["switch"]

[[manager]]
name = "bob"
devices = ["door-*"]

[[service]]
name = "weather"
devices = ["*"]

[[admin]]
name = "root"
"""


@pytest.mark.fault("S2")
async def test_client_sees_only_devices_that_it_may_command_or_manage(line):
    line, site = secure(line)
    (line.folder / "access.toml").write_text(ACCESS)
    site.users.write_text("\n".join(password_line(name, PASSWORD) for name in ("alice", "bob", "weather", "root")))
    line.cloud = replace(line.cloud, bridge=replace(line.cloud.bridge, access=str(line.folder / "access.toml")))

    def user(name):
        return ClientSecurity(Login(PLAIN, name, PASSWORD), site.context())

    write(
        line,
        *(
            command(number, device=device, name=name)
            for number, (device, name) in enumerate([("lamp-1", "switch"), ("lamp-1", "reboot"), ("door-1", "switch")])
        ),
    )
    async with serving(line):
        for name in ("lamp-1", "door-1", "other-1"):
            address, body = DeviceAddress(line.tenant, name), b'{"type": "thing"}'
            assert await edit_device(f"{HERE}:{line.port}", address, "set", body, security=user("root")) == ACCEPTED
        assert ids(await devices(line, security=user("root"))) == ["door-1", "lamp-1", "other-1"]
        assert ids(await devices(line, security=user("alice"))) == ["lamp-1"]
        assert ids(await devices(line, security=user("bob"))) == ["door-1"]
        assert len((await commands(line, security=user("root"))).records) == 3
        found = await commands(line, security=user("alice"), limit=1)
        assert (ids(found), found.more) == ([f"{0:032x}"], 0), "what it may not see is not counted either"
        assert ids(await commands(line, security=user("alice"), id=f"{1:032x}")) == []
        for ask, name in ((commands, "bob"), (commands, "weather"), (devices, "weather")):
            with pytest.raises(Misconfigured, match="may not receive at"):
                await ask(line, security=user(name))
        with pytest.raises(Misconfigured, match="may not receive at"):
            await devices(line, "door-1", security=user("alice"))


async def test_lists_count_against_the_quota_of_commands(line):
    (line.folder / "access.toml").write_text(
        '[[admin]]\nname = "*"\n[[quota]]\nkind = "client"\nname = "*"\ncommands_min = 1\n'
    )
    line.cloud = replace(line.cloud, bridge=replace(line.cloud.bridge, access=str(line.folder / "access.toml")))
    async with serving(line) as bridge, client(line) as (end, connection):
        attach(line, connection, "within the quota", 10)
        await until(lambda: end.messages and not bridge._lists._lists, "no list")
        for number in range(3):
            attach(line, connection, f"a{number}", 10)
        condition = await refusal(end)
        assert (condition.name, "over its quota" in condition.description) == (RESOURCE_LIMIT, True)
