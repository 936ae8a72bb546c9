"""An outbox on a real file, as an adapter and the uplink use it."""

import asyncio
from pathlib import Path
from typing import Any

from fogline.errors import Misconfigured
from fogline.events.codec import decode_event
from fogline.events.event import Arrival, Event, Receipt
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.settings import EdgeSettings, OutboxSettings, UplinkSettings
from fogline_lab.amqp import within


def settings(folder: Path, *, statement_s: float = 3600, **outbox: object) -> EdgeSettings:
    """Return the settings of gateway `gw-1` with its data in `folder`. `outbox`: settings of the outbox."""
    return EdgeSettings(
        tenant="acme",
        gateway="gw-1",
        data=str(folder / "data"),
        outbox=OutboxSettings(**outbox),  # type: ignore[arg-type]
        uplink=UplinkSettings(statement_s=statement_s),
    )


async def put(outbox: Outbox, arrival: Arrival) -> Receipt:
    """Put an arrival, and wait for its receipt. Raises `Misconfigured` if the file fails first."""
    done: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
    outbox.port.put(arrival, lambda receipt: None if done.cancelled() else done.set_result(receipt))
    ends: set[asyncio.Future[Any]] = {done, outbox.failed}
    await within(asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED), "nothing was committed")
    if not done.done():
        raise Misconfigured(outbox.failed.result())
    return done.result()


async def bodies(outbox: Outbox, stream: str, after: int = 0) -> list[Event]:
    """Return the unsettled events of a stream with sequences above `after`."""
    return [decode_event(row.body) for row in await outbox.streams.read(stream, after, 10_000)]
