"""All parts together: started in order, stopped in order, and never left behind."""

import asyncio
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from demo.parts import Part, run_once, script
from demo.picture import Picture
from demo.place import Place
from demo.watch import hear_air, hear_census, hear_devices, hear_flow
from fogline.errors import Misconfigured

QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A JVM that lives for a minute on two cores should not spend it on compiling."""
FOLDER = Path(__file__).parent


class World:
    """`on_end` is called with the name of a part that ended although nobody told it to.

    `air`: the Bluetooth devices, if there are any. Their links end on purpose `cycles` times, by `seed`.
    """

    def __init__(
        self, place: Place, picture: Picture, on_end: Callable[[Part], None], *, cycles: int = 0, seed: int = 1
    ) -> None:
        folder = place.folder
        self.place = place
        self._fogline = script("fogline")
        broker = [sys.executable, "-m", "fogline.testing.kafka_broker", "--data", str(folder / "kafka")]
        part = partial(Part, folder=folder, on_end=on_end)
        cloud = ["--config", str(place.cloud)]
        self.kafka = part("kafka", [*broker, "--port", str(place.ports.kafka)], gently=True)
        self.bridges = [
            part(
                name,
                [self._fogline, "bridge", "run", "--config", str(place.cloud_of(name))],
                on_news=partial(hear_census, picture, name),
            )
            for name in place.bridges
        ]
        self.spark = part(
            "spark",
            [self._fogline, "flow", "run", "--json", *cloud],
            on_news=partial(hear_flow, picture.flow),
            environment={"JDK_JAVA_OPTIONS": QUICK_START},
        )
        self.gateways = [
            part(
                name,
                [script("fogline-edge"), "run", "--config", str(place.edge(name))],
                on_news=partial(hear_census, picture, name),
            )
            for name in place.gateways
        ]
        self._picture = picture
        air = {
            "gateways": len(place.gateways),
            "valves": sum(not each.advertises for each in place.ble) // len(place.gateways),
            "on-air": place.on_air,
            "effects": place.ble_effects,
            "cycles": cycles,
            "seed": seed,
        }
        self.air = (
            part("air", _python("ble_devices", air), on_news=partial(hear_air, picture.air), gently=True) if place.ble else None
        )

    @property
    def parts(self) -> dict[str, Part]:
        """By name, as the plan of kills calls them."""
        return {part.name: part for part in (self.kafka, *self.bridges, self.spark, *self.gateways)}

    async def start(self) -> None:
        """Kafka and its topics, then all the others. Raises `Misconfigured`."""
        self._picture.doing = "starting Kafka"
        await self.kafka.start()
        log = self.place.logs / "topics.log"
        status, _ = await run_once(
            [self._fogline, "topics", "create", "--config", str(self.place.cloud)], self.place.folder, log
        )
        if status:
            raise Misconfigured(f"the topics cannot be made: {log.read_text('utf-8').strip()}")
        self._picture.doing = "starting bridges, gateways and Spark"
        await self._start_air()
        async with asyncio.TaskGroup() as group:
            for part in (self.spark, *self.bridges, *self.gateways):
                group.create_task(part.start(), name=f"start {part.name}")

    async def _start_air(self) -> None:
        """Each gateway finds its BlueZ where D-Bus programs look for the system's bus."""
        if self.air is not None:
            await self.air.start()
            for gateway, bus in zip(self.gateways, self.air.said["buses"], strict=True):
                gateway.surround({"DBUS_SYSTEM_BUS_ADDRESS": bus})

    def begin(self) -> None:
        """Have the Bluetooth devices begin to say something new."""
        if self.air is not None:
            self.air.tell("begin")

    def hush(self) -> None:
        """Have the Bluetooth devices fall silent."""
        if self.air is not None:
            self.air.tell("quiet")

    def devices(self, *, count: int, rate: float) -> Part:
        """The devices' process, not started."""
        ports = self.place.ports
        options = {
            "gateways": ",".join(f"127.0.0.1:{port}" for port in ports.mqtt),
            "coap-gateways": ",".join(f"127.0.0.1:{port}" for port in ports.radio or ports.coap),
            "serving": ",".join(map(str, ports.serving)),
            "book": self.place.book,
            "effects": self.place.effects,
            "devices": count,
            "rate": rate,
        }
        return Part(
            "devices",
            _python("devices", options),
            self.place.folder,
            on_news=partial(hear_devices, self._picture.devices),
            on_end=lambda _: None,
        )

    async def verify(self) -> tuple[int, str]:
        """`fogline ledger verify`: its status and its JSON."""
        command = [self._fogline, "ledger", "verify", "--json", "--config", str(self.place.cloud)]
        return await run_once(command, self.place.folder, self.place.logs / "ledger.log")

    async def stop_gateways(self) -> None:
        """In order: the gateways send what they have before the bridge goes."""
        await asyncio.gather(*(part.stop() for part in self.gateways))

    async def stop_bridges(self) -> None:
        """In order."""
        await asyncio.gather(*(part.stop() for part in self.bridges))

    async def end(self) -> None:
        """Stop everything that still runs."""
        await asyncio.gather(*(part.stop() for part in (self.spark, *self.gateways)))
        await self.stop_bridges()
        await self.kafka.stop()
        if self.air is not None:
            await self.air.stop()

    def strike(self) -> None:
        """End everything at once, without waiting."""
        for part in (*self.parts.values(), *([] if self.air is None else [self.air])):
            part.strike()


def _python(module: str, options: Mapping[str, object]) -> list[str]:
    """A program of this package."""
    launch = f"import sys; sys.path[0] = {str(FOLDER.parent)!r}; from demo.{module} import main; sys.exit(main())"
    return [sys.executable, "-c", launch, *(f"--{name}={value}" for name, value in options.items())]
