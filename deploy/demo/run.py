"""The demonstration: start, load, kills, drain, judgement."""

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Console

from demo.commander import Commander, read_effects, read_records
from demo.evidence import gather
from demo.judgement import CommandJudgement, Judgement, Report, judge, judge_commands
from demo.killer import Killer
from demo.parts import Part
from demo.payload import fleet
from demo.picture import GatewayNews, Picture
from demo.place import Place
from demo.plan import by_kind, enough
from demo.screen import show
from demo.waiting import until
from demo.watch import KafkaTail, look_at_outbox, look_at_table, settled_streams, watch_outboxes, watch_table
from demo.world import World
from fogline.errors import FoglineError

FINISH_LIMIT_S = 30.0
"""How long the devices may take until everything is acknowledged."""
ARRIVE_LIMIT_S = 120.0
"""How long what was acknowledged may take to Kafka, and from there, once Spark runs, to the table."""


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


@dataclass(slots=True)
class Course:
    """What happened on the way."""

    problems: list[str] = field(default_factory=list)
    load_s: float = 0.0
    rate: float = 0.0


class Demonstration:
    """One run. `stop` may be set at any time; the judgement is still made."""

    def __init__(self, place: Place, options: Options, console: Console) -> None:
        self.stop = asyncio.Event()
        self.picture = Picture({name: GatewayNews() for name in place.gateways})
        self.world = World(place, self.picture, self._ended)
        self._place = place
        self._options = options
        self._console = console
        self._course = Course()
        self._devices = self.world.devices(count=options.devices, rate=options.rate)
        self._killer = Killer(place, self.world.parts, self.picture, options.kill_every_s)
        self._fallen = asyncio.Event()
        self._fleet = fleet(options.devices, len(place.gateways))
        self._commander = Commander(place, self._fleet, self.picture.orders)
        self._landed: dict[str, int] = {}

    def strike(self) -> None:
        """End everything at once."""
        self._devices.strike()
        self.world.strike()

    async def run(self) -> Report | None:
        """The whole course; `None` if it was stopped before anything was sent. Raises `Misconfigured`."""
        screen = asyncio.create_task(show(self.picture, self._console, plain=self._options.plain), name="screen")
        try:
            if not await self._started():
                return None
            tail = KafkaTail(self._place, self.picture)
            tail.start()
            watchers = [
                asyncio.create_task(watch_outboxes(self._place, self.picture), name="outboxes"),
                asyncio.create_task(watch_table(self._place, self.picture), name="table"),
            ]
            try:
                await self._load()
                await self._drain()
            finally:
                await _cancel(*watchers)
                await tail.stop()
            return await self._judge()
        finally:
            await _cancel(screen)
            await self._killer.abandon()
            await self._devices.stop()
            await self.world.end()

    async def _started(self) -> bool:
        """Start all parts, unless it is stopped first."""
        start = asyncio.create_task(self.world.start(), name="start")
        stopped = asyncio.create_task(self.stop.wait(), name="stop")
        await asyncio.wait([start, stopped], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not start.done():
            await _cancel(start)
            return False
        try:
            start.result()
        except* FoglineError as group:
            raise _first(group) from None
        return True

    async def _load(self) -> None:
        """Devices publish and parts are killed until there is enough of both."""
        self.picture.doing = "devices publish"
        await self._devices.start()
        began = time.monotonic()
        kills = asyncio.create_task(self._killer.run(self._options.rate), name="killer")
        if not self._options.kill_every_s:
            self._killer.finish()
        commands = asyncio.create_task(self._command(), name="commander")
        try:
            await until(lambda: self.stop.is_set() or self._fallen.is_set() or self._enough(began))
            self._killer.finish()
            await asyncio.wait([kills], timeout=FINISH_LIMIT_S * 2)
            self._course.load_s = time.monotonic() - began
            self._course.rate = self.picture.devices.acknowledged.total / self._course.load_s
            self.picture.doing = "devices are quiet, and the operator waits for its last answers"
            self._devices.tell("quiet")
            await self._commander.finish(self._fallen.is_set)
        finally:
            await _cancel(kills, commands)
        self.picture.doing = "devices wait for their last acknowledgements"
        self._devices.tell("finish")
        if not await self._until(lambda: not self._devices.running, FINISH_LIMIT_S):
            self._course.problems.append(f"{self.picture.devices.waiting} messages were not acknowledged")

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

    async def _drain(self) -> None:
        """Until everything is in the table; then end gateways, bridge and Spark in the order of the flow."""
        self.picture.doing = "waiting until everything is in the table"
        if not await self._until(lambda: self.picture.backlog == 0, ARRIVE_LIMIT_S):
            self._course.problems.append(f"{self.picture.backlog} events are still in the outboxes")
        await self.world.stop_gateways()
        for name, news in self.picture.gateways.items():
            look_at_outbox(self._place.outbox(name), news)
        self._landed = settled_streams(self._place)
        await self.world.bridge.stop()
        if not self._fallen.is_set():
            await self._killer.settle()
        if not await self._until(self._arrived, ARRIVE_LIMIT_S):
            self._course.problems.append(f"{self.picture.lag} records of Kafka are not in the table")
        self.picture.doing = "stopping Spark"
        await self.world.spark.stop()
        look_at_table(self._place, self.picture)

    def _arrived(self) -> bool:
        picture = self.picture
        read = all(picture.kafka.highest.get(stream, 0) >= settled for stream, settled in self._landed.items())
        return read and picture.lag == 0 and picture.flow.batch >= picture.flow.newest

    async def _until(self, condition: Callable[[], bool], limit_s: float) -> bool:
        """As `until`, but it is in vain once a part has ended by itself."""
        await until(lambda: condition() or self._fallen.is_set(), limit_s)
        return condition()

    async def _judge(self) -> Report:
        self.picture.doing = "comparing sets of ids, and verifying the ledger"
        evidence = await asyncio.to_thread(gather, self._place, self.picture.devices.sent or self._all_sent())
        records = await asyncio.to_thread(read_records, self._place)
        commands = judge_commands(self._commander.orders, records, read_effects(self._place))
        status, printed = await self.world.verify()
        problems = [*self._course.problems, *self._killer.problems]
        try:
            ledger = json.loads(printed)
        except ValueError:
            ledger = None
            problems.append(f"the ledger could not be verified: see {self._place.logs / 'ledger.log'}")
        if status == 1:
            problems.append("the ledger does not balance")
        return self._report(judge(evidence), commands, ledger, problems)

    def _all_sent(self) -> dict[str, int]:
        """The devices did not say how much they have sent: then only a strange device is a phantom."""
        return {each.name: 2**53 for each in self._fleet}

    def _report(
        self, judgement: Judgement, commands: CommandJudgement, ledger: dict[str, Any] | None, problems: list[str]
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
            problems=problems,
            commands=commands,
            details={
                "rate": {
                    "average": round(self._course.rate, 1),
                    "lowest_before_a_kill": min(rates, default=None),
                    "before_each_kill": rates,
                },
                "load_s": round(self._course.load_s, 1),
                "each_kill": [asdict(kill) for kill in kills],
                "device_connections": self.picture.devices.connections,
                "given_up_by_coap_devices": self.picture.devices.unknown,
                "lanes": self.picture.kafka.lanes,
                "ledger": ledger,
            },
        )

    def _ended(self, part: Part) -> None:
        self._course.problems.append(f"{part.name} ended by itself: {part.last_words()}")
        self._fallen.set()


def _first(group: BaseExceptionGroup[FoglineError]) -> FoglineError:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


async def _cancel(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
