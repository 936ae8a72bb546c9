"""Runs all parts on the usual ports, without devices and kills, to try things by hand."""

import asyncio

from rich.console import Console

from demo.site import Site
from demo.snapshot import GatewayStats, Snapshot
from demo.workspace import ROOT, TENANT, Workspace
from fogline.errors import FoglineError, Misconfigured
from fogline_lab.supervisor import ChildProcess

READ = """QueryBuilder().register("t", DeltaTable("{}")).execute("SELECT device, metric, value, time FROM t").read_all()"""


async def serve(workspace: Workspace, console: Console, site: Site, stop: asyncio.Event) -> int:
    """Serve until `stop`. Raises `Misconfigured` if a part does not start; status 1 if one ends by itself."""
    start = asyncio.create_task(site.start(), name="start")
    stopped = asyncio.create_task(stop.wait(), name="stop")
    try:
        console.print("starting Kafka, bridge, gateway and Spark (about half a minute) ...")
        await asyncio.wait([start, stopped], return_when=asyncio.FIRST_COMPLETED)
        if not start.done():
            return 0
        _raise_first(start)
        for line in to_type(workspace):
            console.print(line, highlight=False, soft_wrap=True, markup=False)
        await stopped
        return 1 if any(not part.running for part in site.parts.values()) else 0
    finally:
        for task in (start, stopped):
            task.cancel()
        await asyncio.gather(start, stopped, return_exceptions=True)
        console.print("stopping ...")
        await site.end()


def make_site(workspace: Workspace, console: Console, stop: asyncio.Event) -> Site:
    """Make the site. If a part ends by itself, `stop` is set."""
    snapshot = Snapshot({name: GatewayStats() for name in workspace.gateways})

    def ended(part: ChildProcess) -> None:
        console.print(f"{part.name} {part.end}", highlight=False, soft_wrap=True)
        stop.set()

    return Site(workspace, snapshot, ended)


def to_type(workspace: Workspace) -> list[str]:
    """Return the addresses, and commands to try."""
    ports = workspace.ports
    port, coap, http, amqp = ports.mqtt[0], ports.coap[0], ports.devices_http, ports.amqp[0]
    table = workspace.folder.relative_to(ROOT) / "tables" / "readings"
    cloud = workspace.cloud.relative_to(ROOT)
    edge = workspace.edge(workspace.gateways[0]).relative_to(ROOT)
    return [
        f"ready on 127.0.0.1: MQTT {port}, CoAP {coap}, HTTP {http}, AMQP {amqp}, Kafka {ports.kafka}; tenant {TENANT}",
        f"the operator's page: {workspace.page}",
        "in another terminal:",
        f"""  mosquitto_pub -p {port} -i lamp-1 -q 1 -t telemetry -m '{{"temperature": 21.5}}'""",
        f"""  coap-client-notls -m put coap://127.0.0.1:{coap}/telemetry//lamp-2 -t 50 -e '{{"temperature": 20.5}}'""",
        f"""  curl -T picture.jpg -H 'content-type: image/jpeg' http://127.0.0.1:{http}/telemetry//camera-1""",
        f"  .venv/bin/fogline ledger verify --config {cloud}",
        f"""  .venv/bin/python -c 'from deltalake import *; print({READ.format(table)})'""",
        f"  .venv/bin/fogline command send lamp-1 switch --json true --ttl 30s --config {cloud}",
        f"  .venv/bin/fogline-edge status --config {edge}",
        "Ctrl-C stops everything",
    ]


def _raise_first(start: "asyncio.Task[None]") -> None:
    error = start.exception()
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, FoglineError):
        raise Misconfigured(str(error)) from None
    if error is not None:
        raise error
