"""curl logs in over HTTPS, as docs/devices-http.md has it."""

import asyncio
import re
import shlex
import shutil

import pytest

from fogline_cloud.authority.certificates import Role
from fogline_lab.amqp import within
from fogline_lab.credentials.mqtt_tls_files import PASSWORD, MqttTlsFiles
from fogline_lab.port import MemoryPort
from rules.source import ROOT

PAGE = (ROOT / "docs" / "devices-http.md").read_text("utf-8").partition("## TLS\n")[2].partition("\n## ")[0]
BY_PASSWORD, BY_CERTIFICATE = re.findall(r"^curl .*$", PAGE, re.MULTILINE)


@pytest.fixture
def secured(folder) -> MqttTlsFiles:
    """The files by the names that the page has, in the folder of the test."""
    made = MqttTlsFiles(folder)
    lamp = made.site.files(Role.DEVICE, "lamp-2")
    for path, name in ((lamp.ca, "ca.pem"), (lamp.certificate, "lamp-2.pem"), (lamp.key, "lamp-2.key")):
        shutil.copy(path, folder / name)
    return made


async def curl(folder, line: str, server, *more: str, **instead: str) -> tuple[int | None, str]:
    """Run a line of the page, some words of it replaced. Returns its status, and that of the response with what it said."""
    here = line.replace("gw-1.local:8443", f"localhost:{server.addresses['https'][1]}").replace(
        ":secret", f":{PASSWORD.decode()}"
    )
    words = [instead.get(word, word) for word in shlex.split(here)]
    process = await asyncio.create_subprocess_exec(
        *words, *more, "-sS", "-w", "%{http_code} %{http_version}", cwd=folder,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    said, _ = await within(process.communicate(), "curl does not end")
    return process.returncode, said.decode()


@pytest.mark.parametrize("version", ["--http1.1", "--http2", "--tlsv1.3", "--tls-max=1.2"])
@pytest.mark.parametrize(
    ("line", "device"), [(BY_PASSWORD, "lamp-1"), (BY_CERTIFICATE, "lamp-2")], ids=["password", "certificate"]
)
async def test_curl(secured, listening, folder, line, device, version):
    """Whoever asks for HTTP/2 gets 1.1."""
    port = MemoryPort()
    async with listening(port, **secured.http_settings()) as server:
        assert await curl(folder, line, server, *version.split("=")) == (0, "202 1.1")
    (arrival,) = port.arrivals
    assert (arrival.device, arrival.data[:15]) == (device, b'{"temperature":')


async def test_curl_reports_the_refusal(secured, listening, folder):
    stranger = secured.site.files(Role.DEVICE, "lamp-2", ca=secured.other())
    operator = secured.site.files(Role.OPERATOR, "lamp-2")
    port = MemoryPort()
    async with listening(port, **secured.http_settings()) as server:
        status, said = await curl(folder, BY_PASSWORD, server, **{"lamp-1:one": "lamp-1:guess"})
        assert (status, said[-7:]) == (0, "401 1.1")
        status, said = await curl(folder, BY_CERTIFICATE, server, **_showing(stranger))
        assert (status, "alert" in said) == (56, True), said
        status, said = await curl(folder, BY_CERTIFICATE, server, **_showing(operator))
        assert (status, said[-7:], "for role 'operator'" in said) == (0, "403 1.1", True), said
    assert port.arrivals == []


def _showing(files) -> dict[str, str]:
    return {"lamp-2.pem": files.certificate, "lamp-2.key": files.key}
