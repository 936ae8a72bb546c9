"""A gateway with a full outbox: fills it, prints a line, waits for a line, and sends everything. Prints how long that took.

Its argument is a JSON object: `tenant`, `gateway`, `data`, `events`, `bridge`, `tls`, and perhaps `via`, as in the settings.
"""

import asyncio
import json
import sys
import time
from typing import Any

import msgspec

from fogline.events.event import Receipt
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.settings import EdgeSettings, UplinkSettings
from fogline_lab.events import make_arrival
from fogline_lab.gateway.connected_gateway import running_uplink
from fogline_lab.waiting import until

GROUP = 500
LIMIT_S = 300.0


def tell(line: dict[str, Any]) -> None:
    """Print a line."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


async def main(options: dict[str, Any]) -> None:
    """Fill the outbox, wait, and send it."""
    events = options.pop("events")
    uplink = {key: options.pop(key) for key in ("bridge", "tls", "via") if key in options}
    settings = msgspec.convert({**options, "uplink": uplink}, EdgeSettings)
    outbox = Outbox.open(settings)
    loop = asyncio.get_running_loop()
    for begin in range(0, events, GROUP):
        receipts = [loop.create_future() for _ in range(begin, min(begin + GROUP, events))]
        for number, receipt in enumerate(receipts, begin):
            outbox.port.put(make_arrival(number), receipt.set_result)
        assert set(await asyncio.gather(*receipts)) == {Receipt.STORED}

    async def drained() -> bool:
        return all(each.head == each.settled for each in await outbox.streams.pending())

    tell({"ready": True})
    await asyncio.to_thread(sys.stdin.readline)
    began, before = time.monotonic(), time.process_time()
    assert isinstance(settings.uplink, UplinkSettings)
    async with running_uplink(outbox, settings.uplink):
        await until(drained, "the outbox does not drain", LIMIT_S)
        tell({"seconds": time.monotonic() - began, "cpu_s": time.process_time() - before})
    await outbox.close()


asyncio.run(main(json.loads(sys.argv[1])))
