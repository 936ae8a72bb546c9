"""HTTP devices: the page docs/devices-http.md as it stands, and the way of an event and of a command through a real broker."""

import asyncio
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.http_device import http_device
from fogline.commands.command import CommandState
from fogline.events.event import Lane
from fogline_cloud.commands.client.operator import Ask, Operator
from fogline_edge.operate.status import read_events, read_status
from fogline_lab.amqp import within
from fogline_lab.credentials.mosquitto_passwords import password_file
from fogline_lab.line.line import gateway
from fogline_lab.supervisor import ChildProcess
from fogline_lab.waiting import until_not
from rules.source import ROOT

BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", (ROOT / "docs" / "devices-http.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)
CURL = [line for language, text in BLOCKS if not language for line in text.splitlines()]
SETTINGS = next(text for language, text in BLOCKS if language == "toml")
BIN = Path(sys.executable).parent
LIMIT_S = 60


def test_the_pages_requests_are_stored_and_resends_recognised(folder):
    Path(password_file(folder, **{"lamp-1": "secret"})).rename(folder / "passwd")
    text = 'tenant = "demo"\ngateway = "gw-1"\ndata = "data"\n[uplink]\nbridge = "127.0.0.1:1"\n'
    text += f"{SETTINGS}port = 0\nmax_ttd_s = 1\n"
    (folder / "edge.toml").write_text(text)
    program = [BIN / "fogline-edge", "run", "--insecure-dev", "--config", folder / "edge.toml"]
    process = ChildProcess("gateway", program, folder / "log")
    process.start()
    try:
        address = process.next_line()["http"]
        codes = []
        for line in CURL:
            command = [*shlex.split(line.replace("127.0.0.1:8080", address)), "-sS", "-o", "/dev/null", "-w", "%{http_code}"]
            codes.append(subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=True).stdout)
    finally:
        process.stop()
    assert codes == ["202"] * 6 + ["404"]
    status = read_status(folder / "data")
    assert (status["stored"], status["duplicate"], status["dead"]) == (6, 1, 1)  # the reply to no command is a dead letter
    found = [each["body"] for each in read_events(folder / "data", "event", 10)]
    assert sum("/demo/devices/lamp-1" in each for each in found) == 5
    assert any("room=kitchen" in each for each in found)


@pytest.mark.fault("X2")
async def test_an_event_lands_as_http_and_a_command_waits_for_the_next_report(line):
    async with line.bridge(), gateway(line) as (outbox, downlink), http_device(outbox, downlink) as device:
        report = {"url": f"/telemetry/{line.tenant}/lamp-1", "json": {"n": 1}, "headers": {"idempotency-key": "k-1"}}
        assert [(await device.put(**report)).status_code for _ in range(2)] == [202, 202]
        await line.drained(outbox)
        (record,) = [each for each in line.records() if each.value == b'{"n":1}']
        headers = {name: value.decode() for name, value in record.headers}
        assert (headers["orig_adapter"], headers["device_id"], headers["ce_subject"]) == (
            "http",
            "lamp-1",
            f"telemetry/{line.tenant}/lamp-1",
        )
        async with Operator("127.0.0.1", line.port, line.tenant) as operator:
            await within(operator.attached(), "the operator cannot attach")
            asked = asyncio.create_task(operator.request(Ask("lamp-1", "switch", b'{"on":true}')))
            response = await device.post("/t//lamp-1", params={"hono-ttd": 20}, json={"n": 2})
            assert (response.status_code, response.headers["hono-command"], response.content) == (200, "switch", b'{"on":true}')
            path = f"/command/res//lamp-1/{response.headers['hono-cmd-req-id']}"
            answered = await device.post(path, params={"hono-cmd-status": 200}, json={"ok": True})
            assert answered.status_code == 202
            verdict = await within(asked, "no verdict")
            assert (verdict.state, verdict.status, verdict.data) == (CommandState.SUCCEEDED, 200, b'{"ok":true}')
            one_way = await within(operator.request(Ask("lamp-1", "reset", reply=False)), "it is not accepted")
            assert one_way.state is CommandState.ACCEPTED
            response = await device.post("/t//lamp-1", params={"hono-ttd": 20}, json={"n": 3})
            assert (response.status_code, "hono-cmd-req-id" in response.headers) == (200, False)

            async def under_way() -> bool:
                return downlink.counters.succeeded < 2

            await until_not(under_way, "the one-way command does not end")
        await line.drained(outbox)
    assert line.landed(Lane.TELEMETRY) == [1, 2, 3]
