"""HTTP clients that others made, against the real API: curl, with the lines of docs/clients-http.md, and a generated client."""

import asyncio
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.http_api import served
from fogline_cloud.api.app import routes_of
from fogline_cloud.api.openapi import document
from fogline_lab.device.command_device import CommandDevice

PAGE = (Path(__file__).parents[2] / "docs" / "clients-http.md").read_text("utf-8")
CURL = re.findall(r"^curl -s .*$", PAGE, re.MULTILINE)


def test_the_document_has_every_route_and_no_other():
    routes = {(route.path, method.lower()) for route in routes_of(None) for method in route.methods - {"HEAD"}}
    assert routes == {(path, method) for path, methods in document()["paths"].items() for method in methods}
    names = [operation["operationId"] for methods in document()["paths"].values() for operation in methods.values()]
    assert len(names) == len(set(names))


async def test_curl_lines_of_the_page_work(line):
    async with served(line) as (found, downlink, *_):
        downlink.reachable("lamp-1", CommandDevice(downlink))
        answers = []
        for each in CURL:
            command = each.replace("http://127.0.0.1:8080", found.url)
            shell = await asyncio.create_subprocess_shell(command, stdout=asyncio.subprocess.PIPE)
            answers.append((await asyncio.wait_for(shell.communicate(), 60))[0].decode())
    assert len(answers) == 6
    assert json.loads(answers[0])["state"] == "SUCCEEDED"
    assert json.loads(answers[1])["name"] == "switch"
    assert len(json.loads(answers[2])["commands"]) == 1
    assert answers[3] == "202"
    assert json.loads(answers[4])["detail"] == "device nobody is not known here: it has sent no event"
    assert json.loads(answers[5])["detail"] == "device lamp-1 is not in the registry"


@pytest.fixture
def generated(tmp_path, monkeypatch):
    """The package that openapi-python-client makes of the document."""
    path = tmp_path / "openapi.json"
    path.write_text(json.dumps(document()))
    command = [sys.executable, "-m", "openapi_python_client", "generate", "--meta", "none"]
    made = subprocess.run(
        [*command, "--path", path, "--output-path", tmp_path / "fogline_http"], capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stdout + made.stderr
    assert "WARNING" not in made.stdout + made.stderr
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("fogline_http")
    for name in [each for each in sys.modules if each.partition(".")[0] == "fogline_http"]:
        del sys.modules[name]


async def test_a_generated_client_sends_a_command_and_reads_its_state(line, generated):
    send = importlib.import_module("fogline_http.api.default.send_command")
    get = importlib.import_module("fogline_http.api.default.get_command")
    models = importlib.import_module("fogline_http.models")
    async with served(line) as (found, downlink, *_):
        downlink.reachable("lamp-1", CommandDevice(downlink))
        client = generated.AuthenticatedClient(base_url=found.url, token="eDp4", prefix="Basic")
        body = models.CommandRequest(name="switch", data={"on": True})
        created = await send.asyncio(device="lamp-1", client=client, body=body)
        shown = await get.asyncio(id=created.id, client=client, wait="30s")
        problem = await send.asyncio(device="nobody", client=client, body=body)
    assert (shown.state, shown.device) == (models.CommandState.SUCCEEDED, "lamp-1")
    assert (problem.status, problem.detail) == (404, "device nobody is not known here: it has sent no event")
