"""Programs on the site that subscribe to events: paho, mosquitto_sub and bytes, at a listener with a real outbox."""

import asyncio
import contextlib
import shutil
import sqlite3
from contextlib import asynccontextmanager

import paho.mqtt.client as paho
import pytest

from fogline.errors import Misconfigured
from fogline_edge.adapters.mqtt.protocol.packets import Ack, Connack, Disconnect, Publish, Suback, Subscribe, Unsubscribe, Will
from fogline_edge.adapters.mqtt.protocol.primitives import V3, V5, PacketType, Reason
from fogline_edge.adapters.mqtt.protocol.properties import Properties
from fogline_edge.adapters.mqtt.server.listener import check_mqtt
from fogline_edge.operate.status import read_status
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.rule_settings import ActionTable, ReactTable, RuleSettings
from fogline_edge.settings import EdgeSettings, MqttSettings, OutboxSettings
from fogline_lab.amqp import within
from fogline_lab.credentials.mosquitto_passwords import mosquitto_line

LIMIT_S = 60.0
VERSIONS = pytest.mark.parametrize("version", [V3, V5], ids=["3.1.1", "5"])
HALL = {"username": "hall", "password": b"hall"}
RIGHTS = {"hall": ["telemetry/acme/#", "event/#"], "one": ["telemetry/acme/d1/#"]}


@pytest.fixture
def users(tmp_path):
    path = tmp_path / "passwd"
    path.write_text("\n".join(mosquitto_line(name, name.encode()) for name in ("hall", "one", "d1", "d2")))
    path.chmod(0o600)
    return str(path)


@pytest.fixture
def gateway(tmp_path, listening, users):
    """Starts a gateway without a bridge; each one goes on where the former ended."""

    @asynccontextmanager
    async def gateway(rules=RuleSettings(), **more):  # noqa: B008 - a constant
        outbox = Outbox.open(
            EdgeSettings(
                tenant="acme",
                gateway="gw-1",
                data=str(tmp_path / "data"),
                outbox=OutboxSettings(group_commit_ms=0),
                rules=rules,
            )
        )
        settings = {"users": users, "subscribers": RIGHTS, "acl": {"d1": ["d2"]}, **more}
        try:
            async with listening(outbox.port, **settings) as listener:
                yield listener
        finally:
            await outbox.close()

    return gateway


@pytest.fixture
def device(dial):
    """Publishes at QoS 1 as device d1, and waits for each PUBACK."""

    @asynccontextmanager
    async def device(listener):
        async with dial(listener, "d1", version=V5, username="d1", password=b"d1") as (wire, _):
            number = 0

            async def publish(topic: str, *payloads: bytes, **more) -> None:
                nonlocal number
                for payload in payloads:
                    number += 1
                    await wire.publish(topic, payload, number % 60_000 + 1, **more)
                    assert isinstance(await wire.receive(), Ack)

            yield publish

    return device


async def payloads(wire, count: int, *, acknowledge: bool = True) -> list[bytes]:
    """Return the payloads of the next PUBLISH packets."""
    found = []
    while len(found) < count:
        packet = await wire.receive()
        assert isinstance(packet, Publish), packet
        assert not packet.retain
        found.append(packet.payload)
        if packet.qos and acknowledge:
            await wire.send(Ack(kind=PacketType.PUBACK, packet_id=packet.packet_id))
    return found


@pytest.mark.parametrize("version", [paho.MQTTv311, paho.MQTTv5])
async def test_paho_gets_each_event_once_with_its_attributes(gateway, device, version):
    loop, came = asyncio.get_running_loop(), asyncio.Queue()
    async with gateway() as listener, device(listener) as publish:
        client = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id="viewer", protocol=version)
        client.username_pw_set("hall", "hall")
        client.on_connect = lambda client, *_: client.subscribe("telemetry/acme/+/#", qos=1)
        client.on_subscribe = lambda _c, _u, _m, codes, _p: loop.call_soon_threadsafe(came.put_nowait, [str(x) for x in codes])
        client.on_message = lambda _c, _u, each: loop.call_soon_threadsafe(came.put_nowait, each)
        client.connect_async(*listener.addresses["mqtt"])
        client.loop_start()
        try:
            assert await within(came.get(), "no SUBACK") == ["Granted QoS 1"]
            await publish("telemetry", b"21.5", b"21.5")
            await publish("event//d2", b"open")
            await publish("t//d2", b"7")
            found = [await within(came.get(), "no event") for _ in range(3)]
        finally:
            client.disconnect()
            await asyncio.to_thread(client.loop_stop)
    assert [(each.topic, each.payload, each.qos, each.retain) for each in found] == [
        ("telemetry/acme/d1", b"21.5", 1, False),
        ("telemetry/acme/d1", b"21.5", 1, False),
        ("telemetry/acme/d2", b"7", 1, False),
    ]
    if version == paho.MQTTv5:
        attributes = [dict(each.properties.UserProperty) for each in found]
        assert len({each["id"] for each in attributes}) == 3
        assert {each["source"] for each in attributes} == {"/acme/devices/d1", "/acme/devices/d2"}
        assert attributes[0]["specversion"] == "1.0"


@pytest.mark.skipif(shutil.which("mosquitto_sub") is None, reason="mosquitto-clients is not installed")
@pytest.mark.parametrize("version", ["mqttv311", "mqttv5"])
async def test_mosquitto_sub_shows_alarms(gateway, device, version):
    async with gateway() as listener, device(listener) as publish:
        host, port = listener.addresses["mqtt"]
        command = ["mosquitto_sub", "-V", version, "-h", host, "-p", str(port), "-u", "hall", "-P", "hall", "-q", "1"]
        process = await asyncio.create_subprocess_exec(
            *command, "-t", "event/#", "-C", "2", "-F", "%t %p", stdout=asyncio.subprocess.PIPE
        )
        async with asyncio.timeout(LIMIT_S):
            while not listener.counters.subscribed:  # noqa: ASYNC110 - the listener tells no one
                await asyncio.sleep(0.02)
        await publish("telemetry", b"no alarm")
        await publish("event", b"fire", b"water")
        out, _ = await within(process.communicate(), "mosquitto_sub does not end")
    assert out == b"event/acme/d1 fire\nevent/acme/d1 water\n"


@VERSIONS
@pytest.mark.parametrize(
    ("topic_filter", "code"),
    [
        ("telemetry/acme/d1/#", 1),
        ("telemetry/acme/d1/+/x", 1),
        ("telemetry/acme/d2/#", Reason.NOT_AUTHORIZED),
        ("telemetry/acme/+/#", Reason.NOT_AUTHORIZED),
        ("#", Reason.NOT_AUTHORIZED),
        ("command///req/#", Reason.NOT_AUTHORIZED),
        ("$share/g/telemetry/acme/d1/#", Reason.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED),
        ("$SYS/#", Reason.NOT_AUTHORIZED),
    ],
)
async def test_subscriber_gets_what_its_rights_cover_and_nothing_else(gateway, dial, version, topic_filter, code):
    async with gateway() as listener, dial(listener, "x", version=version, username="one", password=b"one") as (wire, _):
        await wire.send(Subscribe(packet_id=1, filters=((topic_filter, 2),)))
        answer = await wire.receive()
        assert isinstance(answer, Suback)
        assert answer.codes == (code if version == V5 or code == 1 else 0x80,), "QoS 2 is granted as QoS 1"


@VERSIONS
async def test_subscriber_that_publishes_is_ended_and_nothing_is_stored(gateway, dial, version):
    async with gateway() as listener, dial(listener, "x", version=version, **HALL) as (wire, _):
        await wire.publish("telemetry", b"21")
        answer = await wire.receive()
        assert answer == (Disconnect(code=Reason.NOT_AUTHORIZED) if version == V5 else None)
        assert (listener.counters.refused, listener.counters.received) == (1, 0)


async def test_subscriber_has_no_will_and_a_device_no_events(gateway, dial):
    async with gateway() as listener:
        async with dial(listener, "x", will=Will("telemetry", b"gone"), **HALL) as (_, connack):
            assert connack.code == Reason.NOT_AUTHORIZED
        async with dial(listener, "d1", username="d1", password=b"d1") as (wire, _):
            await wire.send(Subscribe(packet_id=1, filters=(("telemetry/acme/d1/#", 1),)))
            answer = await wire.receive()
            assert answer.codes[0] >= Reason.UNSPECIFIED


async def test_slow_subscriber_slows_neither_storage_nor_a_fast_one_and_its_losses_are_counted(
    gateway, dial, device, monkeypatch
):
    """The slow one reads nothing at all. Its session keeps the newest events for it."""
    monkeypatch.setattr("fogline_edge.adapters.mqtt.session.outbound_events.MAX_WAITING", 100)
    big, lasting = b"x" * 20_000, {"clean_start": False, "properties": Properties(session_expiry_s=3600)}
    async with gateway() as listener, device(listener) as publish:
        async with dial(listener, "slow", **HALL, **lasting) as (slow, _), dial(listener, "fast", **HALL) as (fast, _):
            await slow.subscribe("telemetry/acme/#")
            await fast.subscribe("telemetry/acme/#")
            for number in range(150):
                await publish("telemetry", b"%d " % number + big)
                assert (await payloads(fast, 1))[0].startswith(b"%d " % number)
            assert 90 < listener.counters.forward_discarded["queue"] <= 100, "1 MiB holds some 50 of these events"
        async with dial(listener, "slow", **HALL, **lasting) as (again, connack):
            assert connack.session_present
            kept = 150 - listener.counters.forward_discarded["queue"]
            found = [int(each.split()[0]) for each in await payloads(again, kept)]
            assert found == sorted(found)
            assert found[-40:] == list(range(110, 150)), "the newest events are kept"


async def test_subscriber_at_qos_0_that_does_not_read_is_ended_and_holds_no_memory(gateway, dial, device, monkeypatch):
    monkeypatch.setattr("fogline_edge.adapters.mqtt.server.connection.DRAIN_S", 0.5)
    async with gateway() as listener, device(listener) as publish, dial(listener, "slow", **HALL) as (slow, _):
        await slow.subscribe("telemetry/acme/#", qos=0)
        slow.reader._transport.pause_reading()
        async with asyncio.timeout(LIMIT_S):
            while not listener.counters.slow_reader:
                await publish("telemetry", b"x" * 100_000)
        assert listener.counters.forward_discarded["qos0"] > 0
        assert listener.counters.forwarded < 100, "what the kernel's buffers and 64 KiB hold"


async def test_session_outlives_its_connection_and_ends_with_the_gateway(gateway, dial, device):
    lasting = {"clean_start": False, "properties": Properties(session_expiry_s=3600)}
    async with gateway() as listener, device(listener) as publish:
        async with dial(listener, "v", **HALL, **lasting) as (wire, connack):
            assert not connack.session_present
            await wire.subscribe("telemetry/acme/#")
            await publish("telemetry", b"1")
            assert await payloads(wire, 1, acknowledge=False) == [b"1"]
        await publish("telemetry", b"2")
        async with dial(listener, "v", **HALL, **lasting) as (wire, connack):
            assert connack.session_present
            assert await payloads(wire, 2) == [b"1", b"2"]
    async with gateway() as listener, device(listener) as publish, dial(listener, "v", **HALL, **lasting) as (wire, connack):
        assert isinstance(connack, Connack)
        assert not connack.session_present, "its client must subscribe again"
        await publish("telemetry", b"3")
        await wire.subscribe("telemetry/acme/#")
        await publish("telemetry", b"4")
        assert await payloads(wire, 1) == [b"4"], "live, and nothing retained"


async def test_without_a_subscriber_the_outbox_reports_nothing(gateway, dial, device, monkeypatch):
    reported = []
    monkeypatch.setattr(
        "fogline_edge.adapters.mqtt.server.event_feed.EventFeed._committed", lambda _, bodies: reported.extend(bodies)
    )
    async with gateway() as listener, device(listener) as publish:
        await publish("telemetry", b"1")
        async with dial(listener, "v", **HALL) as (wire, _):
            await publish("telemetry", b"2")
            assert reported == [], "a connection without a subscription costs nothing either"
            await wire.subscribe("telemetry/acme/#")
            await publish("telemetry", b"3")
            assert len(reported) == 1
            await wire.send(Unsubscribe(packet_id=2, filters=("telemetry/acme/#",)))
            assert isinstance(await wire.receive(), Suback)
            await publish("telemetry", b"4")
        assert len(reported) == 1


async def test_event_reaches_a_subscriber_only_after_its_commit(tmp_path, users, dial, listening):
    """The writer is held in the transaction of the event."""
    outbox = Outbox.open(EdgeSettings(tenant="acme", gateway="gw-1", data=str(tmp_path / "data")))
    held, entered = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def hold(*_: object) -> None:
        loop.call_soon_threadsafe(entered.set)
        asyncio.run_coroutine_threadsafe(held.wait(), loop).result(LIMIT_S)

    try:
        async with (
            listening(outbox.port, users=users, subscribers=RIGHTS) as listener,
            dial(listener, "v", **HALL) as (wire, _),
            dial(listener, "d1", username="d1", password=b"d1") as (d1, _),
        ):
            await wire.subscribe("telemetry/acme/#")
            await d1.publish("telemetry", b"1")
            outbox.port.act(hold, lambda _: None, urgent=True)
            await within(entered.wait(), "the transaction does not begin")
            await wire.alive()
            held.set()
            assert isinstance(await d1.receive(), Ack)
            assert await payloads(wire, 1) == [b"1"]
    finally:
        held.set()
        await outbox.close()


async def test_resent_message_is_delivered_once_and_dead_letters_never(gateway, dial):
    async with (
        gateway() as listener,
        dial(listener, "d1", username="d1", password=b"d1") as (d1, _),
        dial(listener, "v", **HALL) as (wire, _),
    ):
        await wire.subscribe("telemetry/acme/#", "event/#")
        for dup in (False, True):
            await d1.publish("telemetry", b"1", 7, dup=dup)
        assert isinstance(await d1.receive(), Ack)
        await d1.publish("nowhere", b"dead", 8)
        await d1.publish("telemetry", b"2", 9)
        assert await payloads(wire, 2) == [b"1", b"2"]


async def test_rules_publish_messages_of_their_own(gateway, dial):
    async with gateway(subscribers={"hall": ["rule/#"]}) as listener, dial(listener, "v", **HALL) as (wire, _):
        listener.dispatch.feed.publish("rule/fan", b"early", {})
        await wire.subscribe("rule/+")
        listener.dispatch.feed.publish("rule/fan", b"on", {"rule": "fan"}, "text/plain")
        packet = await wire.receive()
        assert isinstance(packet, Publish)
        assert (packet.topic, packet.payload, packet.properties.user) == ("rule/fan", b"on", (("rule", "fan"),))
        assert packet.properties.content_type == "text/plain"


TO_RULE_HOT = RuleSettings(react=[ReactTable(name="hot", when="event.value.t > 26.0", then=[ActionTable(topic="rule/hot")])])


async def test_message_of_a_rule_follows_its_event_and_leaves_nothing_behind(gateway, dial, device, tmp_path):
    rights = {"hall": ["rule/#", "telemetry/acme/#"]}
    async with gateway(TO_RULE_HOT, subscribers=rights) as listener, device(listener) as publish:
        await publish("telemetry", b'{"t": 28}', b'{"t": 20}')
        async with dial(listener, "v", **HALL) as (wire, _):
            await wire.subscribe("rule/#", "telemetry/acme/#")
            await publish("telemetry", b'{"t": 27}')
            event, message = await wire.receive(), await wire.receive()
            assert isinstance(event, Publish)
            assert isinstance(message, Publish)
            assert (event.topic, message.topic, message.payload) == ("telemetry/acme/d1", "rule/hot", b'{"t": 27}')
            cause = dict(event.properties.user)["id"]
            assert dict(message.properties.user) == {"rule": "hot", "event": cause, "device": "d1"}
    with contextlib.closing(sqlite3.connect(tmp_path / "data" / "outbox.db")) as file:
        assert file.execute("SELECT key FROM kept WHERE key GLOB 'rule-message/*'").fetchall() == []


async def test_message_that_a_former_run_did_not_publish_is_counted_in_doubt_once(gateway, dial, device, tmp_path):
    async with gateway(TO_RULE_HOT, subscribers={"hall": ["rule/#"]}) as listener, device(listener) as publish:
        listener.dispatch.feed.close()
        await publish("telemetry", b'{"t": 27}')
    for rules in (RuleSettings(), TO_RULE_HOT):
        async with gateway(rules, subscribers={"hall": ["rule/#"]}) as listener, dial(listener, "v", **HALL) as (wire, _):
            await wire.subscribe("rule/#")
            await wire.alive()
    assert read_status(tmp_path / "data")["rules"] == {"hot": {"fired": 1, "in_doubt": 1}}


async def test_overlapping_subscriptions_give_one_copy_with_all_identifiers(gateway, dial, device):
    async with gateway() as listener, device(listener) as publish, dial(listener, "v", **HALL) as (wire, _):
        for number, (name, qos) in enumerate((("telemetry/acme/#", 0), ("telemetry/acme/d1/#", 1)), 1):
            await wire.send(
                Subscribe(packet_id=number, filters=((name, qos),), properties=Properties(subscription_id=(number,)))
            )
            assert isinstance(await wire.receive(), Suback)
        await publish("telemetry", b"1")
        packet = await wire.receive()
        assert isinstance(packet, Publish)
        assert (packet.qos, packet.properties.subscription_id) == (1, (1, 2))
        await wire.alive()


def test_subscribers_need_a_login(tmp_path):
    with pytest.raises(Misconfigured, match=r"mqtt\.subscribers names users, and nobody logs in"):
        check_mqtt("acme", MqttSettings(subscribers=RIGHTS))
