"""Clients that others wrote log in over TLS: mosquitto_pub and paho, as docs/devices-mqtt.md has them."""

import asyncio
import shlex
import shutil
import sys

import pytest

from edge.mqtt.tls_page import COMMANDS, PROGRAM
from fogline_cloud.authority.certificates import Role
from fogline_lab.amqp import within
from fogline_lab.credentials.mqtt_tls_files import PASSWORD, MqttTlsFiles
from fogline_lab.port import MemoryPort


@pytest.fixture
def secured(folder) -> MqttTlsFiles:
    """The files by the names that the page has, in the folder of the test."""
    made = MqttTlsFiles(folder)
    lamp = made.site.files(Role.DEVICE, "lamp-2")
    for path, name in ((lamp.ca, "ca.pem"), (lamp.certificate, "lamp-2.pem"), (lamp.key, "lamp-2.key")):
        shutil.copy(path, folder / name)
    return made


async def run(folder, *command: str) -> tuple[int | None, str]:
    """Run a program to its end. Returns its status and what it said."""
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        said, _ = await within(process.communicate(), f"{command[0]} does not end")
    finally:
        if process.returncode is None:
            process.kill()
    return process.returncode, said.decode()


def here(text: str, listener) -> str:
    """Put this listener in the place of the page's."""
    return text.replace("gw-1.local", "localhost").replace("8883", str(listener.addresses["mqtts"][1]))


def mosquitto(line: str, listener, **instead: str) -> list[str]:
    """Return the words of a command of the page, some of them replaced."""
    if shutil.which("mosquitto_pub") is None:
        pytest.skip("mosquitto_pub is not installed")
    words = shlex.split(here(line, listener))
    password = {"secret": PASSWORD.decode()}
    return [{**password, **instead}.get(word, word) for word in words]


def test_the_page_has_a_command_for_each_way_to_log_in():
    assert [("--cert" in each, "-P" in each) for each in COMMANDS] == [(False, True), (True, False)]


@pytest.mark.parametrize("version", ["mqttv311", "mqttv5"])
@pytest.mark.parametrize(
    ("line", "device"), list(zip(COMMANDS, ("lamp-1", "lamp-2"), strict=True)), ids=["password", "certificate"]
)
async def test_mosquitto_pub(secured, listening, line, device, version, folder):
    port = MemoryPort()
    async with listening(port, **secured.settings()) as listener:
        assert await run(folder, *mosquitto(line, listener), "-V", version) == (0, "")
    (arrival,) = port.arrivals
    assert (arrival.device, arrival.data[:15]) == (device, b'{"temperature":')


async def test_mosquitto_pub_reports_the_refusal(secured, listening, folder):
    by_password, by_certificate = COMMANDS
    stranger = secured.site.files(Role.DEVICE, "lamp-2", ca=secured.other())
    port = MemoryPort()
    async with listening(port, **secured.settings()) as listener:
        status, said = await run(folder, *mosquitto(by_password, listener, secret="guess"))
        assert (status, "not authorised" in said.lower() or "bad user name" in said.lower()) == (status or 1, True), said
        files = {"lamp-2.pem": stranger.certificate, "lamp-2.key": stranger.key}
        status, said = await run(folder, *mosquitto(by_certificate, listener, **files))
        assert (status, bool(said)) == (status or 1, True), said
        status, said = await run(folder, *mosquitto(by_certificate, listener, localhost="127.0.0.2"))
        assert (status, "verify failed" in said.lower() or "error" in said.lower()) == (status or 1, True), said
    assert port.arrivals == []


@pytest.mark.parametrize("login", ["certificate", "password"])
async def test_paho(secured, listening, folder, login):
    port, program = MemoryPort(), PROGRAM
    if login == "password":
        files = '"ca.pem", "lamp-2.pem", "lamp-2.key")'
        assert files in program
        program = program.replace(files, f'"ca.pem"); lamp.username_pw_set("lamp-1", {PASSWORD.decode()!r})')
    async with listening(port, **secured.settings()) as listener:
        assert await run(folder, sys.executable, "-c", here(program, listener)) == (0, "")
    (arrival,) = port.arrivals
    assert (arrival.device, arrival.data) == ("lamp-1" if login == "password" else "lamp-2", b'{"temperature": 19.5}')
