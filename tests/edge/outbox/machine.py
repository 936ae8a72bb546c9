"""A gateway's machine whose power a test cuts."""

import asyncio
from pathlib import Path

from fogline.events.event import Receipt
from fogline.events.identity import Counter, Retransmission
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.settings import EdgeSettings
from fogline_lab.amqp import within
from fogline_lab.clock import FakeClock
from fogline_lab.events import make_arrival

COAP_S = 247


def settings(folder: Path) -> EdgeSettings:
    return EdgeSettings(tenant="acme", gateway="gw-1", data=str(folder / "data"))


def counted(value: int):
    """A reading with a bare counter; all payloads are equal, as of a sensor that reads 21.5 all day."""
    return make_arrival(data=b"21.5", evidence=Counter(value, 16))


def confirmable():
    """A CoAP message of a device whose message ids begin anew with it."""
    return make_arrival(data=b"21.5", retransmission=Retransmission(b"coap", again=True, window_s=COAP_S, number=1, token=b"t"))


class Machine:
    """A gateway's machine with a clock of its own. Its power can be cut: then nothing is closed."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock = folder, FakeClock()

    async def hears(self, *arrivals) -> list[Receipt]:
        """Start, take all of them one after the other, end in order."""
        outbox = Outbox.open(settings(self.folder), clock=self.clock)
        told = [await self._put(outbox, each) for each in arrivals]
        await outbox.close()
        return told

    async def _put(self, outbox, arrival) -> Receipt:
        done = asyncio.get_running_loop().create_future()
        outbox.port.put(arrival, done.set_result)
        return await within(done, "nothing was committed")
