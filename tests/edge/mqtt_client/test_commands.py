"""Commands to Zigbee devices through a real broker: what the program answers, and the verdict of each command."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from fogline.commands.command import Deadline
from fogline_edge.adapters.mqtt_client.state import read_clients
from fogline_edge.machine.boot import beacon
from fogline_lab.clock import pass_time
from fogline_lab.commands import MemoryCommands, make_command
from fogline_lab.device.zigbee2mqtt_program import NO_ROUTE, REFUSED, TIMEOUT, Zigbee2MqttProgram
from fogline_lab.port import MemoryPort
from fogline_lab.waiting import until

PLUG, LAMP, GROUP = "0x00158d00018255df", "0x90fd9ffffe6494fc", "hall:20lights"
DEVICES = {PLUG: "hall/plug", LAMP: "my_bulb"}


def switch(device=PLUG, **more):
    return make_command(device, "set", **{"data": b'{"state": "ON"}', **more})


@asynccontextmanager
async def running(broker):
    program = await asyncio.to_thread(Zigbee2MqttProgram, broker.port, dict(DEVICES), ("hall lights",))
    try:
        yield program
    finally:
        await asyncio.to_thread(program.close)


@pytest.fixture
def site(broker, connecting):
    """A broker with Zigbee2MQTT, and a client whose devices are reachable."""

    @asynccontextmanager
    async def site(port=None, **settings):
        commands = MemoryCommands()
        async with (
            running(broker) as program,
            connecting(
                port or MemoryPort(), broker, command_port=commands, profile="zigbee2mqtt", send_commands=True, **settings
            ) as client,
        ):
            await commands.until(lambda: {PLUG, LAMP, GROUP} <= commands.devices.keys(), "the devices are reachable")
            yield program, commands, client

    return site


async def shown(program, client, name, **state):
    """The device has shown a state, and the client knows it."""
    before = client.counters.received
    await asyncio.to_thread(program.report, name, **state)
    await until(lambda: client.counters.received > before, "it does not arrive", pause_s=0.001)


async def taken(program):
    return await asyncio.to_thread(program.next_command)


async def test_a_changed_state_is_the_answer(site):
    async with site() as (program, commands, client):
        await shown(program, client, "hall/plug", state="OFF", power=0)
        commands.send(switch())
        assert await taken(program) == ("zigbee2mqtt/hall/plug/set", {"state": "ON"})
        await commands.until(lambda: "CMD-1" in commands.answers, "it is answered")
        answer = commands.answers["CMD-1"]
        assert (answer.status, answer.data, answer.content_type) == (200, b'{"state": "ON", "power": 0}', "application/json")
        assert commands.told == [("answer", "CMD-1")]


@pytest.mark.parametrize("known", [True, False])
async def test_a_state_that_the_device_may_have_had_before_decides_only_at_the_end_of_the_time(site, known):
    """Any report of another attribute looks like that: Zigbee2MQTT publishes what it remembers."""
    async with site() as (program, commands, client):
        if known:
            await shown(program, client, "hall/plug", state="ON", power=3)
        program.behaviour["hall/plug"] = "silent"
        commands.send(switch())
        await taken(program)
        await shown(program, client, "hall/plug", state="ON", power=4)
        assert commands.told == []
        pass_time(15)
        await commands.until(lambda: "CMD-1" in commands.answers, "it is answered")
        assert commands.answers["CMD-1"].status == 202


@pytest.mark.parametrize(("error", "status"), [(REFUSED, 422), (NO_ROUTE, 503)])
async def test_a_logged_failure_is_the_answer(site, error, status):
    async with site() as (program, commands, _):
        program.behaviour["hall/plug"] = error
        commands.send(switch())
        await commands.until(lambda: "CMD-1" in commands.answers, "it is answered")
        answer = commands.answers["CMD-1"]
        assert (answer.status, answer.content_type) == (status, "text/plain")
        assert answer.data.decode() == f"Publish 'set' 'state' to 'hall/plug' failed: 'Error: {error}'"


async def test_a_logged_timeout_is_in_doubt_and_a_late_report_is_the_answer(site):
    async with site() as (program, commands, client):
        await shown(program, client, "hall/plug", state="OFF")
        program.behaviour["hall/plug"] = TIMEOUT
        commands.send(switch())
        await commands.until(lambda: commands.told == [("lost", "CMD-1")], "it is in doubt")
        await shown(program, client, "hall/plug", state="ON")
        await commands.until(lambda: "CMD-1" in commands.answers, "it is answered")
        assert commands.answers["CMD-1"].status == 200


@pytest.mark.parametrize("reported", [{}, {"state": "OFF"}, {"power": 5}])
async def test_silence_another_value_and_another_attribute_are_in_doubt(site, reported):
    async with site() as (program, commands, client):
        await shown(program, client, "hall/plug", state="OFF", power=0)
        program.behaviour["hall/plug"] = "silent"
        commands.send(switch())
        await taken(program)
        if reported:
            await shown(program, client, "hall/plug", **reported)
        assert commands.told == []
        pass_time(15)
        await commands.until(lambda: commands.told == [("lost", "CMD-1")], "it is in doubt")


async def test_a_late_answer_replaces_the_doubt(site):
    async with site() as (program, commands, client):
        await shown(program, client, "hall/plug", state="OFF")
        program.behaviour["hall/plug"] = "silent"
        commands.send(switch())
        await taken(program)
        pass_time(15)
        await commands.until(lambda: commands.told == [("lost", "CMD-1")], "it is in doubt")
        await shown(program, client, "hall/plug", state="ON")
        await commands.until(lambda: "CMD-1" in commands.answers, "it is answered")


async def test_reports_that_the_broker_queued_before_the_command_are_no_echo(broker, connecting):
    """The gateway was away while the plug was switched on and off again. It gets the reports after it has sent its command."""
    port, commands = MemoryPort(), MemoryCommands()
    settings = {"profile": "zigbee2mqtt", "send_commands": True}
    async with running(broker) as program:
        async with connecting(port, broker, command_port=commands, **settings) as client:
            await commands.until(lambda: PLUG in commands.devices, "the device is reachable")
            await shown(program, client, "hall/plug", state="OFF")
        program.behaviour["hall/plug"] = "silent"
        for state in ("ON", "OFF"):
            await asyncio.to_thread(program.publish, "hall/plug", f'{{"state": "{state}"}}', 1)

        class Sent(MemoryCommands):
            def reachable(self, device, by):
                super().reachable(device, by)
                if device == PLUG and not self.known:
                    self.send(switch())

        commands = Sent()
        async with connecting(port, broker, command_port=commands, **settings) as client:
            await taken(program)
            await shown(program, client, "my_bulb", state="ON")
            assert commands.told == []
            pass_time(15)
            await commands.until(lambda: commands.told == [("lost", "CMD-1")], "it is in doubt")


async def test_two_devices_get_their_own_verdicts(site):
    async with site() as (program, commands, client):
        await shown(program, client, "hall/plug", state="OFF")
        await shown(program, client, "my_bulb", state="OFF")
        program.behaviour["hall/plug"] = REFUSED
        commands.send(switch())
        commands.send(switch(device=LAMP, id="CMD-2"))
        await commands.until(lambda: len(commands.answers) == 2, "both are answered")
        assert {name: each.status for name, each in commands.answers.items()} == {"CMD-1": 422, "CMD-2": 200}


async def test_a_group_is_commanded_by_its_name(site):
    async with site() as (program, commands, client):
        await shown(program, client, "hall lights", state="OFF")
        commands.send(switch(device=GROUP))
        assert await taken(program) == ("zigbee2mqtt/hall lights/set", {"state": "ON"})
        await commands.until(lambda: "CMD-1" in commands.answers, "it is answered")
        assert commands.answers["CMD-1"].status == 200


async def test_a_scene_has_no_echo_so_only_a_one_way_command_succeeds(site):
    async with site() as (program, commands, _):
        scene = {"name": "set", "data": b'{"scene_recall": 3}'}
        commands.send(make_command(GROUP, **scene))
        await taken(program)
        pass_time(15)
        await commands.until(lambda: commands.told == [("lost", "CMD-1")], "it is in doubt")
        commands.send(make_command(GROUP, id="CMD-2", reply=False, **scene))
        await commands.until(lambda: commands.told[-1] == ("taken", "CMD-2"), "the broker has confirmed it")


async def test_the_program_itself_answers_with_the_transaction(site):
    async with site() as (program, commands, _):
        commands.send(make_command("zigbee2mqtt", "permit_join", data=b'{"time": 20}'))
        topic, payload = await taken(program)
        assert (topic, payload) == ("zigbee2mqtt/bridge/request/permit_join", {"time": 20, "transaction": "CMD-1"})
        await commands.until(lambda: "CMD-1" in commands.answers, "it is answered")
        commands.send(make_command("zigbee2mqtt", "device.remove", id="CMD-2", data=b'{"id": "my_bulb"}'))
        await commands.until(lambda: len(commands.answers) == 2, "both are answered")
        assert {name: each.status for name, each in commands.answers.items()} == {"CMD-1": 200, "CMD-2": 500}


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("set", b"ON", 'for example {"state": "ON"}'),
        ("set", b'{"transition": 2}', "names no attribute"),
        ("switch", b"{}", "has no command switch; it has set, get"),
    ],
)
async def test_a_command_that_cannot_be_published_is_refused(site, name, data, text):
    async with site() as (_, commands, client):
        told = []
        commands.refused = lambda _, why: told.append(why)
        commands.send(make_command(PLUG, name, data=data))
        assert text in told[0]
        assert client.command_counters.published == 0


async def test_a_device_that_is_offline_is_unreachable_until_it_is_back(site, eventually):
    async with site() as (program, commands, _):
        await asyncio.to_thread(program.set_available, "hall/plug", online=False)
        await commands.until(lambda: PLUG not in commands.devices, "it is unreachable")
        assert LAMP in commands.devices
        await asyncio.to_thread(program.set_available, "hall/plug", online=True)
        await commands.until(lambda: PLUG in commands.devices, "it is reachable again")


async def test_status_says_how_many_devices_commands_reach(site):
    port = MemoryPort()
    async with site(port) as (program, commands, _):
        await asyncio.to_thread(program.set_available, "hall/plug", online=False)
        await commands.until(lambda: PLUG not in commands.devices, "it is unreachable")
        ((_, state),) = read_clients(port.kept("mqtt-client/").items())
        assert state.sentence.endswith("commands reach 3 of 4 devices, 1 are offline")


async def test_without_its_program_no_device_is_reachable(site):
    async with site() as (program, commands, _):
        program._retain("bridge/state", {"state": "offline"})
        await commands.until(lambda: not commands.devices, "none is reachable")


async def test_offline_devices_are_known_after_a_restart(broker, connecting):
    port, commands = MemoryPort(), MemoryCommands()
    settings = {"profile": "zigbee2mqtt", "send_commands": True}
    async with running(broker) as program:
        async with connecting(port, broker, command_port=commands, **settings):
            await commands.until(lambda: PLUG in commands.devices, "it is reachable")
            await asyncio.to_thread(program.set_available, "hall/plug", online=False)
            await commands.until(lambda: PLUG not in commands.devices, "it is unreachable")
        commands = MemoryCommands()
        async with connecting(port, broker, command_port=commands, **settings):
            await commands.until(lambda: LAMP in commands.devices, "the other one is reachable")
            assert PLUG not in commands.devices


async def test_without_the_setting_nothing_is_sent(broker, connecting, eventually):
    commands = MemoryCommands()
    async with running(broker), connecting(MemoryPort(), broker, command_port=commands, profile="zigbee2mqtt") as client:
        await eventually(lambda: client.counters.learned, "the devices are known")
        assert commands.devices == {}
        assert client.command_counters is None


async def test_the_broker_refuses_a_user_who_may_not_publish(mosquitto, connecting, folder):
    (folder / "acl").write_text("topic read zigbee2mqtt/#\n")
    broker, commands = mosquitto(f"acl_file {folder}/acl"), MemoryCommands()
    told = []
    commands.refused = lambda _, why: told.append(why)
    async with connecting(MemoryPort(), broker, command_port=commands, profile="zigbee2mqtt", send_commands=True) as client:
        commands_of = client._commands
        commands_of.profile.directory.replace({PLUG: "hall/plug"})
        commands_of._refresh([PLUG])
        commands.send(switch())
        await until(lambda: told, "nothing is told", pause_s=0.001)
    assert told == ["the broker refuses a message to zigbee2mqtt/hall/plug/set: not authorized"]


async def test_a_connection_that_ends_before_the_broker_confirms_leaves_a_doubt(site):
    async with site() as (_, commands, client):
        link = client._inflow.connection
        link._owner = _Deaf(client)
        commands.send(switch())
        link.cut()
        await commands.until(lambda: commands.told == [("lost", "CMD-1")], "it is in doubt")


async def test_a_broker_that_restarts_after_it_confirmed_still_brings_the_echo(site, broker):
    async with site() as (program, commands, client):
        await shown(program, client, "hall/plug", state="OFF")
        program.behaviour["hall/plug"] = "silent"
        commands.send(switch())
        await taken(program)
        entry = client._commands._open["CMD-1"]
        await until(lambda: entry.exchange._is_delivered and not entry.packet_id, "the broker does not deliver it")
        broker.kill()
        await commands.until(lambda: not commands.devices, "none is reachable")
        broker.start()
        await commands.until(lambda: PLUG in commands.devices, "it is reachable again")
        assert commands.told == []
        await until(lambda: program.is_connected, "the program is not back")
        await shown(program, client, "hall/plug", state="ON")
        await commands.until(lambda: "CMD-1" in commands.answers, "it is answered")


async def test_commands_that_the_broker_does_not_confirm_are_bounded(site, monkeypatch):
    monkeypatch.setattr("fogline_edge.adapters.mqtt_client.commands.MAX_UNCONFIRMED", 1)
    async with site() as (_, commands, client):
        client._inflow.connection._owner = _Deaf(client)
        commands.send(switch())
        commands.send(switch(LAMP, id="CMD-2"))
        assert commands.told == [("not_sent", "CMD-2")]


async def test_at_the_deadline_a_connection_with_an_unconfirmed_command_ends(site):
    async with site() as (_, commands, client):
        link = client._inflow.connection
        link._owner = _Deaf(client)
        command = switch()
        executor = commands.devices[PLUG]
        commands.send(command)
        executor.abandon(command)
        assert link.ended.done()
        assert "by its deadline" in link.ended.result()


async def test_the_broker_keeps_a_command_no_longer_than_its_deadline(site, broker):
    """The program is away with its session; the command has expired when it comes back."""
    async with site() as (program, commands, client):
        program._client.disconnect()
        now = beacon()
        commands.send(switch(deadline=Deadline(now.boot_id, now.boottime_ms + 1500)))
        await commands.until(lambda: client.command_counters.confirmed == 1, "the broker has it")
        await asyncio.sleep(2.1)  # the time is the broker's
        await asyncio.to_thread(program._client.reconnect)
        await shown(program, client, "my_bulb", state="ON")
        assert program.commands.empty()


class _Deaf:
    """The owner of a connection that does not get the broker's PUBACK."""

    def __init__(self, client):
        self._client = client

    def __getattr__(self, name):
        return getattr(self._client, name)

    def published(self, connection, packet_id, code):
        pass
