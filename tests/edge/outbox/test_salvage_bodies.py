"""A damaged outbox with large bodies: what is lost is named, bodies go on, and an incomplete one is named at the flow."""

import asyncio
import contextlib
import shutil
import sqlite3
from pathlib import Path

import pytest

from edge.bodies.gateway import BodyGateway
from edge.outbox.damaged import mark_damaged
from fogline.events.codec import decode_event
from fogline.events.event import Event
from fogline.events.gap import GAP_CONTENT_TYPE, GapReason, decode_gap
from fogline.events.large_body import UNFINISHED, BodyChunk, BodyRef, read_dataref
from fogline_cloud.flows.bodies.body_folder import BodyFolder, bodies_in
from fogline_cloud.flows.parsers import Retry
from fogline_cloud.flows.worker.large_bodies import reading_bodies
from fogline_edge.operate.status import read_status
from fogline_edge.outbox.rows.stored_body import unpack_body
from fogline_lab.large_bodies import join_bodies, make_body
from fogline_lab.waiting import eventually

MIB = 1024 * 1024
WHOLE, UNFINISHED_BODY = make_body(1, MIB + 5), make_body(2, MIB)


@pytest.fixture
def damaged(folder) -> Path:
    """An outbox of a killed gateway, with a whole body, one that has not come whole, and small events. It is to be salvaged."""
    asyncio.run(killed_in_a_body(folder))
    mark_damaged(folder)
    return folder


async def killed_in_a_body(folder: Path) -> None:
    async with BodyGateway.serve(folder / "before", 1_000_000_000, {}, None) as gateway:
        for body in (b"21.5", WHOLE, b"21.6"):
            assert (await gateway.post(body)).status_code == 202
        upload = gateway.uploads.begin(gateway.event(), lambda: None, MIB)
        upload.write(UNFINISHED_BODY)
        await gateway.stored()
        shutil.copytree(folder / "before" / "data", folder / "data")
        upload.give_up()


@contextlib.contextmanager
def database(folder: Path):
    with contextlib.closing(sqlite3.connect(folder / "data" / "outbox.db", isolation_level=None)) as connection:
        yield connection


def rows_of(folder: Path) -> dict[int, Event]:
    """Return the stored events by their place."""
    with database(folder) as connection:
        return {place: decode_event(unpack_body(body)) for place, body in connection.execute("SELECT place, body FROM event")}


def overwrite(folder: Path, place: int) -> None:
    """Flip a byte in the middle of a stored event, in an overflow page if it has some."""
    file = folder / "data" / "outbox.db"
    with database(folder) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (body,) = connection.execute("SELECT body FROM event WHERE place = ?", [place]).fetchone()
    data = bytearray(file.read_bytes())
    middle = bytes(body[len(body) // 2 : len(body) // 2 + 48])
    at = data.index(middle)
    data[at] ^= 0xFF
    file.write_bytes(data)


async def salvaged(folder: Path) -> list[Event]:
    """Start the gateway, and return all events of lane bulk, gap records included."""
    async with BodyGateway.serve(folder, 1_000_000_000, {}, None) as gateway:
        events = await gateway.stored()
        await eventually(lambda: not gateway.outbox.port.kept(UNFINISHED), "the bodies of the former run are ended")
        return events


def lost_of(events: list[Event]) -> list[tuple[str, int, int]]:
    gaps = [decode_gap(each.data) for each in events if each.content_type == GAP_CONTENT_TYPE]
    assert {each.gateway for each in events} == {"gw-1"}
    assert {gap.reason for gap in gaps} <= {GapReason.DAMAGED}
    return [(gap.lost.stream, gap.lost.first, gap.lost.last) for gap in gaps]


def at_the_flow(folder: Path, events: list[Event]) -> BodyFolder:
    bodies = BodyFolder(bodies_in(str(folder / "tables"), {}))
    bodies.keep(each for each in events if each.content_type != GAP_CONTENT_TYPE)
    return bodies


def refers(event: Event) -> bool:
    return event.dataref is not None and isinstance(read_dataref(event.dataref), BodyRef)


async def test_bodies_of_a_damaged_file_that_can_be_read_are_whole_and_the_unfinished_one_is_ended(damaged):
    joined = join_bodies(events := await salvaged(damaged))
    assert ([data for _, data in joined.whole], len(joined.ended), joined.open) == ([WHOLE], 1, set())
    assert lost_of(events) == []


@pytest.mark.fault("C8")
async def test_damaged_chunk_is_named_by_its_sequence_and_by_its_number_when_a_parser_reads_the_body(damaged):
    rows = rows_of(damaged)
    ref = next(read_dataref(each.dataref) for each in rows.values() if refers(each))
    ((place, chunk),) = [(place, each) for place, each in rows.items() if each.dataref == str(BodyChunk(ref.id, 2))]
    overwrite(damaged, place)
    events = await salvaged(damaged)
    assert lost_of(events) == [(chunk.stream, chunk.sequence, chunk.sequence)]
    (event,) = filter(refers, events)
    with reading_bodies(at_the_flow(damaged, events)), pytest.raises(Retry, match="000002 is not there: it was lost"):
        event.body()
    assert len(join_bodies(events).ended) == 1


@pytest.mark.fault("C8")
async def test_damaged_reference_is_named_and_its_chunks_have_no_event(damaged):
    ((place, event),) = [(place, each) for place, each in rows_of(damaged).items() if refers(each)]
    overwrite(damaged, place)
    events = await salvaged(damaged)
    assert lost_of(events) == [(event.stream, event.sequence, event.sequence)]
    joined = join_bodies(events)
    assert (joined.whole, joined.broken, joined.open) == ([], [], {read_dataref(event.dataref).id})


@pytest.mark.parametrize(
    ("change", "ended"),
    [
        ("value = x'5b00ff'", 1),
        ("value = x''", 1),
        ("value = CAST('[1,2]' AS BLOB)", 1),
        ("key = 'body/damaged'", 0),
        ("key = 'body/'", 0),
    ],
)
@pytest.mark.fault("C8")
async def test_damaged_note_of_an_unfinished_body_stops_no_gateway(damaged, change, ended):
    """The body is ended if its id is readable; otherwise its chunks are deleted after `tables.body_days`."""
    with database(damaged) as connection:
        assert connection.execute(f"UPDATE kept SET {change} WHERE key LIKE 'body/%'").rowcount == 1
    assert sum(read_status(damaged / "data")["unfinished_bodies"].values()) in (0, 1)
    joined = join_bodies(events := await salvaged(damaged))
    assert ([data for _, data in joined.whole], len(joined.ended), len(joined.open)) == ([WHOLE], ended, 1 - ended)
    assert lost_of(events) == []


@pytest.mark.fault("C8")
async def test_note_that_comes_back_from_an_older_page_ends_a_body_that_keeps_its_event(damaged):
    """The table of notes is damaged, and the log has an older page of it, with the note of a body that has come whole since."""
    ((_, event),) = [(place, each) for place, each in rows_of(damaged).items() if refers(each)]
    note = f"{UNFINISHED}{read_dataref(event.dataref).id}"
    with database(damaged) as connection:
        connection.execute("INSERT INTO kept VALUES (?, ?)", [note, b'["camera-1","t","http","telemetry"]'])
    joined = join_bodies(events := await salvaged(damaged))
    assert [data for _, data in joined.whole] == [WHOLE]
    assert read_dataref(event.dataref).id in joined.ended
    (event,) = filter(refers, events)
    with reading_bodies(at_the_flow(damaged, events)):
        assert event.body() == WHOLE
