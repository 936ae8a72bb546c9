"""The soak: start, load, faults, drain, judgement."""

import asyncio
import time
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console

from demo.commander import Commander, read_records
from demo.device_log import read_log
from demo.evidence import gather
from demo.judgement import Judgement, judge, judge_commands
from demo.payload import Device
from demo.polling import until
from demo.run import unlimited
from demo.scenario import Scenario, cancel
from demo.screen import show
from demo.snapshot import GatewayStats, Snapshot
from demo.workspace import Workspace
from fogline.errors import Misconfigured
from fogline_lab.supervisor import start_child, stop_children
from soak.breaker import Breaker
from soak.certificates import count_certificates, replace_bridge_certificates
from soak.command_judgement import CommandCounts, count_commands, disturbances
from soak.flat import ProcessSample, grown, held, not_at_rest, not_flat
from soak.lines import FaultyLines
from soak.reconnects import FaultPlans
from soak.sampling import Sampler
from soak.schedule import ScheduledFault, kills
from soak.verdict import Load, SoakVerdict

SETTLED_LIMIT_S = 60.0
"""The longest time from empty outboxes until gateways and bridges have nothing unsettled."""
REST_S = 3.0
"""Rest of the Bluetooth links before a sample: the gateways have discovered all services by then."""
COMMANDS_SHARE = 0.85
"""The least share of the commands that the rate gives: the operator waits while no bridge is there."""
EVERY_S, RECONNECTS_EVERY_S, BLE_EVERY_S = 5.0, 2.0, 1.0
"""Periods of the samples."""
LIVING = ("gateway-1", "gateway-2", "bridge-1", "bridge-2")
"""Parts whose memory and counts must not grow over hundreds of reconnects."""


@dataclass(frozen=True, slots=True)
class SoakOptions:
    """`faults`: the schedule. `reconnects`: the wanted number, or 0.

    `ble`: the wanted number of reconnects of Bluetooth devices, or 0. `seconds`: time that devices send, if reconnects are
    not counted. `wanted_rate`: the least rate that they must offer. `certificate_minutes`: validity of the gateways'
    certificates, which then renew themselves, or 0 for long ones. `command_rate`: commands per second.
    """

    faults: list[ScheduledFault]
    reconnects: int
    ble: int
    seed: int
    seconds: float
    rate: float
    wanted_rate: float
    certificate_minutes: float = 0.0
    command_rate: float = 0.0


class Soak:
    """One run. If `stop` is set early, the soak still makes its judgement."""

    def __init__(
        self,
        workspace: Workspace,
        lines: FaultyLines,
        options: SoakOptions,
        console: Console,
        *,
        plans: FaultPlans,
        fleet: list[Device],
    ) -> None:
        self.stop = asyncio.Event()
        self.snapshot = Snapshot({name: GatewayStats() for name in workspace.gateways})
        self._workspace = workspace
        self._lines = lines
        self._plans = plans
        self._fleet = fleet
        self._options = options
        self._console = console
        self._scenario = Scenario(workspace, self.snapshot, cycles=options.ble, seed=options.seed)
        self._site = self._scenario.site
        self._devices = self._site.devices(count=len(fleet), rate=options.rate)
        self._breaker = Breaker(workspace, self._site, self._devices, lines, self.snapshot)
        asked = (*self._site.gateways, *self._site.bridges)
        every_s = RECONNECTS_EVERY_S if options.reconnects else BLE_EVERY_S if options.ble else EVERY_S
        self.sampler = Sampler((*self._site.parts.values(), self._devices), asked, self.snapshot, every_s)
        self._commander = Commander(workspace, fleet, self.snapshot.commands, rate=options.command_rate)
        self._load_s = 0.0
        self._replaced = 0
        self._commands: asyncio.Task[None] | None = None
        self._at_rest: list[dict[str, ProcessSample]] = []

    @property
    def done(self) -> list[dict[str, Any]]:
        """The faults that were applied, as JSON values."""
        return [asdict(each) for each in self._breaker.applied]

    def kill_all(self) -> None:
        """Kill all parts at once."""
        self._devices.kill()
        self._site.kill_all()

    async def run(self) -> SoakVerdict | None:
        """Run from start to verdict. Returns `None` if `stop` was set before any event. Raises `Misconfigured`."""
        screen = asyncio.create_task(show(self.snapshot, self._console, plain=True), name="screen")
        try:
            if not await self._scenario.started(self.stop):
                return None
            async with self._scenario.watched():
                await start_child(self._devices)
                if self._options.ble:
                    await self._rest()
                sampling = asyncio.create_task(self.sampler.run(), name="sampling")
                try:
                    await self._load()
                    if self._options.ble:  # links at rest hold more memory than links that come and go
                        await cancel(sampling)
                    await self._calm()
                finally:
                    await cancel(sampling)
                if self._options.reconnects:
                    await self._settled()
                await self._scenario.drain(self._breaker.settle)
            return await self._judge()
        finally:
            await cancel(screen)
            await self._breaker.abandon()
            if self._commands is not None:
                await cancel(self._commands)
            await stop_children(self._devices)
            await self._site.end()

    async def _load(self) -> None:
        """Publish, and apply the faults."""
        self.snapshot.doing = "devices publish"
        self._site.begin()
        began = time.monotonic()
        faults = asyncio.create_task(self._breaker.run(self._options.faults), name="faults")
        certificates = asyncio.create_task(self._replace_certificates(), name="certificates")
        if self._options.command_rate:
            self._commands = asyncio.create_task(self._command(), name="commander")
        try:
            await until(lambda: self.stop.is_set() or self._scenario.fallen.is_set() or self._enough(began))
        finally:
            await cancel(faults, certificates)
        self._load_s = time.monotonic() - began

    async def _command(self) -> None:
        """Send commands, once the bridges know the gateway of every device from the device's events."""
        await until(lambda: self.snapshot.kafka.events.total > 5 * len(self._fleet))
        await self._commander.run()

    async def _replace_certificates(self) -> None:
        """Replace the bridges' certificates at half of the time, if the gateways' are short."""
        if self._options.certificate_minutes:
            await asyncio.sleep(self._options.seconds / 2)
            try:
                self._replaced = await replace_bridge_certificates(self._workspace)
            except Misconfigured as error:
                self._scenario.problems.append(str(error))

    async def _calm(self) -> None:
        """Stop messages and faults, and wait until all parts are back."""
        self._plans.stopped = True
        self._devices.tell("quiet")
        self.snapshot.doing = "devices are quiet; waiting until all parts are back"
        if not self._scenario.fallen.is_set():
            await self._breaker.settle()
            if self._options.ble:
                await self._rest()
        if self._commands is not None:
            self.snapshot.doing = "waiting for the last results of commands"
            await self._commander.finish(self._scenario.fallen.is_set)
            await cancel(self._commands)
        await self._scenario.finish(self._devices)

    async def _rest(self) -> None:
        """Wait until all Bluetooth devices are connected, and sample the parts at rest. A missing device is a problem."""
        valves = sum(not each.advertises for each in self._workspace.ble)
        if not await self._scenario.until(lambda: self.snapshot.air.linked == valves, SETTLED_LIMIT_S):
            self._scenario.problems.append(f"{self.snapshot.air.linked} of {valves} Bluetooth devices are connected")
        await asyncio.sleep(REST_S)
        self._at_rest.append({each.part: each for each in await self.sampler.look() if each.part in LIVING})

    def _enough(self, began: float) -> bool:
        if self._options.ble:
            return self.snapshot.air.cycles >= self._options.ble
        if self._options.reconnects:
            return sum(self._reconnects().values()) >= self._options.reconnects
        return time.monotonic() - began >= self._options.seconds

    def _reconnects(self) -> Counter[str]:
        if self._options.ble:
            return Counter(bluetooth=self.snapshot.air.cycles)
        return Counter(fault.name.lower() for line in self._lines.bridges.values() for fault in line.failed)

    async def _settled(self) -> None:
        """Wait until gateways and bridges have nothing unsettled. A delivery that stays unsettled is a problem."""
        await self._scenario.emptied()
        deadline = time.monotonic() + SETTLED_LIMIT_S
        while time.monotonic() < deadline:
            await self.sampler.take()
            found = {part: self.snapshot.census.get(part, {}).get("unsettled") for part in LIVING}
            if not any(count is None or count for count in found.values()):
                return
        self._scenario.problems += [f"{part}: {count} deliveries are unsettled" for part, count in found.items() if count != 0]

    async def _judge(self) -> SoakVerdict:
        self.snapshot.doing = "comparing event ids and verifying the ledger"
        sent = self.snapshot.devices.sent
        evidence = await asyncio.to_thread(gather, self._workspace, sent or unlimited(self._fleet))
        judgement = await asyncio.to_thread(judge, evidence)
        commands = await asyncio.to_thread(self._judge_commands) if self._commands is not None else None
        ledger = await self._scenario.verified()
        return self._verdict(judgement, sum(sent.values()) if sent else judgement.acknowledged, ledger, commands)

    def _judge_commands(self) -> CommandCounts:
        log = read_log(self._workspace.device_log)
        records, commands = read_records(self._workspace), self._commander.commands
        happened = disturbances(self._fleet, self._breaker.applied, log.lost, self._breaker.wall)
        wanted = round(COMMANDS_SHARE * self._options.command_rate * self._options.seconds)
        return count_commands(judge_commands(commands, records, log.effects), commands, records, happened, wanted)

    def _verdict(
        self, judgement: Judgement, offered: int, ledger: dict[str, Any] | None, commands: CommandCounts | None
    ) -> SoakVerdict:
        samples = self.sampler.samples
        problems = [*self._scenario.problems, *self._breaker.problems]
        counted = self._options.reconnects or self._options.ble
        if counted and not self.stop.is_set():
            problems += not_flat(samples, LIVING)
        problems += grown(samples, [each for each in self._site.parts if each.startswith("gateway")])
        bridges = [each for each in self._site.parts if each.startswith("bridge")]
        problems += grown(samples, bridges, commands.judgement.sent if commands is not None else 0)
        minutes = self._options.certificate_minutes
        if len(self._at_rest) == 2:
            problems += not_at_rest(*self._at_rest)
        return SoakVerdict(
            judgement,
            Load(offered, judgement.acknowledged, round(self._load_s, 1), self._options.wanted_rate),
            ledger,
            problems,
            kills=kills(each.fault for each in self._breaker.applied),
            planned=kills(self._options.faults) if self._options.faults else {},
            reconnects=self._reconnects(),
            reconnects_wanted=counted,
            stopped=self.stop.is_set(),
            commands=commands,
            certificates=count_certificates(self._workspace, minutes, self._load_s, self._replaced) if minutes else None,
            held=[found for part in (*self._site.parts, "devices") if (found := held(samples, part)) is not None],
        )
