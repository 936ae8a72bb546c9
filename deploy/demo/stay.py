"""Everything up on the usual ports, without devices and kills, to try things by hand."""

import asyncio

from rich.console import Console

from demo.picture import GatewayNews, Picture
from demo.place import ROOT, TENANT, Place
from demo.world import World
from fogline.errors import FoglineError, Misconfigured


async def stay(place: Place, console: Console, world: World, stop: asyncio.Event) -> int:
    """Serve until `stop`. Raises `Misconfigured` if a part does not start; status 1 if one ends by itself."""
    start = asyncio.create_task(world.start(), name="start")
    stopped = asyncio.create_task(stop.wait(), name="stop")
    try:
        console.print("starting Kafka, bridge, gateway and Spark (about half a minute) ...")
        await asyncio.wait([start, stopped], return_when=asyncio.FIRST_COMPLETED)
        if not start.done():
            return 0
        _raise_first(start)
        for line in to_type(place):
            console.print(line, highlight=False, soft_wrap=True, markup=False)
        await stopped
        return 1 if any(not part.running for part in world.parts.values()) else 0
    finally:
        for task in (start, stopped):
            task.cancel()
        await asyncio.gather(start, stopped, return_exceptions=True)
        console.print("stopping ...")
        await world.end()


def make_world(place: Place, console: Console, stop: asyncio.Event) -> World:
    """The parts; one that ends by itself ends everything."""
    picture = Picture({name: GatewayNews() for name in place.gateways})

    def ended(part: object) -> None:
        name = getattr(part, "name", part)
        console.print(f"{name} ended by itself: see {place.logs / f'{name}.log'}", highlight=False, soft_wrap=True)
        stop.set()

    return World(place, picture, ended)


def to_type(place: Place) -> list[str]:
    """What a person may type now."""
    port = place.ports.mqtt[0]
    coap = place.ports.coap[0]
    table = place.folder.relative_to(ROOT) / "tables" / "readings"
    cloud = place.cloud.relative_to(ROOT)
    edge = place.edge(place.gateways[0]).relative_to(ROOT)
    return [
        f"ready on 127.0.0.1: MQTT {port}, CoAP {coap}, AMQP {place.ports.amqp[0]}, Kafka {place.ports.kafka}; tenant {TENANT}",
        "in another terminal:",
        f"""  mosquitto_pub -p {port} -i lamp-1 -q 1 -t telemetry -m '{{"temperature": 21.4}}'""",
        f"""  coap-client-notls -m put coap://127.0.0.1:{coap}/telemetry//lamp-2 -t 50 -e '{{"temperature": 20.5}}'""",
        f"  .venv/bin/fogline ledger verify --config {cloud}",
        f"""  .venv/bin/python -c 'from deltalake import DeltaTable; print(DeltaTable("{table}").to_pandas())'""",
        f"  .venv/bin/fogline command send lamp-1 switch --json true --ttl 30s --config {cloud}",
        f"  .venv/bin/fogline-edge status --config {edge}",
        "Ctrl-C ends it",
    ]


def _raise_first(start: "asyncio.Task[None]") -> None:
    error = start.exception()
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, FoglineError):
        raise Misconfigured(str(error)) from None
    if error is not None:
        raise error
