"""Clients that others wrote: paho-mqtt and mosquitto_pub, both protocol versions."""

import asyncio
import shutil
from contextlib import asynccontextmanager

import paho.mqtt.client as paho
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties as PahoProperties

from fogline.commands.command import Reply
from fogline.events.event import Lane, Receipt
from fogline.events.identity import UniqueId
from fogline_edge.adapters.mqtt.protocol.primitives import V3
from fogline_edge.adapters.mqtt.session.client_protocol import READ_AHEAD
from fogline_lab.commands import MemoryCommands, make_command
from fogline_lab.port import MemoryPort

LIMIT_S = 60.0
VERSIONS = [paho.MQTTv311, paho.MQTTv5]


@asynccontextmanager
async def paho_client(listener, client_id, version, *, lasting=False, prepare=lambda _: None):
    """A connected paho client with its own thread. `lasting`: its session outlives it."""
    clean = None if version == paho.MQTTv5 else not lasting
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id=client_id, protocol=version, clean_session=clean)
    connected = Told()
    client.on_connect = lambda _c, _u, _f, code, _p: connected.tell(code.is_failure)
    more = {}
    if version == paho.MQTTv5 and lasting:
        more = {"clean_start": False, "properties": PahoProperties(PacketTypes.CONNECT)}
        more["properties"].SessionExpiryInterval = 3600
    prepare(client)
    client.connect_async(*listener.addresses["mqtt"], **more)
    client.loop_start()
    try:
        assert await connected.value() is False
        yield client
    finally:
        client.disconnect()
        await asyncio.to_thread(client.loop_stop)


class Told:
    """The first value that another thread tells."""

    def __init__(self):
        self._loop = asyncio.get_running_loop()
        self._future = self._loop.create_future()

    def tell(self, value):
        self._loop.call_soon_threadsafe(lambda: self._future.done() or self._future.set_result(value))

    async def value(self):
        async with asyncio.timeout(LIMIT_S):
            return await self._future


@pytest.mark.parametrize("version", VERSIONS)
async def test_paho_is_acknowledged_after_the_commit(listening, version):
    port = MemoryPort()
    port.hold()
    async with listening(port) as listener:
        async with paho_client(listener, "d1", version) as client:
            sent = [client.publish("telemetry", b"%d" % number, qos=1) for number in range(50)]
            await port.until(lambda: port.waiting > 0, "something is put")
            assert not any(each.is_published() for each in sent)
            port.release()
            for each in sent:
                await asyncio.to_thread(each.wait_for_publish, LIMIT_S)
            assert all(each.is_published() for each in sent)
        assert [each.data for each in port.arrivals] == [b"%d" % number for number in range(50)]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("qos", [1, 2])
async def test_paho_retransmission_on_a_new_connection_is_stored_once(listening, dial, version, qos):
    port = MemoryPort()
    port.hold()
    async with listening(port) as listener, paho_client(listener, "d1", version) as client:
        sent = client.publish("telemetry", b"once", qos=qos)
        await port.until(lambda: port.waiting == 1, "the first copy is put")
        async with dial(listener, "d1", version=V3) as (thief, _):
            thief.cut()
        await port.until(lambda: port.waiting == 2, "the resend is put")
        port.release()
        await asyncio.to_thread(sent.wait_for_publish, LIMIT_S)
        assert sent.is_published()
    assert port.receipts == [Receipt.STORED, Receipt.DUPLICATE]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("qos", [1, 2])
async def test_paho_gets_everything_through_that_it_has_when_it_connects(listening, version, qos):
    """G13: paho 2 keeps to no receive maximum then; it sends everything at once."""
    port, total = MemoryPort(), READ_AHEAD + 500
    port.hold()
    acknowledged, told = set(), Told()

    def on_publish(_client, _userdata, mid, _code, _properties):
        acknowledged.add(mid)
        if len(acknowledged) == total:
            told.tell(True)

    def prepare(client):
        client.on_publish = on_publish
        for number in range(total):
            client.publish("telemetry", b"%d" % number, qos=qos)

    async with listening(port) as listener:
        async with paho_client(listener, "d1", version, prepare=prepare):
            await port.until(lambda: port.waiting == READ_AHEAD, "as much is put as is read ahead")
            port.release()
            assert await told.value()
        assert (listener.counters.connections, listener.counters.malformed) == (1, 0)
    assert [each.data for each in port.arrivals] == [b"%d" % number for number in range(total)]


async def test_paho_reads_why_a_message_was_refused(listening):
    port = MemoryPort()
    async with listening(port) as listener:
        async with paho_client(listener, "d1", paho.MQTTv5) as client:
            told = Told()
            client.on_publish = lambda _c, _u, _m, code, _p: told.tell(code.value)
            client.publish("no/such/topic", b"x", qos=1)
            assert await told.value() == 0x90
        assert [each.type for each in port.arrivals] == ["dead"]


@pytest.mark.parametrize("version", VERSIONS)
async def test_paho_at_qos_2_is_received_after_the_commit_and_stored_once(listening, version):
    port = MemoryPort()
    port.hold()
    async with listening(port) as listener:
        async with paho_client(listener, "d1", version) as client:
            sent = [client.publish("telemetry", b"same", qos=2) for _ in range(50)]
            await port.until(lambda: port.waiting > 0, "something is put")
            assert not any(each.is_published() for each in sent)
            port.release()
            for each in sent:
                await asyncio.to_thread(each.wait_for_publish, LIMIT_S)
            assert all(each.is_published() for each in sent)
        assert listener.counters.completed == 50
    assert [each.data for each in port.arrivals] == [b"same"] * 50


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_paho_gets_a_command_and_answers(listening, version, qos):
    port, commands = MemoryPort(), MemoryCommands()

    def answers(client, _, message):
        reply = message.topic.replace("/req/", "/res/").rsplit("/", 1)[0] + "/200"
        client.publish(reply, b"done: " + message.payload, qos=qos)

    async with listening(port, commands) as listener, paho_client(listener, "lamp-1", version) as client:
        client.on_message = answers
        client.subscribe("command///req/#", qos)
        await commands.until(lambda: "lamp-1" in commands.devices, "the device is there")
        commands.send(make_command())
        await commands.until(lambda: len(commands.told) == 2, "the command is answered")
    assert set(commands.told) == {("taken", "CMD-1"), ("answer", "CMD-1")}
    assert commands.answers["CMD-1"].data == b'done: {"on":true}'


async def test_paho_reads_where_to_answer(listening):
    commands = MemoryCommands()
    async with listening(MemoryPort(), commands) as listener, paho_client(listener, "lamp-1", paho.MQTTv5) as client:
        client.on_message = lambda c, _, m: c.publish(m.properties.ResponseTopic, m.properties.CorrelationData, qos=1)
        client.subscribe("command//lamp-1/req/#", 1)
        await commands.until(lambda: "lamp-1" in commands.devices, "the device is there")
        commands.send(make_command())
        await commands.until(lambda: commands.answers, "the command is answered")
    assert commands.answers == {"CMD-1": Reply(200, b"CMD-1")}


@pytest.mark.parametrize("version", VERSIONS)
async def test_paho_comes_back_to_its_session(listening, version):
    commands = MemoryCommands()
    async with listening(MemoryPort(), commands) as listener:
        async with paho_client(listener, "lamp-1", version, lasting=True) as client:
            client.subscribe("command///req/#", 2)
            await commands.until(lambda: "lamp-1" in commands.devices, "the device is there")
        await commands.until(lambda: "lamp-1" not in commands.devices, "the device is away")
        told = Told()

        def listens(client):
            client.on_message = lambda _c, _u, message: told.tell(message.topic)

        async with paho_client(listener, "lamp-1", version, lasting=True, prepare=listens):
            await commands.until(lambda: "lamp-1" in commands.devices, "the device is there again")
            commands.send(make_command())
            assert await told.value() == "command///req/CMD-1/switch"
            await commands.until(lambda: commands.told == [("taken", "CMD-1")], "it is taken")


async def test_paho_reads_the_refusal_of_its_subscription(listening):
    async with listening(MemoryPort()) as listener, paho_client(listener, "d1", paho.MQTTv311) as client:
        told = Told()
        client.on_subscribe = lambda _c, _u, _m, codes, _p: told.tell([each.value for each in codes])
        client.subscribe("command/+/+/req/#", 1)
        assert await told.value() == [0x80]


async def test_a_cloud_event_of_paho_keeps_its_id(listening):
    port = MemoryPort()
    async with listening(port) as listener, paho_client(listener, "d1", paho.MQTTv5) as client:
        properties = PahoProperties(PacketTypes.PUBLISH)
        properties.ContentType = "application/senml+json"
        properties.UserProperty = [("specversion", "1.0"), ("id", "e-1"), ("time", "2024-01-01T00:00:00Z")]
        client.publish("telemetry/acme/d9", b"[]", qos=1, properties=properties)
        (arrival,) = await port.until_stored(1)
    assert (arrival.device, arrival.content_type) == ("d9", "application/senml+json")
    assert (arrival.evidence, arrival.time_ns) == (UniqueId(b"e-1"), 1_704_067_200_000_000_000)


async def mosquitto_pub(listener, *arguments):
    """Run it to its end. Returns its status and what it said."""
    program = shutil.which("mosquitto_pub")
    if program is None:
        pytest.skip("mosquitto_pub is not installed")
    host, port = listener.addresses["mqtt"]
    process = await asyncio.create_subprocess_exec(
        program, "-h", host, "-p", str(port), *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        async with asyncio.timeout(LIMIT_S):
            said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    return process.returncode, said.decode()


@pytest.mark.parametrize("version", ["mqttv311", "mqttv5"])
@pytest.mark.parametrize("qos", ["0", "1", "2"])
async def test_mosquitto_pub(listening, version, qos):
    port = MemoryPort()
    async with listening(port) as listener:
        status, said = await mosquitto_pub(listener, "-V", version, "-q", qos, "-i", "d1", "-t", "event", "-m", '{"alarm":1}')
        assert (status, said) == (0, "")
        (arrival,) = await port.until_stored(1)
    assert (arrival.device, arrival.lane, arrival.data, arrival.content_type) == (
        "d1",
        Lane.ALARM,
        b'{"alarm":1}',
        "application/json",
    )


async def test_mosquitto_pub_with_a_content_type_in_hono_s_way(listening):
    port = MemoryPort()
    async with listening(port) as listener:
        status, said = await mosquitto_pub(
            listener, "-q", "1", "-t", "telemetry/acme/4711/?content-type=text%2Fplain", "-m", "{}", "-r"
        )
        assert (status, said) == (0, "")
    (arrival,) = port.arrivals
    assert (arrival.device, arrival.content_type, arrival.channel) == ("4711", "text/plain", "telemetry/acme/4711")


@asynccontextmanager
async def mosquitto_sub(listener, *arguments):
    """Run it until the end of the block. Gives what it prints, line by line."""
    program = shutil.which("mosquitto_sub")
    if program is None:
        pytest.skip("mosquitto_sub is not installed")
    host, port = listener.addresses["mqtt"]
    process = await asyncio.create_subprocess_exec(
        program, "-h", host, "-p", str(port), *arguments, stdout=asyncio.subprocess.PIPE
    )
    try:
        yield process.stdout
    finally:
        process.terminate()
        await process.wait()


@pytest.mark.parametrize("version", ["mqttv311", "mqttv5"])
@pytest.mark.parametrize("qos", ["0", "1", "2"])
async def test_mosquitto_sub_gets_a_command_and_mosquitto_pub_answers(listening, version, qos):
    commands = MemoryCommands()
    both = ("-V", version, "-q", qos)
    async with (
        listening(MemoryPort(), commands) as listener,
        mosquitto_sub(listener, *both, "-i", "lamp-1", "-v", "-t", "command///req/#") as printed,
    ):
        await commands.until(lambda: "lamp-1" in commands.devices, "the device is there")
        commands.send(make_command())
        async with asyncio.timeout(LIMIT_S):
            assert await printed.readline() == b'command///req/CMD-1/switch {"on":true}\n'
        status, said = await mosquitto_pub(listener, *both, "-t", "command//lamp-1/res/CMD-1/202", "-m", "on")
        assert (status, said) == (0, "")
        await commands.until(lambda: len(commands.told) == 2, "taken and answered")
    assert commands.answers == {"CMD-1": Reply(202, b"on")}


async def test_mosquitto_sub_goes_on_with_its_session(listening):
    commands = MemoryCommands()
    lasting = ("-i", "lamp-1", "-c", "-q", "2", "-v", "-t", "c///q/#")
    async with listening(MemoryPort(), commands) as listener:
        for number in range(2):
            async with mosquitto_sub(listener, *lasting) as printed:
                await commands.until(lambda: "lamp-1" in commands.devices, "the device is there")
                commands.send(make_command(id=f"CMD-{number}", reply=False))
                async with asyncio.timeout(LIMIT_S):
                    assert await printed.readline() == b'c///q//switch {"on":true}\n'
            await commands.until(lambda: "lamp-1" not in commands.devices, "the device is away")
        assert [what for what, _ in commands.told].count("lost") == 0
