"""MQTT clients that others wrote, over WebSocket with and without TLS: mqtt.js in Node, and paho for Python."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import paho.mqtt.client as paho
import pytest

from contracts.foreign.mqtt_js import device
from fogline_cloud.authority.certificates import Role
from fogline_edge.adapters.mqtt.server.listener import MqttListener
from fogline_edge.listener_settings import WebSocketSettings
from fogline_edge.settings import MqttSettings
from fogline_lab.amqp import within
from fogline_lab.commands import MemoryCommands, make_command
from fogline_lab.credentials.mqtt_tls_files import PASSWORD, MqttTlsFiles
from fogline_lab.port import MemoryPort

LIMIT_S = 60.0
WEB = WebSocketSettings(port=0)
BODIES = ['{"n": 0}', '{"n": 1}', '{"n": 2}']


@pytest.fixture
def secured(folder) -> MqttTlsFiles:
    return MqttTlsFiles(folder)


@asynccontextmanager
async def listening(port: MemoryPort, commands: MemoryCommands, /, **settings) -> AsyncIterator[MqttListener]:
    listener = MqttListener(port, MqttSettings(**{"port": 0, **settings}), commands)
    await listener.start()
    try:
        yield listener
    finally:
        await within(listener.close(), "the listener does not close")


async def served(listener: MqttListener, commands: MemoryCommands, **options: object) -> dict:
    """What mqtt.js tells after its reports and one command."""
    running = asyncio.create_task(device(url=url_of(listener), bodies=BODIES, **options))
    await commands.until(lambda: "lamp-1" in commands.devices, "the device subscribes", LIMIT_S)
    commands.send(make_command("lamp-1", data=b'{"on":true}'))
    return await running


def url_of(listener: MqttListener) -> str:
    ((name, (_, port)),) = [each for each in listener.addresses.items() if each[0].startswith("mqtt-ws")]
    return f"{name.removeprefix('mqtt-')}://localhost:{port}/mqtt"


def files_of(secured: MqttTlsFiles, login: str) -> dict[str, object]:
    if login == "password":
        return {"ca": secured.own.ca, "username": "lamp-1", "password": PASSWORD.decode()}
    lamp = secured.site.files(Role.DEVICE, "lamp-1")
    return {"ca": lamp.ca, "cert": lamp.certificate, "key": lamp.key}


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("login", ["plain", "password", "certificate"])
async def test_mqtt_js_reports_and_runs_a_command_over_websocket(secured, login, version):
    port, commands = MemoryPort(), MemoryCommands()
    settings = {} if login == "plain" else secured.settings()
    options = {} if login == "plain" else files_of(secured, login)
    async with listening(port, commands, websocket=WEB, **settings) as listener:
        told = await served(listener, commands, version=version, **options)
    assert (told["published"], told["command"]) == ([0, 1, 2], '{"on":true}')
    found = [(each.device, each.data.decode()) for each in port.arrivals]
    assert [each for each in found if each[1] in BODIES] == [("lamp-1", each) for each in BODIES]
    assert [each.data for each in commands.answers.values()] == [b'{"ok":true}']


async def test_mqtt_js_reports_the_refusal(secured):
    options = {**files_of(secured, "password"), "password": "guess"}
    async with listening(MemoryPort(), MemoryCommands(), websocket=WEB, **secured.settings()) as listener:
        told = await device(url=url_of(listener), bodies=BODIES, version=5, **options)
        assert "Connection refused" in told["error"]
        assert told["published"] == []


@pytest.mark.parametrize("login", ["plain", "password", "certificate"])
async def test_paho_reports_over_websocket(secured, login):
    """It names the address that it connects to as its origin."""
    port = MemoryPort()
    settings = {} if login == "plain" else secured.settings()
    async with listening(port, MemoryCommands(), websocket=WEB, **settings) as listener:
        address = listener.addresses["mqtt-ws" if login == "plain" else "mqtt-wss"]
        await within(asyncio.to_thread(report, address[1], login, secured), "paho does not end")
    (arrival,) = [each for each in port.arrivals if each.data == b"x" * 100_000]
    assert arrival.device == "lamp-1"


def report(port: int, login: str, secured: MqttTlsFiles) -> None:
    lamp = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id="lamp-1", transport="websockets", protocol=paho.MQTTv5)
    if login != "plain":
        files = files_of(secured, login)
        lamp.tls_set(files["ca"], files.get("cert"), files.get("key"))
        if login == "password":
            lamp.username_pw_set("lamp-1", PASSWORD.decode())
    lamp.connect("localhost", port)
    lamp.loop_start()
    try:
        lamp.publish("telemetry", b"x" * 100_000, qos=1).wait_for_publish(LIMIT_S)
    finally:
        lamp.disconnect()
        lamp.loop_stop()
