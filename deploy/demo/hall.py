"""A hall whose gateway acts by itself: `make demo ARGS="--rules"`.

Two sensors report the temperature. Rules switch a fan by both values, also while the bridge is killed. First the gateway sends
each value, then means of five seconds in their place; the demo counts the bytes between gateway and bridge each time. Then it
compares what the gateway acknowledged with what Kafka holds, and what the fan was told with the temperatures.
"""

import asyncio
import contextlib
import itertools
import json
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
from rich.console import Console

from demo.polling import until
from fogline.events.event import Event, Lane
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.committed_records import read_committed
from fogline_cloud.kafka.records import event_of
from fogline_edge.adapters.mqtt.protocol.packets import Ack, Connect, Publish
from fogline_edge.adapters.mqtt.protocol.primitives import V5, PacketType
from fogline_edge.operate.status import read_status
from fogline_edge.rules.windows import AGGREGATE_CONTENT_TYPE
from fogline_lab.device.mqtt_wire import MqttWire
from fogline_lab.kafka_broker import KafkaBroker
from fogline_lab.line.process_line import ProcessLine
from fogline_lab.supervisor import ChildProcess, find_script, kill_child, start_child, stop_children
from fogline_lab.waiting import until as wait_until

TENANT = "demo"
LIMIT_S = 90.0
READINGS = 80
"""Readings of each sensor in each phase."""
PAUSE_S = 0.02
SIDES = ("east", "west")
HALL = """
tenant = "{tenant}"
gateway = "{name}"
data = "{name}"
[uplink]
bridge = "127.0.0.1:{port}"
[mqtt]
port = 0
{rules}
"""
REACT = """
[[rules.react]]
name = "{name}"
device = "hall-*"
when = "last.east.value.t + last.west.value.t {condition}"
then = [{{ command = "switch", device = "fan-1", text = "{state}", ttl_s = 60 }}]
[rules.react.last]
east = {{ device = "hall-east" }}
west = {{ device = "hall-west" }}
"""
RULES = REACT.format(name="fan-on", condition="> 52.0", state="on") + REACT.format(
    name="fan-off", condition="< 46.0", state="off"
)
MEANS = """
[[rules.reduce]]
name = "means"
device = "hall-*"
fields = ["/t"]
window_s = 5
"""


class Phase(NamedTuple):
    """Some time in the hall: its temperature, whether the bridge is there, and the state that the fan has at its end."""

    degrees: float
    bridge: bool
    fan: str


PHASES = (Phase(20, True, "off"), Phase(27, True, "on"), Phase(20, False, "off"), Phase(27, False, "on"), Phase(27, True, "on"))
TOLD = [state for state, _ in itertools.groupby(each.fan for each in PHASES)]


@dataclass
class HallResult:
    """What one pass did. `told`: what the fan was told, in order. `wire_bytes`: between gateway and bridge, both ways."""

    acknowledged: int = 0
    landed: int = 0
    merged: int = 0
    double: int = 0
    commands: int = 0
    wire_bytes: int = 0
    told: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def lost(self) -> int:
        """Acknowledged readings that are neither in Kafka nor in a mean there."""
        return self.acknowledged - self.landed - self.merged


class _Wire:
    """A relay to the bridge that counts the bytes of both directions."""

    def __init__(self, target: int) -> None:
        self.passed = 0
        self._target = target
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self) -> int:
        """Listen. Returns the port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def close(self) -> None:
        """End the listener and all connections."""
        self._server.close()
        for each in self._connections:
            each.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            with contextlib.suppress(OSError):
                far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
                try:
                    async with asyncio.TaskGroup() as both:
                        both.create_task(self._pass(reader, far_writer), name="to the bridge")
                        both.create_task(self._pass(far_reader, writer), name="to the gateway")
                finally:
                    far_writer.close()
        finally:
            self._connections.discard(task)
            writer.close()

    async def _pass(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65_536):
                self.passed += len(data)
                target.write(data)
                await target.drain()
        target.close()


class _Fan:
    """The fan: a device that answers its commands. `told`: what it was told, in order."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def was_told(self, times: int) -> bool:
        """Return True if it got so many commands."""
        return len(self.told) >= times

    async def serve(self, port: int) -> None:
        """Take commands until it is cancelled."""
        wire = await _connected("fan-1", port)
        await wire.subscribe("command///req/#")
        while isinstance(packet := await _next(wire), Publish):
            self.told.append(packet.payload.decode())
            await wire.send(Ack(kind=PacketType.PUBACK, packet_id=packet.packet_id))
            await wire.publish(f"command///res/{packet.topic.split('/')[4]}/200", b"done", number=len(self.told))
            await wire.receive()


async def _next(wire: MqttWire) -> object:
    while True:
        with contextlib.suppress(TimeoutError):
            return await wire.receive()


async def _connected(client: str, port: int) -> MqttWire:
    wire = MqttWire(*await asyncio.open_connection("127.0.0.1", port), V5)
    await wire.send(Connect(version=V5, client_id=client))
    await wire.receive()
    return wire


async def run_hall(folder: Path, console: Console, out: Path | None) -> int:
    """Run both passes. Returns the exit status: 0 if nothing was lost or double, and the fan was told what it should be."""
    await asyncio.to_thread(_empty, folder)
    broker = KafkaBroker(folder / "kafka")
    await asyncio.to_thread(broker.launch)
    try:
        await asyncio.to_thread(broker.wait)
        line = ProcessLine(TENANT, folder, broker.bootstrap, shards=1)
        try:
            values = await _pass(line, "values", RULES)
            means = await _pass(line, "means", RULES + MEANS)
        finally:
            await line.close()
    finally:
        await asyncio.to_thread(broker.stop)
    return _report({"values": values, "means": means}, console, out)


def _empty(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


async def _pass(line: ProcessLine, name: str, rules: str) -> HallResult:
    bridge = line.bridge("bridge-1")
    if not bridge.running:
        await start_child(bridge)
    wire = _Wire(line.ports["bridge-1"])
    config = line.folder / f"{name}.toml"
    config.write_text(HALL.format(tenant=TENANT, name=name, port=await wire.start(), rules=rules))
    command = [find_script("fogline-edge"), "run", "--insecure-dev", "--config", config]
    gateway = ChildProcess(name, command, line.folder / f"{name}.log")
    result, fan = HallResult(), _Fan()
    try:
        port = int((await start_child(gateway))["mqtt"].rpartition(":")[2])
        serving = asyncio.create_task(fan.serve(port), name="fan")
        try:
            await _live(port, bridge, fan, result)
            await _settled(line, name, result)
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
    finally:
        await stop_children(gateway)
        await wire.close()
    result.told, result.wire_bytes = fan.told, wire.passed
    if fan.told != TOLD:
        result.problems.append(f"the fan was told {fan.told}, expected {TOLD}")
    if result.commands != len(TOLD):
        result.problems.append(f"{result.commands} commands succeeded, expected {len(TOLD)}")
    if result.lost or result.double:
        result.problems.append(f"lost {result.lost}, double {result.double}")
    return result


async def _live(port: int, bridge: ChildProcess, fan: _Fan, result: HallResult) -> None:
    """Go through the phases: each sensor reports, and the fan is told before the next phase begins."""
    sensors = {side: await _connected(f"hall-{side}", port) for side in SIDES}
    told = 0
    for former, phase in itertools.pairwise((None, *PHASES)):
        assert phase is not None
        if bridge.running and not phase.bridge:
            await kill_child(bridge)
        elif not bridge.running and phase.bridge:
            await start_child(bridge)
        for _ in range(READINGS):
            for wire in sensors.values():
                result.acknowledged += 1
                body = {"t": phase.degrees + 0.01 * (result.acknowledged % 7), "n": result.acknowledged}
                await wire.publish("telemetry", json.dumps(body).encode(), number=result.acknowledged % 60_000 + 1)
                await wire.receive()
            await asyncio.sleep(PAUSE_S)
        told += former is None or former.fan != phase.fan
        if not await until(partial(fan.was_told, told), LIMIT_S):
            result.problems.append(f"the fan was not told {phase.fan} at {phase.degrees} degrees")
    for wire in sensors.values():
        wire.cut()


async def _settled(line: ProcessLine, gateway: str, result: HallResult) -> None:
    """Wait until Kafka has everything, and count it."""
    data = line.folder / gateway

    async def complete() -> bool:
        if read_status(data)["backlog"]:
            return False
        _count(await asyncio.to_thread(lambda: list(_landed(line, gateway))), result)
        return result.lost <= 0 and result.commands >= len(TOLD)

    try:
        await wait_until(complete, "", LIMIT_S)
    except AssertionError:
        result.problems.append(f"after {LIMIT_S:.0f} s Kafka does not have everything")


def _landed(line: ProcessLine, gateway: str) -> Iterator[Event]:
    for lane in (Lane.TELEMETRY, Lane.REPLY):
        for record in read_committed(line.clients, {(topics.of_lane(lane, line.tenant), 0): None}):
            event = event_of(dict(record.headers), record.value, line.tenant)
            if event.gateway == gateway:
                yield event


def _count(events: list[Event], result: HallResult) -> None:
    readings: Counter[int] = Counter()
    windows: dict[str, int] = {}
    means = 0
    for event in events:
        if event.content_type == AGGREGATE_CONTENT_TYPE:
            means += 1
            windows[event.id] = msgspec.json.decode(event.data)["count"]
        elif event.lane is Lane.TELEMETRY and event.adapter == "mqtt" and event.data.startswith(b'{"t"'):
            readings[msgspec.json.decode(event.data)["n"]] += 1
    result.landed, result.merged = len(readings), sum(windows.values())
    repeated = sum(readings.values()) - len(readings) + means - len(windows)
    result.double = repeated + max(0, result.landed + result.merged - result.acknowledged)
    result.commands = len({each.commandid for each in events if each.commandstate == "SUCCEEDED"})


def _report(results: dict[str, HallResult], console: Console, out: Path | None) -> int:
    if out is not None:
        out.write_text(
            json.dumps({name: {**asdict(each), "lost": each.lost} for name, each in results.items()}, indent=2) + "\n"
        )
    for name, each in results.items():
        console.print(
            f"{name}: {each.acknowledged:,} readings acknowledged, {each.landed:,} in Kafka, {each.merged:,} in means there, "
            f"{each.lost} lost, {each.double} double; {each.wire_bytes:,} bytes between gateway and bridge; "
            f"the fan was told {', '.join(each.told)}",
            highlight=False,
            soft_wrap=True,
        )
        for problem in each.problems:
            console.print(f"problem: {problem}", style="red", highlight=False, soft_wrap=True)
    before, after = (results[each].wire_bytes for each in ("values", "means"))
    console.print(f"means take {after / before:.0%} of the bytes that the values take", highlight=False)
    return int(any(each.problems for each in results.values()))
