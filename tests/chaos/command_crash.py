"""A gateway and an operator at a bridge process that is killed between the steps of a command."""

import asyncio
from contextlib import AbstractAsyncContextManager

from fogline.events.event import Receipt
from fogline_cloud.commands.client.operator import Operator
from fogline_edge.downlink.downlink import Downlink
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.settings import EdgeSettings, UplinkSettings
from fogline_lab.amqp import within
from fogline_lab.events import make_arrival
from fogline_lab.gateway.connected_gateway import Impatient, connected_gateway
from fogline_lab.line.process_line import ProcessLine
from fogline_lab.waiting import until

TTL_S = 60.0


def gateway(site: ProcessLine) -> AbstractAsyncContextManager[tuple[Outbox, Downlink]]:
    """Run a gateway that takes commands, for the length of a block."""
    uplink = UplinkSettings(bridge=f"127.0.0.1:{site.ports['bridge-1']}", statement_s=0.5)
    settings = EdgeSettings(tenant=site.tenant, gateway="gw-1", data=str(site.folder / "gw-1"), uplink=uplink)
    return connected_gateway(settings, backoff=Impatient(0.05, 0.2))


async def heard_of(outbox: Outbox) -> None:
    """Have the bridge learn which gateway reaches the device."""
    stored = asyncio.get_running_loop().create_future()
    outbox.port.put(make_arrival(1), stored.set_result)
    assert await within(stored, "not stored") is Receipt.STORED

    async def landed() -> bool:
        return all(stream.head == stream.settled for stream in await outbox.streams.pending())

    await until(landed, "nothing lands")


def operator(site: ProcessLine) -> Operator:
    """The same operator at each call."""
    return Operator("127.0.0.1", site.ports["bridge-1"], site.tenant, name="op-1")
