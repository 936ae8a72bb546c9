"""The demonstration: start, load, kills, drain, judgement."""

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console

from demo.ble_judgement import BleJudgement, judge_ble
from demo.commander import Commander, read_effects, read_records
from demo.course import FINISH_LIMIT_S, Course, cancel
from demo.evidence import gather, gather_ble
from demo.judgement import CommandJudgement, Judgement, judge, judge_commands
from demo.killer import Killer
from demo.orders import Recorded
from demo.payload import Device, fleet
from demo.picture import GatewayNews, Picture
from demo.place import Place
from demo.plan import by_kind, enough
from demo.report import Report
from demo.screen import show
from demo.waiting import until


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked for. `events`, `commands`, `seconds`: at least so many, all 0 for until Ctrl-C.

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
    """One run. `stop` may be set at any time; the judgement is still made."""

    def __init__(self, place: Place, options: Options, console: Console) -> None:
        self.stop = asyncio.Event()
        self.picture = Picture({name: GatewayNews() for name in place.gateways})
        self._course = Course(place, self.picture)
        self.world = self._course.world
        self._place = place
        self._options = options
        self._console = console
        self._load_s = self._average = 0.0
        self._devices = self.world.devices(count=options.devices, rate=options.rate)
        self._killer = Killer(place, self.world.parts, self.picture, options.kill_every_s)
        self._fleet = fleet(options.devices, len(place.gateways))
        valves = [each.name for each in place.ble if not each.advertises]
        self._commander = Commander(place, self._fleet, self.picture.orders, valves=valves, heard=self.picture.kafka.heard)

    def strike(self) -> None:
        """End everything at once."""
        self._devices.strike()
        self.world.strike()

    async def run(self) -> Report | None:
        """The whole course; `None` if it was stopped before anything was sent. Raises `Misconfigured`."""
        screen = asyncio.create_task(show(self.picture, self._console, plain=self._options.plain), name="screen")
        try:
            if not await self._course.started(self.stop):
                return None
            async with self._course.watched():
                await self._load()
                await self._course.drain(self._killer.settle)
            return await self._judge()
        finally:
            await cancel(screen)
            await self._killer.abandon()
            await self._devices.stop()
            await self.world.end()

    async def _load(self) -> None:
        """Devices publish and parts are killed until there is enough of both."""
        self.picture.doing = "devices publish"
        await self._devices.start()
        self.world.begin()
        began = time.monotonic()
        kills = asyncio.create_task(self._killer.run(self._options.rate), name="killer")
        if not self._options.kill_every_s:
            self._killer.finish()
        commands = asyncio.create_task(self._command(), name="commander")
        fallen = self._course.fallen
        try:
            await until(lambda: self.stop.is_set() or fallen.is_set() or self._enough(began))
            self._killer.finish()
            await asyncio.wait([kills], timeout=FINISH_LIMIT_S * 2)
            self._load_s = time.monotonic() - began
            self._average = self.picture.devices.acknowledged.total / self._load_s
            self.picture.doing = "devices are quiet, and the operator waits for its last answers"
            self._devices.tell("quiet")
            await self._commander.finish(fallen.is_set)
        finally:
            await cancel(kills, commands)
        await self._course.finish(self._devices)

    async def _command(self) -> None:
        """Have the operator send, once every device is known to the bridge: a gateway is told by what comes from it."""
        await until(lambda: self.picture.kafka.events.total > 5 * len(self._fleet))
        await self._commander.run()

    def _enough(self, began: float) -> bool:
        wanted = self._options
        if not (wanted.events or wanted.commands or wanted.seconds):
            return False
        reached = self.picture.devices.acknowledged.total >= wanted.events and self.picture.orders.sent >= wanted.commands
        reached = reached and time.monotonic() - began >= wanted.seconds
        return reached and (not self._options.kill_every_s or enough(self._killer.killed))

    async def _judge(self) -> Report:
        self.picture.doing = "comparing sets of ids, and verifying the ledger"
        evidence = await asyncio.to_thread(gather, self._place, self.picture.devices.sent or unlimited(self._fleet))
        records = await asyncio.to_thread(read_records, self._place)
        effects = read_effects(self._place)
        commands = judge_commands(self._commander.orders, records, effects)
        ble = await asyncio.to_thread(self._judge_ble, records, effects) if self._place.ble else None
        ledger = await self._course.verified()
        return self._report(judge(evidence), commands, ble, ledger)

    def _judge_ble(self, records: Iterable[Recorded], effects: Mapping[tuple[str, str], int]) -> BleJudgement:
        """Of the Bluetooth devices alone."""
        names = {each.name for each in self._place.ble}
        commands = judge_commands(
            [each for each in self._commander.orders if each.device in names],
            [each for each in records if each.device in names],
            {done: count for done, count in effects.items() if done[0] in names},
        )
        advertisers = [each.name for each in self._place.ble if each.advertises]
        return judge_ble(gather_ble(self._place), advertisers, commands)

    def _report(
        self, judgement: Judgement, commands: CommandJudgement, ble: BleJudgement | None, ledger: dict[str, Any] | None
    ) -> Report:
        streams = ledger["streams"] if ledger else []
        kills = self._killer.kills
        rates = [kill.rate for kill in kills]
        return Report(
            judgement,
            refused={
                "edge": sum(news.duplicate for news in self.picture.gateways.values()),
                "bridge": sum(each["refused"]["bridge"] for each in streams),
            },
            kills=by_kind(self._killer.killed),
            problems=[*self._course.problems, *self._killer.problems],
            commands=commands,
            ble=ble,
            details={
                "rate": {
                    "average": round(self._average, 1),
                    "lowest_before_a_kill": min(rates, default=None),
                    "before_each_kill": rates,
                },
                "load_s": round(self._load_s, 1),
                "each_kill": [asdict(kill) for kill in kills],
                "device_connections": self.picture.devices.connections,
                "given_up_by_coap_devices": self.picture.devices.unknown,
                "lanes": self.picture.kafka.lanes,
                "ledger": ledger,
            },
        )


def unlimited(devices: Iterable[Device]) -> dict[str, int]:
    """For devices that did not say how much they have sent: then only a strange device is a phantom."""
    return {each.name: 2**53 for each in devices}
