"""Sound files, copies with damage, and what is checked of each after the gateway's start."""

import asyncio
import shutil
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from fogline.errors import Misconfigured, Poison
from fogline.events.codec import decode_event
from fogline.events.event import Lane
from fogline.events.gap import GAP_CONTENT_TYPE, decode_gap
from fogline.events.identity import UniqueId
from fogline_edge.downlink import journal
from fogline_edge.outbox.file.pages import PAGE_BYTES
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.outbox.rows.stored_body import unpack_body
from fogline_edge.outbox.salvage.carving import Carving, Images, event_of
from fogline_lab.commands import make_command
from fogline_lab.events import make_arrival, make_noise
from fogline_lab.gateway.outbox_use import put, settings

PAGE = PAGE_BYTES
LANES = (Lane.TELEMETRY, Lane.ALARM, Lane.BULK)
SETTLED = 10


@dataclass
class Sound:
    """A file before its damage: `clean` closed in order, `killed` with its log. `places`: page of each short row."""

    clean: Path
    killed: Path
    ids: dict[tuple[str, int], str]
    last_group: set[str]
    pages: dict[str, int]


async def make_sound(folder: Path) -> Sound:
    outbox = Outbox.open(settings(folder, group_commit_events=20))
    for n in range(0, 360, 20):
        await asyncio.gather(*(put(outbox, arrival(n + k)) for k in range(20)))
    kept = [asyncio.get_running_loop().create_future() for _ in range(40)]
    for n, future in enumerate(kept):
        outbox.port.keep(f"mqtt/session/{n}", b"x" * 50, lambda future=future: future.set_result(None))
    await asyncio.gather(*kept)
    await command(outbox, make_command(id="c-1"), journal.CommandState.SENDING)
    await command(outbox, make_command(id="c-2"), journal.CommandState.QUEUED)
    for stream in await outbox.streams.pending():
        outbox.streams.settle(stream.stream, SETTLED)
    await outbox.streams.pending()
    await asyncio.gather(*(put(outbox, arrival(1000 + k)) for k in range(20)))
    shutil.copytree(folder / "data", folder / "killed" / "data")
    await outbox.close()
    connection = sqlite3.connect(folder / "data" / "outbox.db")
    names = dict(connection.execute("SELECT number, stream FROM stream").fetchall())
    bodies = {
        (names[number], sequence): unpack_body(body)
        for number, sequence, body in connection.execute("SELECT stream, sequence, body FROM event").fetchall()
    }
    connection.close()
    ids = {place: decode_event(body).id for place, body in bodies.items()}
    last = {decode_event(body).id for body in bodies.values() if b'"n": 10' in decode_event(body).data}
    images = Images(folder / "data" / "outbox.db", folder / "none")
    pages = {
        decode_event(unpack_body(event_of(found.cell).body)).id: found.place // 2 // PAGE + 1
        for found in Carving(images).rows()
        if found.table == "event" and found.rank == 0 and len(event_of(found.cell).body) < 900
    }
    images.close()
    return Sound(folder / "data", folder / "killed" / "data", ids, last, pages)


def arrival(n: int):
    long = b'{"n": %d, "x": "%s"}' % (n, make_noise(4000, n))
    return make_arrival(
        n,
        lane=LANES[n % 3],
        slot=b"client",
        data=long if n % 17 == 0 else b'{"n": %d}' % n,
        evidence=UniqueId(b"%d" % n) if n % 5 == 0 else None,
    )


async def command(outbox: Outbox, order, state) -> None:
    future = asyncio.get_running_loop().create_future()
    outbox.port.act(lambda ingest, group: journal.store(ingest, group, order, state), future.set_result, urgent=True)
    await future


ONE = "SELECT body FROM event WHERE stream = ? AND sequence = ?"


def readable(data: Path) -> set[str]:
    """Ids of what SQLite still reads, row by row."""
    found = set()
    try:
        connection = sqlite3.connect(f"file:{data / 'outbox.db'}?mode=ro", uri=True)
        numbers = [number for (number,) in connection.execute("SELECT DISTINCT number FROM stream").fetchall()]
    except (sqlite3.Error, UnicodeDecodeError):
        return found
    for number in numbers:
        for sequence in range(SETTLED + 1, 140):
            try:
                row = connection.execute(ONE, (number, sequence)).fetchone()
                found |= {decode_event(unpack_body(row[0])).id} if row else set()
            except (sqlite3.Error, Poison, TypeError):
                continue
    connection.close()
    return found


@dataclass
class After:
    """State of the gateway after its start: ids by stream and sequence, and gap records."""

    ids: dict[tuple[str, int], str]
    gaps: list


async def start(folder: Path) -> After:
    """Start, and do all that a gateway does, as often as it takes: twice, because a third time would be a loop."""
    for _ in range(2):
        outbox = Outbox.open(settings(folder))
        try:
            after = await everything(outbox)
            for lane in LANES:
                await put(outbox, make_arrival(5000, lane=lane))
        except Misconfigured:
            continue
        finally:
            await outbox.close()
        return after
    pytest.fail("the gateway does not come up")


async def everything(outbox: Outbox) -> After:
    ids, gaps = {}, []
    for stream in await outbox.streams.pending():
        rows = await outbox.streams.read(stream.stream, stream.settled, 10_000)
        if [row.sequence for row in rows] != list(range(stream.settled + 1, stream.head + 1)):
            outbox.suspect("a row is missing")  # as the pump does
            raise Misconfigured("a row is missing")
        for row in rows:
            try:
                event = decode_event(row.body)
            except Poison:
                ids[stream.stream, row.sequence] = f"unreadable {stream.stream} {row.sequence} {row.body!r}"
                continue
            if event.content_type == GAP_CONTENT_TYPE:
                gaps.append(decode_gap(event.data))
            else:
                ids[stream.stream, row.sequence] = event.id
    await outbox.read_journal(journal.open_entries)
    outbox.port.kept("mqtt/")
    return After(ids, gaps)


def judge(sound: Sound, before: set[str], after: After, healthy: set[str], told: str, *, silent=frozenset()) -> None:
    """`healthy`: of pages that were not touched. `silent`: what may be gone without a word."""
    there = set(after.ids.values())
    assert before <= there, f"{told}: what a reader could read is gone: {len(before - there)}"
    assert healthy <= there, f"{told}: rows of sound pages are gone: {len(healthy - there)}"
    if any(gap.lost is not None and gap.lost.first is None for gap in after.gaps):
        return
    spans = [(gap.lost.stream, gap.lost.first, gap.lost.last) for gap in after.gaps]
    untold = [
        (stream, sequence)
        for (stream, sequence), event_id in sound.ids.items()
        if event_id not in there | silent
        and (stream, sequence) not in after.ids
        and not any(name == stream and first <= sequence <= last for name, first, last in spans)
    ]
    changed = there - set(sound.ids.values())
    assert len(untold) <= len(changed), f"{told}: {len(untold)} lost without a word, {untold[:3]}"


def copy(source: Path, folder: Path, name: str) -> Path:
    shutil.copytree(source, folder / name / "data")
    return folder / name


def flip(path: Path, random: Random, *, begin: int = 0, end: int | None = None, count: int = 1) -> set[int]:
    """Change some bytes. Returns the pages that they are on."""
    data = bytearray(path.read_bytes())
    places = [random.randrange(begin, len(data) if end is None else end) for _ in range(count)]
    for place in places:
        data[place] ^= random.randrange(1, 256)
    path.write_bytes(data)
    return {place // PAGE + 1 for place in places}


def healthy_but(sound: Sound, pages: set[int]) -> set[str]:
    return {event_id for event_id, page in sound.pages.items() if page not in pages}


def stream_row(sound: Sound) -> tuple[int, range]:
    """Return the number of the stream whose row is the first on its page, and the bytes of that row."""
    images = Images(sound.clean / "outbox.db", sound.clean / "none")
    rows = {
        found.place // 2 + found.cell.offset: found.cell.rowid for found in Carving(images).rows() if found.table == "stream"
    }
    images.close()
    first, second = sorted(rows)[:2]
    return rows[first], range(first, second)


def end_badly(at: Path) -> None:
    lock = at / "data" / "lock"
    lock.write_bytes(b"open    " + lock.read_bytes()[8:])
    (at / "data" / "outbox.db-wal").write_bytes(bytes(100))


def mark_damaged(at: Path) -> None:
    lock = at / "data" / "lock"
    lock.write_bytes(b"damaged " + lock.read_bytes()[8:])
