"""C1 and C2 over HTTP: the gateway is killed around its commit, and the device sends its request again."""

import asyncio
import signal

import httpx
import pytest

from fogline.process.crash_points import CrashPoint
from fogline_edge.operate.status import read_status
from fogline_lab.gateway.gateway_process import SETTINGS
from fogline_lab.supervisor import ChildProcess, find_script, start_child, stop_children

LIMIT_S = 60.0
STRUCTURED = b'{"specversion":"1.0","id":"7","source":"/lamp-1","type":"t","data":{"n":1}}'
REPORTS = {
    "Idempotency-Key": ({"idempotency-key": "boot7-1", "content-type": "application/json"}, b'{"n":1}'),
    "ce-id": ({"ce-id": "7", "ce-source": "/lamp-1", "content-type": "application/json"}, b'{"n":1}'),
    "structured": ({"content-type": "application/cloudevents+json"}, STRUCTURED),
}


async def report(address: str, headers: dict[str, str], body: bytes) -> int:
    async with httpx.AsyncClient(timeout=LIMIT_S) as client:
        return (await client.post(f"http://{address}/telemetry//lamp-1", headers=headers, content=body)).status_code


@pytest.mark.fault("C1", "C2")
@pytest.mark.parametrize("way", REPORTS)
@pytest.mark.parametrize("point", [CrashPoint.BEFORE_COMMIT, CrashPoint.AFTER_COMMIT_BEFORE_ACK])
async def test_a_request_without_a_response_is_stored_once(folder, point, way):
    config = folder / "edge.toml"
    config.write_text(SETTINGS.format(data=folder / "data", bridge=1, name="gw-1", tenant="acme").replace("[mqtt]", "[http]"))
    gateway = ChildProcess(
        "gateway", [find_script("fogline-edge"), "run", "--insecure-dev", "--config", config], folder / "log"
    )
    try:
        address = (await start_child(gateway, LIMIT_S, crash_at=point))["http"]
        with pytest.raises(httpx.TransportError):
            await report(address, *REPORTS[way])
        assert await asyncio.to_thread(gateway.wait, LIMIT_S) == -signal.SIGKILL
        address = (await start_child(gateway, LIMIT_S))["http"]
        assert [await report(address, *REPORTS[way]) for _ in range(2)] == [202, 202]
    finally:
        await stop_children(gateway)
    found = read_status(folder / "data")
    assert (found["stored"], found["duplicate"]) == (1, 2 if point is CrashPoint.AFTER_COMMIT_BEFORE_ACK else 1)
