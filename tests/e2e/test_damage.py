"""A damaged outbox on the way to a real broker: what can be read lands, what cannot is told."""

import msgspec
import pytest

from fogline.events.codec import decode_event
from fogline.events.event import Lane
from fogline.events.gap import GAP_CONTENT_TYPE, decode_gap
from fogline_cloud.kafka.records import is_replayed
from fogline_edge.outbox.file.pages import PAGE_BYTES as PAGE
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.outbox.rows.stored_body import unpack_body
from fogline_edge.outbox.salvage.carving import Carving, Images, event_of


def pages_of_events(file):
    """Return the number of the page of each event, from 0."""
    images = Images(file, file.with_name("no log"))
    found = [each for each in Carving(images).rows() if each.table == "event" and each.rank == 0]
    images.close()
    bodies = {decode_event(unpack_body(event_of(each.cell).body)).data: each.place // 2 // PAGE for each in found}
    return {msgspec.json.decode(data)["n"]: page for data, page in bodies.items() if data.startswith(b'{"n"')}


@pytest.mark.fault("C8")
async def test_salvaged_events_land_once_and_lost_ones_have_gap_records(line):
    async with line.bridge():
        async with line.gateway() as outbox:
            await line.put(outbox, *range(100))
            await line.drained(outbox)
        outbox = Outbox.open(line.settings())
        await line.put(outbox, *range(100, 600))
        await line.put(outbox, *range(600, 650), lane=Lane.ALARM)
        await outbox.close()
        file = line.folder / "gw-1" / "outbox.db"
        data = bytearray(file.read_bytes())
        pages = pages_of_events(file)
        page = pages[300]
        lost = {n for n, each in pages.items() if each == page}
        data[page * PAGE : (page + 1) * PAGE] = bytes(PAGE)
        data[:100] = b"x" * 100
        file.write_bytes(data)
        async with line.gateway() as outbox:
            await line.put(outbox, *range(650, 700))
            await line.drained(outbox)
    assert 0 < len(lost) < 50
    landed = line.landed(Lane.TELEMETRY, Lane.ALARM)
    assert set(landed) == set(range(700)) - lost
    records = line.records(Lane.TELEMETRY, Lane.ALARM)
    ids = [dict(each.headers)["ce_id"] for each in records]
    assert len(set(ids)) == len(ids)
    replayed = [each for each in records if is_replayed(dict(each.headers)) and each.value.startswith(b'{"n"')]
    assert {msgspec.json.decode(each.value)["n"] for each in replayed} == set(range(100, 650)) - lost
    gaps = [decode_gap(each.value) for each in records if dict(each.headers)["content-type"] == GAP_CONTENT_TYPE.encode()]
    assert sum(gap.lost.last - gap.lost.first + 1 for gap in gaps if gap.lost.first) == len(lost)
