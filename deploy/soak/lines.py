"""Faulty lines of the soak: TCP lines from gateways to bridges, UDP lines from CoAP devices to gateways."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace

from demo.workspace import Ports
from fogline_lab.tcp_line import PlannedFault, TcpLine
from fogline_lab.udp_line import DatagramFaults, UdpLine, udp_line
from soak.schedule import BRIDGES, GATEWAYS

NO_FAULTS = DatagramFaults()


@dataclass(frozen=True, slots=True)
class FaultyLines:
    """`bridges`: the line of all gateways to each bridge. `gateways`: the line of the CoAP devices to each gateway."""

    bridges: dict[str, TcpLine]
    gateways: dict[str, UdpLine]


@asynccontextmanager
async def faulty_lines(ports: Ports, plan: Callable[[], PlannedFault | None]) -> AsyncIterator[tuple[FaultyLines, Ports]]:
    """Open the lines for the length of the block, and add their ports to `ports`.

    `plan` is called for each new connection to a bridge.
    """
    async with AsyncExitStack() as stack:
        lines = FaultyLines({}, {})
        for name, port in zip(BRIDGES, ports.amqp, strict=True):
            lines.bridges[name] = await stack.enter_async_context(TcpLine(port, plan))
        for name, port in zip(GATEWAYS, ports.coap, strict=True):
            lines.gateways[name] = await stack.enter_async_context(udp_line(("127.0.0.1", port), NO_FAULTS))
        amqp_lines = tuple(each.port for each in lines.bridges.values())
        coap_lines = tuple(each.address[1] for each in lines.gateways.values())
        yield lines, replace(ports, amqp_lines=amqp_lines, coap_lines=coap_lines)
