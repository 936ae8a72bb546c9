"""A file that an old version wrote is migrated, and everything in it is there and can be sent.

`old/outbox-v1.db.gz` has the first version of the schema, an outbox of 1 MB and `drop_oldest` on lane bulk. It holds 31 events
of bulk, 16 of them dropped; 9 of telemetry, 2 of them settled and one quarantined; 3 of alarm; the memory of duplicates; two
open commands; and a value that an adapter kept.
"""

import gzip
import sqlite3
from functools import partial
from pathlib import Path

import pytest
from sqlite_utils import Database

from fogline.events.codec import Range, chain_of, decode_batch, encode_batch
from fogline.events.event import Lane, Receipt
from fogline.events.gap import GAP_CONTENT_TYPE, decode_gap
from fogline.events.identity import UniqueId
from fogline_edge.downlink import journal
from fogline_edge.machine.boot import beacon
from fogline_edge.outbox.file import schema
from fogline_edge.outbox.outbox import Outbox
from fogline_lab.events import make_arrival
from fogline_lab.gateway.outbox_use import put, settings

OLD = Path(__file__).parent / "old" / "outbox-v1.db.gz"


def later(database: Database) -> None:
    database.table("stream").add_column("colour", str)
    database.table("later").create({"number": int}, pk="number")


@pytest.fixture(params=["this version", "a later version"])
def old(folder: Path, monkeypatch, request) -> Path:
    """A data folder with the old file, as its last clean stop left it. A later version has a migration more."""
    (folder / "data").mkdir()
    (folder / "data" / "outbox.db").write_bytes(gzip.decompress(OLD.read_bytes()))
    (folder / "data" / "lock").write_bytes(b"closing acme/gw-1\n")
    if request.param == "a later version":
        monkeypatch.setattr(schema, "migrate", partial(schema.migrate, migrations=(*schema.MIGRATIONS, later)))
    return folder


async def test_every_event_of_an_old_file_is_sent_and_settled(old):
    outbox = Outbox.open(settings(old))
    sent = {}
    for stream in await outbox.streams.pending():
        rows = await outbox.streams.read(stream.stream, stream.settled, 1000)
        span = Range("gw-1", stream.stream, stream.lane, stream.settled + 1, rows[-1].sequence, chain_of(rows[-1].commit_id))
        sent[stream.lane] = decode_batch(span, encode_batch(span, [row.body for row in rows], beacon()))
        assert (rows[-1].sequence, len({row.commit_id for row in rows})) == (stream.head, len(rows))
        outbox.streams.settle(stream.stream, stream.head)
    assert [(view.lane, view.head, view.settled) for view in await outbox.streams.pending()] == [
        (Lane.TELEMETRY, 9, 9),
        (Lane.ALARM, 3, 3),
        (Lane.BULK, 31, 31),
    ]
    await outbox.close()
    dropped, *bulk = sent[Lane.BULK]
    assert (decode_gap(dropped.data).first, decode_gap(dropped.data).last) == (1, 16)
    assert [event.data for event in bulk] == [b"%06d" % n * 40 for n in range(16, 31)]
    telemetry = {event.sequence: event for event in sent[Lane.TELEMETRY]}
    assert [n for n, event in telemetry.items() if event.content_type == GAP_CONTENT_TYPE] == [4]
    assert [telemetry[n].data for n in (3, 5, 6, 7, 8)] == [b'{"n": %d}' % n for n in (2, 4, 5, 6, 7)]
    assert telemetry[9].device == "tag-1"
    assert [event.data for event in sent[Lane.ALARM]] == [b'{"n": %d}' % n for n in range(3)]


async def test_counts_of_an_old_file_go_on(old):
    outbox = Outbox.open(settings(old))
    telemetry, alarm, bulk = (view.counts for view in await outbox.streams.pending())
    assert (bulk.acknowledged, bulk.dropped) == (31, 16)
    assert (telemetry.acknowledged, telemetry.sent, telemetry.settled, telemetry.quarantined) == (9, 4, 2, 1)
    assert (alarm.acknowledged, alarm.stored) == (3, 3)
    await outbox.close()


async def test_retransmissions_of_events_of_an_old_file_are_duplicates(old):
    outbox = Outbox.open(settings(old))
    assert await put(outbox, make_arrival(7, slot=b"client-1", again=True)) is Receipt.DUPLICATE
    assert await put(outbox, make_arrival(1, lane=Lane.ALARM, evidence=UniqueId(b"alarm-1"))) is Receipt.DUPLICATE
    assert await put(outbox, make_arrival(9, slot=b"client-1")) is Receipt.STORED
    await outbox.close()


async def test_commands_kept_values_and_quarantine_of_an_old_file_are_there(old):
    outbox = Outbox.open(settings(old))
    entries = await outbox.read_journal(journal.open_entries)
    assert [(entry.command.id, entry.state) for entry in entries] == [("c-1", "QUEUED"), ("c-2", "SENDING")]
    assert outbox.port.kept("mqtt/session/") == {"mqtt/session/lamp-1": b"kept"}
    assert await outbox.empty_quarantine([(1, 4)], resend=True) == 1
    telemetry, *_ = await outbox.streams.pending()
    (row,) = await outbox.streams.read(telemetry.stream, 9, 10)
    assert b'"data":{"n": 3}' in row.body
    await outbox.close()
    with sqlite3.connect(old / "data" / "outbox.db") as connection:
        assert connection.execute("SELECT count(*) FROM quarantine").fetchone() == (0,)
