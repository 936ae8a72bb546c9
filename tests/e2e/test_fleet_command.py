"""`fogline fleet` and the number of silent devices, with a real registry of devices."""

import asyncio
import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from msgspec.structs import replace

from e2e.device_registry import edited, known
from fogline.amqp.outcome import ACCEPTED
from fogline.events.event import Lane
from fogline_cloud.bridge.commands import silent_devices
from fogline_cloud.devices.device_table import DeviceTable
from fogline_cloud.fleet_settings import FleetSettings, SilentSettings
from fogline_cloud.flows.tables.files import TableFolder
from fogline_lab.amqp import within
from fogline_lab.flow_table import FlowTable
from fogline_lab.line.line import Line, serving
from fogline_lab.waiting import until_not

PROGRAM = """\
import sys
sys.modules["confluent_kafka"] = None  # importing it fails
from fogline_cloud.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


async def registered(line: Line, bridge, *devices: str) -> None:
    """Add lamps to the registry."""
    for each in devices:
        assert await edited(line, each, "set", b'{"type": "lamp"}') == ACCEPTED
    await known(bridge, lambda table: all(table.get(each) is not None for each in devices))


async def ask(folder: Path, *words: str) -> tuple[int, str]:
    """Run `fogline fleet`, for which Kafka's client library is missing."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM, "fleet", *words, "--config", folder / "operator.toml"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await within(process.communicate(), f"{words} does not end", 60)
    return process.returncode or 0, out.decode()


async def test_a_registered_device_that_was_never_heard_is_named(line: Line):
    events = FlowTable("events", TableFolder(str(line.folder / "tables" / "events")))
    heard = datetime.now(UTC) - timedelta(minutes=1)
    times = dict.fromkeys(("ingested", "recordedtime"), heard)
    events.append(1, row=lambda _: {"device": "lamp-1", "tenant": line.tenant, **times})
    async with serving(line) as bridge:
        settings = f'tenant = "{line.tenant}"\n[operator]\nbridge = "127.0.0.1:{line.port}"\n[flow]\ntables = "tables"\n'
        (line.folder / "operator.toml").write_text(settings)
        await registered(line, bridge, "lamp-1", "lamp-2")
        status, out = await ask(line.folder, "coverage", "--by", "type", "--json")
        assert (status, json.loads(out)) == (
            0,
            [{"type": "lamp", "registered": 2, "heard": 1, "share": 0.5, "events": 1}],
        )
        status, out = await ask(line.folder, "silent", "--over", "1ms", "--json")
        assert [(each["device"], each["type"], each["last"] is None) for each in json.loads(out)] == [
            ("lamp-2", "lamp", True),
            ("lamp-1", "lamp", False),
        ]
    status, out = await ask(line.folder, "coverage")
    assert (status, "no bridge answers" in out, "--without-registry" in out, out.count("\n")) == (2, True, True, 1)


async def test_the_bridge_counts_silent_devices_by_type_and_lane(line: Line, monkeypatch):
    """One that was never heard on lane alarm, although it sends telemetry; after its alarm there is none."""
    monkeypatch.setattr(silent_devices, "COUNT_S", 0.0)
    rules = [SilentSettings(lane=Lane.ALARM, after_s=0.05), SilentSettings(after_s=3600)]
    line.cloud = replace(
        line.cloud,
        fleet=FleetSettings(silent=rules),
        devices=replace(line.cloud.devices, seen_every_s=1.0),
    )
    async with serving(line) as bridge, line.gateway() as outbox:
        await registered(line, bridge, "lamp-1")
        await silent_is(bridge, {("lamp", "alarm"): 1, ("lamp", ""): 0})
        await line.put(outbox, 1, device="lamp-1", lane=Lane.ALARM)

        def is_noted(table: DeviceTable) -> bool:
            found = table.get("lamp-1")
            return found is not None and bool(found.sightings) and "alarm" in (found.sightings[0][1].lanes or {})

        await known(bridge, is_noted)


async def silent_is(bridge, expected: dict[tuple[str, str], int]) -> None:
    async def differs() -> bool:
        return {each.labels: each.value for each in bridge.silent.read()} != expected

    await until_not(differs, f"the silent devices are not {expected}")
