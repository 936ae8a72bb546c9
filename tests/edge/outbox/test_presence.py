"""Statements of a gateway name the last sequence of each of its streams, and come also if no device sends anything."""

import asyncio
from pathlib import Path

from fogline.events.codec import decode_event
from fogline.events.event import Lane
from fogline.gateway.ledger import STATEMENT_CONTENT_TYPE, Statement, decode_statement
from fogline_edge.operate.status import read_events
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.outbox.writer import housekeeping
from fogline_edge.settings import EdgeSettings, UplinkSettings
from fogline_lab.amqp import within
from fogline_lab.events import make_arrival


def statements(folder: Path) -> list[Statement]:
    """Return the statements in the outbox's file, in the order of their streams."""
    events = [decode_event(row["body"].encode()) for row in read_events(folder, "event", 1000)]
    return [decode_statement(each.data) for each in events if each.content_type == STATEMENT_CONTENT_TYPE]


async def stored(outbox: Outbox, *lanes: Lane) -> None:
    receipts = [asyncio.get_running_loop().create_future() for _ in lanes]
    for number, (lane, receipt) in enumerate(zip(lanes, receipts, strict=True)):
        outbox.port.put(make_arrival(number, lane=lane), receipt.set_result)
    await within(asyncio.gather(*receipts), "not stored")


async def until(condition, what: str) -> None:
    async def so() -> None:
        while not condition():  # noqa: ASYNC110 - another thread writes
            await asyncio.sleep(0.01)

    await within(so(), what)


async def test_a_statement_names_the_last_sequence_of_every_stream(folder):
    settings = EdgeSettings(tenant="acme", gateway="gw-1", data=str(folder), uplink=UplinkSettings(statement_s=0.05))
    outbox = Outbox.open(settings)
    try:
        await stored(outbox, Lane.TELEMETRY, Lane.TELEMETRY, Lane.ALARM)
        await until(lambda: len(statements(folder)) >= 2, "no statement of both streams")
        heads = max((each.heads for each in statements(folder)), key=len)
        assert sorted(heads.values()) in ([1, 2], [1, 3], [2, 2], [2, 3])  # the other's own statement may be counted
        assert set(heads) == {each.stream for each in statements(folder)}
    finally:
        await outbox.close()


async def test_a_gateway_without_events_goes_on_to_write_statements(folder, monkeypatch):
    monkeypatch.setattr(housekeeping, "PRESENCE_S", 0.2)
    settings = EdgeSettings(tenant="acme", gateway="gw-1", data=str(folder), uplink=UplinkSettings(statement_s=0.05))
    outbox = Outbox.open(settings)
    try:
        await stored(outbox, Lane.TELEMETRY, Lane.ALARM)
        await until(lambda: len(statements(folder)) >= 5, "no statement without new events")
    finally:
        await outbox.close()
