"""A file that the former version wrote is opened, and everything in it is there and can be sent.

`former/outbox-2026-11.db.gz` was written by the version before the renaming of modules (schema `m008_devices`), with an
outbox of 1 MB and `drop_oldest` on lane bulk. It holds 24 events of bulk, 3 of them dropped; 9 of telemetry, 2 of them settled
and one quarantined; 3 of alarm; the memory of duplicates; two open commands; and a value that an adapter kept.
"""

import contextlib
import gzip
import sqlite3
from pathlib import Path

import pytest
from sqlite_utils import Database

from fogline.codec import Range, chain_of, decode_batch, decode_event, encode_batch
from fogline.event import Lane, Receipt
from fogline.gap import GAP_CONTENT_TYPE, decode_gap
from fogline.identity import UniqueId
from fogline_edge.boot import beacon
from fogline_edge.downlink import journal
from fogline_edge.outbox.migrations import migrations
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.outbox.schema import connect_file
from fogline_lab.events import make_arrival
from fogline_lab.gateway.outbox_use import put, settings

FORMER = Path(__file__).parent / "former" / "outbox-2026-11.db.gz"


@pytest.fixture
def former(folder: Path) -> Path:
    """A data folder with the former version's file, as its last clean stop left it."""
    (folder / "data").mkdir()
    (folder / "data" / "outbox.db").write_bytes(gzip.decompress(FORMER.read_bytes()))
    (folder / "data" / "lock").write_bytes(b"closing acme/gw-1\n")
    return folder


async def test_every_event_of_the_former_version_is_sent_and_settled(former):
    outbox = Outbox.open(settings(former))
    sent = {}
    for stream in await outbox.streams.pending():
        rows = await outbox.streams.read(stream.stream, stream.settled, 1000)
        span = Range("gw-1", stream.stream, stream.lane, stream.settled + 1, rows[-1].sequence, chain_of(rows[-1].commit_id))
        sent[stream.lane] = decode_batch(span, encode_batch(span, [row.body for row in rows], beacon()))
        assert (rows[-1].sequence, len({row.commit_id for row in rows})) == (stream.head, len(rows))
        outbox.streams.settle(stream.stream, stream.head)
    assert [(view.lane, view.head, view.settled) for view in await outbox.streams.pending()] == [
        (Lane.BULK, 24, 24),
        (Lane.TELEMETRY, 9, 9),
        (Lane.ALARM, 3, 3),
    ]
    await outbox.close()
    dropped, *bulk = sent[Lane.BULK]
    assert (decode_gap(dropped.data).first, decode_gap(dropped.data).last) == (1, 3)
    assert [event.data for event in bulk] == [b"%06d" % n * 4000 for n in range(3, 24)]
    telemetry = {event.sequence: event for event in sent[Lane.TELEMETRY]}
    assert [n for n, event in telemetry.items() if event.content_type == GAP_CONTENT_TYPE] == [4]
    assert [telemetry[n].data for n in (3, 5, 6, 7, 8)] == [b'{"n": %d}' % n for n in (2, 4, 5, 6, 7)]
    assert telemetry[9].device == "tag-1"
    assert [event.data for event in sent[Lane.ALARM]] == [b'{"n": %d}' % n for n in range(3)]


async def test_counts_of_the_former_version_go_on(former):
    outbox = Outbox.open(settings(former))
    bulk, telemetry, alarm = (view.counts for view in await outbox.streams.pending())
    assert (bulk.acknowledged, bulk.dropped) == (24, 3)
    assert (telemetry.acknowledged, telemetry.sent, telemetry.settled, telemetry.quarantined) == (9, 4, 2, 1)
    assert (alarm.acknowledged, alarm.stored) == (3, 3)
    await outbox.close()


async def test_retransmissions_of_events_that_the_former_version_stored_are_duplicates(former):
    outbox = Outbox.open(settings(former))
    assert await put(outbox, make_arrival(5, slot=b"client-1", again=True)) is Receipt.DUPLICATE
    assert await put(outbox, make_arrival(1, lane=Lane.ALARM, evidence=UniqueId(b"alarm-1"))) is Receipt.DUPLICATE
    assert await put(outbox, make_arrival(9, slot=b"client-1")) is Receipt.STORED
    await outbox.close()


async def test_commands_kept_values_and_quarantine_of_the_former_version_are_there(former):
    outbox = Outbox.open(settings(former))
    entries = await outbox.read_journal(journal.open_entries)
    assert [(entry.command.id, entry.state) for entry in entries] == [("c-1", "QUEUED"), ("c-2", "SENDING")]
    assert outbox.port.kept("mqtt/session/") == {"mqtt/session/lamp-1": b"kept"}
    assert await outbox.empty_quarantine([(2, 4)], resend=True) == 1
    _, telemetry, _ = await outbox.streams.pending()
    (row,) = await outbox.streams.read(telemetry.stream, 9, 10)
    assert b'"data":{"n": 3}' in row.body
    await outbox.close()
    with sqlite3.connect(former / "data" / "outbox.db") as connection:
        assert connection.execute("SELECT count(*) FROM quarantine").fetchone() == (0,)


def stop_midway(path: Path) -> None:
    """Migrate a file until some of its events have been moved, and stop as a kill does."""
    with contextlib.closing(connect_file(path)) as connection:
        migrations.apply(Database(connection), stop_before="m010_moved")
        rows = connection.execute("SELECT * FROM event_by_key ORDER BY stream, sequence LIMIT 15").fetchall()
        connection.execute("BEGIN")
        connection.executemany("DELETE FROM event_by_key WHERE stream = ? AND sequence = ?", [row[:2] for row in rows])
        moved = [((number << 40) + sequence, chain, body, None) for number, sequence, chain, body in rows]
        connection.executemany("INSERT INTO event (place, commit_id, body, message) VALUES (?, ?, ?, ?)", moved)
        connection.execute("COMMIT")


@pytest.mark.parametrize("end", [b"closing", b"open   ", b"damaged"], ids=["closed", "killed", "damaged"])
@pytest.mark.fault("C8", "C12")
async def test_a_migration_that_was_cut_short_is_finished_by_the_next_start_or_its_salvage(former, end):
    path = former / "data" / "outbox.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        bodies = [body for (body,) in connection.execute("SELECT body FROM event")]
    before = {event.id for event in map(decode_event, bodies) if event.content_type != GAP_CONTENT_TYPE}
    stop_midway(path)
    (former / "data" / "lock").write_bytes(end + b" acme/gw-1\n")
    if end == b"open   ":
        (former / "data" / "outbox.db-wal").write_bytes(bytes(100))
    outbox = Outbox.open(settings(former))
    after = [
        row.body
        for stream in await outbox.streams.pending()
        for row in await outbox.streams.read(stream.stream, stream.settled, 1000)
    ]
    events = [event for event in map(decode_event, after) if event.content_type != GAP_CONTENT_TYPE]
    assert sorted(event.id for event in events) == sorted(before)
    assert all(event.replayed for event in events) == (end == b"damaged")
    assert await put(outbox, make_arrival(5, slot=b"client-1", again=True)) is Receipt.DUPLICATE
    await outbox.close()
    assert bool(list((former / "data").glob("*.damaged-*"))) == (end == b"damaged")
