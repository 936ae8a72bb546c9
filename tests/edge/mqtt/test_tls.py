"""MQTT over TLS: devices log in by password or certificate, and share everything with those that speak plain MQTT."""

import asyncio
import os
import shutil
import socket
from pathlib import Path

import pytest

from fogline.errors import Misconfigured
from fogline.process.files import tls_files
from fogline_cloud.authority.certificates import Role, now_utc
from fogline_edge.adapters.mqtt.protocol.packets import Disconnect, Publish
from fogline_edge.adapters.mqtt.protocol.primitives import V3, V5, Reason
from fogline_edge.adapters.mqtt.protocol.properties import Properties
from fogline_edge.adapters.mqtt.server.listener import MqttListener
from fogline_edge.adapters.mqtt.session import puback_delivery
from fogline_edge.listener_settings import MqttTlsSettings
from fogline_edge.settings import MqttSettings
from fogline_lab.amqp import within
from fogline_lab.commands import MemoryCommands, make_command
from fogline_lab.credentials.mosquitto_passwords import password_file
from fogline_lab.credentials.mqtt_tls_files import PASSWORD, MqttTlsFiles
from fogline_lab.mqtt_packets import puback
from fogline_lab.port import MemoryPort
from fogline_lab.waiting import eventually

LASTING = Properties(session_expiry_s=7200)


@pytest.fixture
def secured(folder) -> MqttTlsFiles:
    return MqttTlsFiles(folder)


@pytest.mark.parametrize("version", [V3, V5])
async def test_a_device_with_a_password_is_acknowledged_after_the_commit(secured, listening, dial, version):
    port = MemoryPort()
    port.hold()
    login = {"username": "lamp-1", "password": PASSWORD}
    async with (
        listening(port, **secured.settings(certificates=False)) as listener,
        dial(listener, "x", version=version, tls=secured.trusting(), **login) as (wire, connack),
    ):
        assert connack.code == 0
        await wire.publish("telemetry", b"a")
        await port.until(lambda: port.waiting == 1, "it is put")
        port.release()
        assert await wire.receive() == puback(1)
    assert [(each.device, each.data) for each in port.arrivals] == [("lamp-1", b"a")]


@pytest.mark.parametrize("users", [True, False], ids=["beside users", "alone"])
async def test_the_common_name_of_a_certificate_is_the_device(secured, listening, dial, users):
    port = MemoryPort()
    async with (
        listening(port, **secured.settings(users=users, acl={"lamp-2": ["press-*"]})) as listener,
        dial(listener, "x", tls=secured.device("lamp-2")) as (wire, connack),
    ):
        assert connack.code == 0
        for number, topic in enumerate(("telemetry", "t//press-1", "t//lamp-1"), 1):
            await wire.publish(topic, number=number)
        assert [await wire.receive() for _ in range(3)] == [puback(1), puback(2), puback(3, Reason.NOT_AUTHORIZED)]
    assert [each.device for each in port.arrivals] == ["lamp-2", "press-1", "gw-1"]


async def test_a_session_goes_on_with_and_without_tls(secured, listening, dial):
    login = {"username": "lamp-1", "password": PASSWORD, "properties": LASTING, "clean_start": False}
    both = {**secured.settings(), "port": 0}
    async with listening(MemoryPort(), **both) as listener:
        async with dial(listener, "x", tls=secured.trusting(), **login) as (old, connack):
            assert not connack.session_present
            async with dial(listener, "x", **login) as (_, again):
                assert again.session_present
                assert await old.receive() == Disconnect(code=Reason.SESSION_TAKEN_OVER)
            async with dial(listener, "x", tls=secured.device("lamp-1"), **login) as (_, again):
                assert again.session_present
        assert listener.counters.connections == 3


async def test_flooding_client_is_slowed_and_loses_nothing(secured, listening, dial):
    port = MemoryPort(capacity=5)
    port.hold()
    numbers = range(1, 2001)
    async with (
        listening(port, **secured.settings()) as listener,
        dial(listener, "x", tls=secured.device()) as (wire, _),
    ):
        sending = asyncio.create_task(
            wire.send(*[Publish(topic="t", payload=b"%d" % each * 50, qos=1, packet_id=each) for each in numbers])
        )
        await port.until(lambda: port.waiting == 5, "the port is full")
        port.release()
        assert [await wire.receive() for _ in numbers] == [puback(each) for each in numbers]
        await sending
    assert [each.data for each in port.arrivals] == [b"%d" % each * 50 for each in numbers]


async def test_a_command_of_200_kb_and_its_device_s_good_bye(secured, listening, dial):
    commands, body = MemoryCommands(), bytes(range(256)) * 800
    async with (
        listening(MemoryPort(), commands, **secured.settings()) as listener,
        dial(listener, "x", tls=secured.device("lamp-1")) as (wire, _),
    ):
        await wire.subscribe("command///req/#")
        commands.send(make_command(data=body))
        assert (await wire.receive()).payload == body
        await wire.send(Disconnect(code=Reason.SUCCESS))
        assert await wire.receive() is None
        assert listener.counters.left == 1


@pytest.mark.parametrize("with_tls", [False, True], ids=["plain", "tls"])
async def test_the_send_queue_is_drained_when_the_client_s_tcp_has_all_and_not_before(secured, listening, dial, with_tls):
    """The socket's own queue is not all: what TLS has encrypted, and the socket has not taken, counts too."""
    settings = secured.settings() if with_tls else {}
    tls = secured.device() if with_tls else None
    commands, body = MemoryCommands(), bytes(250_000)
    async with listening(MemoryPort(), commands, **settings) as listener, dial(listener, "lamp-2", tls=tls) as (wire, _):
        wire.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
        await wire.subscribe("command///req/#")
        (connection,) = listener._by_client.values()
        runner = connection.reader.runner
        await eventually(runner.drained, "SUBACK has arrived")
        wire.writer.transport.pause_reading()
        commands.send(make_command("lamp-2", data=body))
        assert connection._transport.get_write_buffer_size() > 0
        assert not runner.drained()
        wire.writer.transport.resume_reading()
        assert (await wire.receive()).payload == body
        await eventually(runner.drained, "all has arrived")


@pytest.mark.parametrize("name", ["mqtt", "mqtts"])
async def test_connections_within_the_handshake_count_and_make_room(secured, listening, dial, name):
    settings = {**secured.settings(), "port": 0, "max_connections": 3}
    async with listening(MemoryPort(), **settings) as listener:
        silent = [await asyncio.open_connection(*listener.addresses[name]) for _ in range(3)]
        await eventually(lambda: listener.counters.connected == 3, "all are accepted")
        async with dial(listener, "good", tls=secured.device()) as (wire, _):
            await wire.alive()
            assert await within(silent[0][0].read(), "the oldest makes room") == b""
            assert listener.counters.over_limit == 1
        for _, writer in silent:
            writer.close()


async def test_sockets_of_one_address_push_out_no_other_s(secured, listening, dial):
    """A handshake takes a while, and a crowd of sockets of another machine must not end it."""
    async with listening(MemoryPort(), **secured.settings(), max_connections=5) as listener:
        address = listener.addresses["mqtts"]
        slow = await asyncio.open_connection(*address, local_addr=("127.0.0.2", 0))
        await eventually(lambda: listener.counters.connected == 1, "it is accepted")
        crowd = [await asyncio.open_connection(*address) for _ in range(30)]
        await eventually(lambda: listener.counters.over_limit == 26, "the crowd makes room for itself")
        await within(slow[1].start_tls(secured.device("lamp-2"), server_hostname="127.0.0.1"), "no handshake")
        for _, writer in (slow, *crowd):
            writer.transport.abort()


async def test_the_files_are_read_again_when_they_change(secured, listening, dial, monkeypatch):
    monkeypatch.setattr(tls_files, "QUIET_S", 0)
    settings = secured.settings()
    tls = settings["tls"]
    async with listening(MemoryPort(), **settings) as listener:

        async def serial(name="lamp-1", password=PASSWORD) -> tuple[int, int]:
            login = {"username": name, "password": password}
            async with dial(listener, "x", tls=secured.trusting(), **login) as (wire, connack):
                return int(wire.writer.get_extra_info("peercert")["serialNumber"], 16), connack.code

        first, code = await serial()
        assert code == 0
        renewed = secured.site.files(Role.GATEWAY, "gw-1", hosts=["127.0.0.1"])
        Path(tls.key).write_text("torn")
        assert (await serial())[0] == first, "a file that is half written is not used"
        shutil.copy(renewed.certificate, tls.certificate)
        shutil.copy(renewed.key, tls.key)
        os.utime(tls.key)
        assert (await serial())[0] != first
        assert (await serial("new", b"two"))[1] == Reason.BAD_USER_NAME_OR_PASSWORD
        password_file(Path(secured.users).parent, new="two")
        assert (await serial("new", b"two"))[1] == 0


async def test_a_revoked_certificate_gets_in_no_more(secured, listening, dial):
    async with listening(MemoryPort(), **secured.settings()) as listener:
        stolen = secured.device("lamp-2")
        async with dial(listener, "x", tls=stolen) as (_, connack):
            assert connack.code == 0
        secured.site.ca.revoke("lamp-2", now_utc(), 1)
        with pytest.raises((OSError, AssertionError)):
            async with dial(listener, "x", tls=stolen):
                pass
        async with dial(listener, "x", tls=secured.device("lamp-3")) as (_, connack):
            assert connack.code == 0


LAN = {"host": "0.0.0.0", "port": 0}
FILES = {"certificate": "c", "key": "k"}
RULES = {
    "nobody logs in": (
        {**LAN, "plain_on_lan": True},
        r"mqtt\.host = '0\.0\.0\.0': without a login only loopback .* mqtt\.users",
    ),
    "in clear text": ({**LAN, "users": "u"}, r"mqtt\.host = '0\.0\.0\.0': .* clear text.* plain_on_lan = true"),
    "TLS and no login": ({"tls": MqttTlsSettings(**FILES)}, r"\[mqtt\.tls\] .* set `users` .*, or `ca`"),
    "a list of nobody": ({"users": "u", "tls": MqttTlsSettings(**FILES, crl="l")}, r"mqtt\.tls\.crl needs mqtt\.tls\.ca"),
    "rights of nobody": ({"acl": {"hub": ["*"]}}, r"mqtt\.acl names users.* set mqtt\.users or mqtt\.tls\.ca"),
    "no such file": ({"tls": MqttTlsSettings(**FILES, ca="none")}, r"mqtt\.tls\.ca: cannot use none: No such file"),
}


@pytest.mark.parametrize(("settings", "says"), RULES.values(), ids=RULES)
async def test_settings_that_would_let_anybody_in_are_refused(settings, says):
    with pytest.raises(Misconfigured, match=says):
        await MqttListener(MemoryPort(), MqttSettings(**settings)).start()


async def test_a_key_that_everybody_may_read_is_refused(secured, listening):
    settings = secured.settings()
    Path(settings["tls"].key).chmod(0o644)
    with pytest.raises(Misconfigured, match=r"mqtt\.tls\.key: everybody may read .* chmod 600"):
        async with listening(MemoryPort(), **settings):
            pass


async def test_users_on_a_lan_without_tls_are_served_if_the_user_says_so(listening, dial, folder):
    users = password_file(folder, **{"lamp-1": "one"})
    async with listening(MemoryPort(), host="0.0.0.0", users=users, plain_on_lan=True) as listener:
        async with dial(listener, "x", username="lamp-1", password=b"one") as (_, connack):
            assert connack.code == 0
        async with dial(listener, "x") as (_, connack):
            assert connack.code == Reason.NOT_AUTHORIZED


async def test_with_tls_plain_mqtt_is_spoken_only_if_it_has_a_port(secured, listening):
    async with listening(MemoryPort(), **secured.settings()) as listener:
        assert list(listener.addresses) == ["mqtts"]
    async with listening(MemoryPort(), **{**secured.settings(), "port": 0}) as listener:
        assert list(listener.addresses) == ["mqtt", "mqtts"]


async def test_a_lost_puback_over_tls_is_in_doubt_as_it_is_without(secured, listening, dial, monkeypatch):
    """TCP has the PUBACK, and nothing came after it. A short while later the retransmission may be a new message."""
    monkeypatch.setattr(puback_delivery, "RECONNECT_S", -1.0)
    port, tls = MemoryPort(), secured.device()
    same = Publish(topic="t", payload=b"same", qos=1, packet_id=7)
    async with listening(port, **secured.settings()) as listener:
        async with dial(listener, "x", tls=tls) as (wire, _):
            await wire.send(same)
            assert await wire.receive() == puback(7)
            (connection,) = listener._by_client.values()
            await eventually(connection.reader.runner.drained, "the PUBACK has arrived")
        await eventually(lambda: listener.counters.lost == 1, "the end is noticed")
        async with dial(listener, "x", tls=tls) as (wire, _):
            await wire.send(Publish(topic="t", payload=b"same", qos=1, packet_id=7, dup=True))
            assert await wire.receive() == puback(7)
    assert [each.retransmission.ack_delivery.name for each in port.arrivals][-1:] == ["DOUBTFUL"]
