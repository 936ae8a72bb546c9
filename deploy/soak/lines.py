"""What is between the parts, and may be bad: TCP lines to the bridges, radio between CoAP devices and gateways."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace

from demo.place import Ports
from fogline.testing.faulty_line import Fate, FaultyLine
from fogline.testing.udp_proxy import UdpProxy, Weather, udp_proxy
from soak.schedule import BRIDGES, GATEWAYS

CALM = Weather()


@dataclass(frozen=True, slots=True)
class Lines:
    """`bridges`: the line to each bridge, whichever gateway comes; `radio`: that to each gateway."""

    bridges: dict[str, FaultyLine]
    radio: dict[str, UdpProxy]


@asynccontextmanager
async def between(ports: Ports, fate: Callable[[], Fate | None]) -> AsyncIterator[tuple[Lines, Ports]]:
    """The lines, while the block runs, and the ports with theirs. `fate`: of each new connection to a bridge."""
    async with AsyncExitStack() as stack:
        lines = Lines({}, {})
        for name, port in zip(BRIDGES, ports.amqp, strict=True):
            lines.bridges[name] = await stack.enter_async_context(FaultyLine(port, fate))
        for name, port in zip(GATEWAYS, ports.coap, strict=True):
            lines.radio[name] = await stack.enter_async_context(udp_proxy(("127.0.0.1", port), CALM))
        yield (
            lines,
            replace(
                ports,
                lines=tuple(each.port for each in lines.bridges.values()),
                radio=tuple(each.address[1] for each in lines.radio.values()),
            ),
        )
