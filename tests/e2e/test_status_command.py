"""`fogline status`, `fogline gateway list` and `fogline device list --silent`, on a bridge with a gateway."""

import asyncio
import json
import sys

from msgspec.structs import replace

from e2e.device_registry import edited, known
from fogline.amqp.outcome import ACCEPTED
from fogline_lab.amqp import within
from fogline_lab.line.line import Line, serving


async def fogline(line: Line, *words: str) -> tuple[int, str]:
    """Return exit status and output of a command on the machine of the bridge."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "fogline_cloud.cli.main", *words, "--config", line.folder / "cloud.toml"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await within(process.communicate(), f"{words} does not end", 60)
    return process.returncode or 0, out.decode()


def configure(line: Line, metrics: str) -> None:
    """Write the settings of the bridge's machine."""
    (line.folder / "cloud.toml").write_text(
        f'tenant = "{line.tenant}"\n[operator]\nbridge = "127.0.0.1:{line.port}"\n[bridge]\nmetrics = "{metrics}"\n'
    )


async def test_the_whole_line_is_on_one_screen(line: Line):
    line.cloud = replace(line.cloud, bridge=replace(line.cloud.bridge, metrics="127.0.0.1:0"))
    async with serving(line) as bridge, line.gateway() as outbox:
        await line.put(outbox, 1)
        await line.drained(outbox)
        configure(line, bridge.metrics_address)

        status, out = await fogline(line, "gateway", "list", "--json")
        (gateway,) = json.loads(out)
        assert (status, gateway["gateway"], gateway["connected"]) == (0, "gw-1", True)
        assert gateway["last_seen"] is not None
        status, out = await fogline(line, "gateway", "list", "--metrics", bridge.metrics_address)
        assert out.splitlines()[0].split("  ")[0] == "GATEWAY"
        assert out.splitlines()[1].split()[:2] == ["gw-1", "yes"]

        status, out = await fogline(line, "status", "--json")
        found = {each["part"]: (each["state"], each["facts"]) for each in json.loads(out)}
        assert status == 0
        assert found["bridge"][0] == "ok"
        assert "2 of 2 shards ready here" in found["bridge"][1]
        assert found["gateways"][1].startswith("1 of 1 connected")
        assert found["flow"] == (
            "not asked",
            "flow.metrics is not set, so nothing can be asked here: for example 127.0.0.1:9466",
        )

    status, out = await fogline(line, "status")
    assert (status, "nothing answers at" in out, "Traceback" in out) == (1, True, False)
    status, out = await fogline(line, "gateway", "list")
    assert (status, "nothing answers at" in out, out.count("\n")) == (2, True, 1)


async def test_silent_devices_of_the_registry_are_listed(line: Line):
    line.cloud = replace(line.cloud, devices=replace(line.cloud.devices, seen_every_s=1.0))
    async with serving(line) as bridge, line.gateway() as outbox:
        configure(line, "127.0.0.1:9")
        for name in ("lamp-1", "lamp-2"):
            assert await edited(line, name, "set", b"{}") == ACCEPTED
        await known(bridge, lambda table: table.get("lamp-2") is not None)
        await line.put(outbox, 1, device="lamp-1")
        await known(bridge, lambda table: bool(table.get("lamp-1").sightings))

        status, out = await fogline(line, "device", "list", "--silent", "1h", "--json")
        assert (status, [each["device"] for each in json.loads(out)]) == (0, ["lamp-2"])
        _, out = await fogline(line, "device", "list", "--silent", "1ms", "--limit", "1")
        assert [line.split()[0] for line in out.splitlines()] == ["DEVICE", "lamp-1", "1"]
