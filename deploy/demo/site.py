"""Site: all parts of the demo as child processes, started and stopped in order."""

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from demo.certificates import enrol
from demo.probes import read_air, read_census, read_devices, read_flow
from demo.snapshot import Snapshot
from demo.workspace import Workspace
from fogline.errors import Misconfigured
from fogline_lab.supervisor import ChildProcess, Line, find_script, run_to_end, start_child, stop_children

FOLDER = Path(__file__).parent
WAITS = 32


class Site:
    """All parts of the demo: Kafka, bridges, gateways, Spark, and the Bluetooth devices (`air`) if there are any.

    `stolen`: the gateway that is revoked during the run, if there is one.
    `on_exit` is called on the event loop with a part that ended by itself. The links of the Bluetooth devices end on purpose
    `cycles` times, by `seed`.
    """

    def __init__(
        self,
        workspace: Workspace,
        snapshot: Snapshot,
        on_exit: Callable[[ChildProcess], None],
        *,
        cycles: int = 0,
        seed: int = 1,
    ) -> None:
        self.workspace = workspace
        self._snapshot = snapshot
        self._on_exit = on_exit
        # Each wait for a part takes a thread; the default pool of a small machine has as many as there are parts.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(WAITS))
        self._fogline = find_script("fogline")
        plain = [] if workspace.secure else ["--insecure-dev"]
        broker = [sys.executable, "-m", "fogline_lab.kafka_broker", "--data", workspace.folder / "kafka"]
        self.kafka = self._part("kafka", [*broker, "--port", workspace.ports.kafka], orphan_signal="TERM")
        self.bridges = [
            self._part(
                name,
                [self._fogline, "bridge", "run", *plain, "--config", workspace.cloud_of(name)],
                on_line=partial(read_census, snapshot, name),
            )
            for name in workspace.bridges
        ]
        self.api = (
            self._part("api", [self._fogline, "api", "run", "--insecure-dev", "--config", workspace.cloud])
            if workspace.ports.http
            else None
        )
        self.spark = self._part(
            "spark",
            [self._fogline, "flow", "run", "--json", "--config", workspace.cloud],
            on_line=partial(read_flow, snapshot.flow),
        )
        self._all_gateways = [
            self._part(
                name,
                [find_script("fogline-edge"), "run", *plain, "--config", workspace.edge(name)],
                on_line=partial(read_census, snapshot, name),
            )
            for name in (*workspace.gateways, *([workspace.stolen] if workspace.stolen else []))
        ]
        self.gateways = self._all_gateways[: len(workspace.gateways)]
        self.stolen = self._all_gateways[-1] if workspace.stolen else None
        options = {
            "gateways": len(workspace.gateways),
            "valves": sum(not each.advertises for each in workspace.ble) // len(workspace.gateways),
            "on-air": workspace.on_air,
            "log": workspace.ble_log,
            "cycles": cycles,
            "seed": seed,
        }
        command = _python("ble_devices", options)
        self.air = (
            self._part("air", command, on_line=partial(read_air, snapshot.air), orphan_signal="TERM") if workspace.ble else None
        )

    def _part(
        self,
        name: str,
        command: Sequence[object],
        *,
        on_line: Callable[[Line], None] = lambda _: None,
        on_exit: Callable[[ChildProcess], None] | None = None,
        **options: Any,
    ) -> ChildProcess:
        """Make a part whose callbacks run on the event loop."""
        loop = asyncio.get_running_loop()

        def exited(part: ChildProcess) -> None:
            loop.call_soon_threadsafe(on_exit or self._on_exit, part)

        def printed(line: Line) -> None:
            loop.call_soon_threadsafe(on_line, line)

        folder, log = self.workspace.folder, self.workspace.logs / f"{name}.log"
        return ChildProcess(name, command, log, folder=folder, on_line=printed, on_exit=exited, **options)

    @property
    def parts(self) -> dict[str, ChildProcess]:
        """All parts that do the line's work, by name: not the API, the Bluetooth devices and the stolen gateway."""
        return {part.name: part for part in (self.kafka, *self.bridges, self.spark, *self.gateways)}

    async def start(self) -> None:
        """Start Kafka, create its topics, then start all other parts. Raises `Misconfigured`."""
        self._snapshot.doing = "starting Kafka"
        await start_child(self.kafka)
        log = self.workspace.logs / "topics.log"
        command = [self._fogline, "topics", "create", "--config", self.workspace.cloud]
        status, _ = await asyncio.to_thread(run_to_end, command, log, self.workspace.folder)
        if status:
            raise Misconfigured(f"the topics cannot be created: {log.read_text('utf-8').strip()}")
        self._snapshot.doing = "starting bridges, gateways and Spark"
        await self._start_air()
        await _side_by_side([start_child(self.spark), self._start_line()])

    async def _start_line(self) -> None:
        """Start the bridges, then the gateways, which have to enrol first. That takes less time than Spark's start."""
        await _side_by_side(start_child(each) for each in self.bridges)
        api = [start_child(self.api)] if self.api is not None else []
        await _side_by_side([*api, *(_start_gateway(self.workspace, each) for each in self._all_gateways)])

    async def _start_air(self) -> None:
        """Start the Bluetooth devices, and point each gateway to the bus of its own simulated BlueZ."""
        if self.air is not None:
            await start_child(self.air)
            for gateway, bus in zip(self.gateways, self.air.ready_line["buses"], strict=True):
                gateway.environment["DBUS_SYSTEM_BUS_ADDRESS"] = bus

    def begin(self) -> None:
        """Let the Bluetooth devices begin to change what they advertise."""
        if self.air is not None:
            self.air.tell("begin")

    def quiet(self) -> None:
        """Silence the Bluetooth devices."""
        if self.air is not None:
            self.air.tell("quiet")

    def devices(self, *, count: int, rate: float) -> ChildProcess:
        """Make the process of the MQTT and CoAP devices; it is not started."""
        ports = self.workspace.ports
        options = {
            "gateways": ",".join(f"127.0.0.1:{port}" for port in ports.mqtt),
            "coap-gateways": ",".join(f"127.0.0.1:{port}" for port in ports.coap_lines or ports.coap),
            "serving": ",".join(map(str, ports.serving)),
            "acknowledged": self.workspace.acknowledged_file,
            "log": self.workspace.device_log,
            "devices": count,
            "rate": rate,
        }
        return self._part(
            "devices", _python("devices", options), on_line=partial(read_devices, self._snapshot.devices), on_exit=_ignore
        )

    async def verify(self) -> tuple[int, str]:
        """Run `fogline ledger verify`. Returns its exit status and its JSON.

        A gateway that was revoked during the run keeps what it could not send, and may have sent no statement: nothing is
        proven of it, but its streams are compared like the others.
        """
        without = ["--except", self.workspace.stolen] if self.workspace.stolen else []
        command = [self._fogline, "ledger", "verify", "--json", *without, "--config", self.workspace.cloud]
        return await asyncio.to_thread(run_to_end, command, self.workspace.logs / "ledger.log", self.workspace.folder)

    async def stop_gateways(self) -> None:
        """Stop the gateways in order; they go before the bridges, so that they can send their backlog."""
        await stop_children(*self._all_gateways)

    async def stop_bridges(self) -> None:
        """Stop the bridges in order."""
        await stop_children(*self.bridges)

    async def end(self) -> None:
        """Stop every part that still runs, in the order of the flow."""
        api = [self.api] if self.api is not None else []
        await stop_children(self.spark, *api, *self._all_gateways)
        await self.stop_bridges()
        await stop_children(self.kafka)
        if self.air is not None:
            await stop_children(self.air)

    def kill_all(self) -> None:
        """Kill every part at once, and do not wait."""
        for part in (self.kafka, *self.bridges, self.spark, *self._all_gateways, self.api, self.air):
            if part is not None:
                part.kill()


async def _side_by_side(steps: Iterable[Coroutine[Any, Any, object]]) -> None:
    async with asyncio.TaskGroup() as group:
        for each in steps:
            group.create_task(each)


async def _start_gateway(workspace: Workspace, part: ChildProcess) -> None:
    """Let a gateway enrol, if there is TLS, and start it."""
    if workspace.secure:
        edge, log = workspace.edge(part.name), workspace.logs / f"enrol-{part.name}.log"
        await asyncio.to_thread(enrol, part.name, edge.parent, workspace.ports.amqp[0], workspace.cloud, log)
        if part.name == workspace.stolen:  # it runs with the settings that `enroll` has written, which end with [mqtt]
            edge.write_text(f"{edge.read_text('utf-8')}port = 0\n", "utf-8")
    await start_child(part)


def _ignore(_part: ChildProcess) -> None:
    """Accept the end of a part: the devices end by themselves when everything is acknowledged."""


def _python(module: str, options: Mapping[str, object]) -> list[str]:
    """Return the command that runs a module of this package."""
    launch = f"import sys; sys.path[0] = {str(FOLDER.parent)!r}; from demo.{module} import main; sys.exit(main())"
    return [sys.executable, "-c", launch, *(f"--{name}={value}" for name, value in options.items())]
