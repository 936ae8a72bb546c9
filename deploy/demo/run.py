"""The demonstration: start, load, kills, drain, judgement."""

import asyncio
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from rich.console import Console

from demo.ble_judgement import BleJudgement, judge_ble
from demo.certificate_changes import TRACKER, CertificateChanges, read_kept, refusals
from demo.certificate_judgement import CertificateJudgement, RevokedEvents, judge_certificates
from demo.certificates import audited
from demo.commander import Commander, read_records
from demo.device_log import Effects, read_log
from demo.evidence import gather, gather_ble, read_times, read_visible
from demo.freshness import Freshness, freshness
from demo.judgement import CommandJudgement, Judgement, RunEvidence, judge, judge_commands
from demo.killer import Killer
from demo.operator_commands import CommandRow
from demo.payload import Device, fleet
from demo.plan import by_kind, enough
from demo.polling import until
from demo.report import DemoReport
from demo.row_watch import RowWatch
from demo.scenario import FINISH_LIMIT_S, Scenario, cancel
from demo.screen import show
from demo.snapshot import GatewayStats, Snapshot
from demo.workspace import Workspace
from fogline_lab.supervisor import start_child, stop_children


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """Options of a run. `events`, `commands`, `seconds`: the least of each; all 0: until Ctrl-C.

    `kill_every_s` 0: no kills.
    """

    events: int
    commands: int
    seconds: float
    devices: int
    rate: float
    kill_every_s: float
    plain: bool


class Demonstration:
    """One run. If `stop` is set early, the demo still makes its judgement."""

    def __init__(self, workspace: Workspace, options: DemoOptions, console: Console) -> None:
        self.stop = asyncio.Event()
        self.snapshot = Snapshot({name: GatewayStats() for name in workspace.gateways})
        self._scenario = Scenario(workspace, self.snapshot)
        self.site = self._scenario.site
        self._workspace = workspace
        self._options = options
        self._console = console
        self._load_s = self._average = 0.0
        self._devices = self.site.devices(count=options.devices, rate=options.rate)
        self._killer = Killer(workspace, self.site.parts, self.snapshot, options.kill_every_s)
        self._watch = RowWatch(workspace.folder / "tables" / "readings")
        self._fleet = fleet(options.devices, len(workspace.gateways))
        self._changes = CertificateChanges(workspace, self.site.stolen, self._killer.calm, self._under_load)
        valves = [each.name for each in workspace.ble if not each.advertises]
        self._commander = Commander(
            workspace, self._fleet, self.snapshot.commands, valves=valves, heard=self.snapshot.kafka.heard
        )

    def kill_all(self) -> None:
        """Kill all parts at once."""
        self._devices.kill()
        self.site.kill_all()

    async def run(self) -> DemoReport | None:
        """Run from start to report. Returns `None` if `stop` was set before any event. Raises `Misconfigured`."""
        screen = asyncio.create_task(show(self.snapshot, self._console, plain=self._options.plain), name="screen")
        try:
            if not await self._scenario.started(self.stop):
                return None
            self._console.print(f"the operator's page: {self._workspace.page}", highlight=False, soft_wrap=True, markup=False)
            self._watch.start()
            async with self._scenario.watched():
                await self._load()
                await self._scenario.drain(self._killer.settle)
            await asyncio.to_thread(self._watch.stop)
            return await self._judge()
        finally:
            await cancel(screen)
            await self._killer.abandon()
            await stop_children(self._devices)
            await self.site.end()

    async def _load(self) -> None:
        """Publish and kill parts until there are enough events, commands and kills."""
        self.snapshot.doing = "devices publish"
        await start_child(self._devices)
        self.site.begin()
        began = time.monotonic()
        kills = asyncio.create_task(self._killer.run(self._options.rate), name="killer")
        if not self._options.kill_every_s:
            self._killer.finish()
        commands = asyncio.create_task(self._command(), name="commander")
        changes = asyncio.create_task(self._changes.run(), name="certificates")
        fallen = self._scenario.fallen
        try:
            await until(lambda: self.stop.is_set() or fallen.is_set() or self._enough(began))
            self._killer.finish()
            await asyncio.wait([kills], timeout=FINISH_LIMIT_S * 2)
            self._load_s = time.monotonic() - began
            self._average = self.snapshot.devices.acknowledged.total / self._load_s
            self.snapshot.doing = "devices are quiet; waiting for the last results of commands"
            self._devices.tell("quiet")
            await self._changes.finish(changes)
            await self._commander.finish(fallen.is_set)
        finally:
            await cancel(kills, commands, changes)
        await self._scenario.finish(self._devices)

    async def _command(self) -> None:
        """Send commands, once the bridge knows the gateway of every device from the device's events."""
        await until(self._under_load)
        await self._commander.run()

    def _under_load(self) -> bool:
        return self.snapshot.kafka.events.total > 5 * len(self._fleet)

    def _enough(self, began: float) -> bool:
        wanted = self._options
        if not (wanted.events or wanted.commands or wanted.seconds):
            return False
        reached = self.snapshot.devices.acknowledged.total >= wanted.events and self.snapshot.commands.sent >= wanted.commands
        reached = reached and time.monotonic() - began >= wanted.seconds and self._changes.over
        return reached and (not self._options.kill_every_s or enough(self._killer.killed))

    async def _judge(self) -> DemoReport:
        self.snapshot.doing = "comparing event ids and verifying the ledger"
        evidence = await asyncio.to_thread(gather, self._workspace, self.snapshot.devices.sent or unlimited(self._fleet))
        records = await asyncio.to_thread(read_records, self._workspace)
        effects = read_log(self._workspace.device_log, self._workspace.ble_log).effects
        commands = judge_commands(self._commander.commands, records, effects)
        ble = await asyncio.to_thread(self._judge_ble, records, effects) if self._workspace.ble else None
        certificates = await asyncio.to_thread(self._judge_certificates, evidence)
        fresh = await asyncio.to_thread(self._freshness)
        ledger = await self._scenario.verified()
        judgement = judge(evidence.without(TRACKER.name))
        return self._report(judgement, commands, ledger, fresh, ble=ble, certificates=certificates)

    def _freshness(self) -> Freshness:
        acknowledged = read_times(self._workspace.acknowledged_file)
        return freshness(acknowledged, read_visible(self._watch), self._watch.commits_s, self._killer.outages)

    def _judge_certificates(self, evidence: RunEvidence) -> CertificateJudgement | None:
        """Judge the changes of certificates, if they were made."""
        changes = self._changes
        if changes.renewal is None or changes.revocation is None:
            return None
        kept = read_kept(self._workspace.outbox(self._workspace.stolen))
        stolen, log = self._workspace.stolen, self._workspace.logs / "audit.log"
        found = audited(stolen, self._workspace.cloud, log)
        revocation = replace(changes.revocation, refused=refusals(self._workspace), audited=found)
        events = RevokedEvents(changes.acknowledged, *evidence.of(TRACKER.name), kept)
        return judge_certificates(changes.renewal, revocation, events)

    def _judge_ble(self, records: Iterable[CommandRow], effects: Effects) -> BleJudgement:
        """Judge the Bluetooth devices alone."""
        names = {each.name for each in self._workspace.ble}
        commands = judge_commands(
            [each for each in self._commander.commands if each.device in names],
            [each for each in records if each.device in names],
            {done: times for done, times in effects.items() if done[0] in names},
        )
        advertisers = [each.name for each in self._workspace.ble if each.advertises]
        return judge_ble(gather_ble(self._workspace), advertisers, commands)

    def _report(
        self,
        judgement: Judgement,
        commands: CommandJudgement,
        ledger: dict[str, Any] | None,
        fresh: Freshness,
        *,
        ble: BleJudgement | None,
        certificates: CertificateJudgement | None,
    ) -> DemoReport:
        streams = ledger["streams"] if ledger else []
        kills = self._killer.kills
        rates = [kill.rate for kill in kills]
        return DemoReport(
            judgement,
            refused={
                "edge": sum(stats.duplicate for stats in self.snapshot.gateways.values()),
                "bridge": sum(each["refused"]["bridge"] for each in streams),
            },
            kills=by_kind(self._killer.killed),
            problems=[*self._scenario.problems, *self._killer.problems, *self._changes.problems],
            commands=commands,
            ble=ble,
            certificates=certificates,
            freshness=fresh,
            details={
                "rate": {
                    "average": round(self._average, 1),
                    "lowest_before_a_kill": min(rates, default=None),
                    "before_each_kill": rates,
                },
                "load_s": round(self._load_s, 1),
                "each_kill": [asdict(kill) for kill in kills],
                "device_connections": self.snapshot.devices.connections,
                "given_up_by_coap_devices": self.snapshot.devices.unknown,
                "lanes": self.snapshot.kafka.lanes,
                "ledger": ledger,
            },
        )


def unlimited(devices: Iterable[Device]) -> dict[str, int]:
    """Return counters without limit, if the devices did not report theirs: then only unknown devices are phantoms."""
    return {each.name: 2**53 for each in devices}
