"""Pages that a commit writes: a group of new events changes pages of table `event` alone."""

import asyncio
import struct
from collections import Counter
from pathlib import Path

import pytest

from edge.outbox.stores import open_store, take
from fogline.events.event import Receipt
from fogline.events.identity import Retransmission
from fogline_edge.outbox.file.pages import PAGE_BYTES
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.outbox.rows.streams import SAVED_ROWS
from fogline_edge.outbox.salvage.carving import Carving, Images
from fogline_lab.clock import FakeClock
from fogline_lab.events import make_arrival
from fogline_lab.gateway.outbox_use import put, settings

HEADER_BYTES, FRAME_HEADER_BYTES = 32, 24
SIZE_PAGE = 1
"""The first page has the number of pages. It changes when the file grows."""


def commits(path: Path) -> list[list[int]]:
    """Return the numbers of the pages of each commit in the log: see "The WAL File Format" of SQLite."""
    log = path.with_name(path.name + "-wal").read_bytes()
    salts, found, pages = log[16:24], [], list[int]()
    for at in range(HEADER_BYTES, len(log), FRAME_HEADER_BYTES + PAGE_BYTES):
        number, size = struct.unpack_from(">II", log, at)
        if log[at + 8 : at + 16] != salts:
            break
        pages.append(number)
        if size:
            found.append(pages)
            pages = []
    return found


def pages_of(connection, path: Path, table: str) -> set[int]:
    """Return the pages of a table's tree."""
    images = Images(path, path.with_name(path.name + "-wal"))
    try:
        ((root,),) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchall()
        return set(Carving(images)._tree(table, root))
    finally:
        images.close()


def empty_log(connection) -> None:
    """Empty the log, and keep everything that is written from now on."""
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.execute("PRAGMA wal_autocheckpoint = 0")


def message(n: int, *, again: bool = False, clients: int = 7):
    data = b'{"n": %d, "x": "%s"}' % (n, b"x" * 100)
    return make_arrival(
        n, data=data, device=f"lamp-{n % 13}", retransmission=Retransmission(b"c%d" % (n % clients), again, number=n)
    )


@pytest.mark.parametrize("events", [1, 5, 40])
def test_a_group_of_plain_events_changes_only_pages_of_events(memory, events):
    path, groups = memory / "outbox.db", SAVED_ROWS // events // 2
    store = open_store(path, clock=FakeClock())
    take(store, *(message(n) for n in range(10)))
    with store.transaction():
        store.save()
    empty_log(store.connection)
    for group in range(groups):
        take(store, *(message(100 + group * events + n) for n in range(events)))
    written, allowed = commits(path), pages_of(store.connection, path, "event")
    assert len(written) == groups
    assert [set(pages) - allowed - {SIZE_PAGE} for pages in written] == [set()] * groups
    frames = Counter(len(pages) for pages in written)
    if events == 1:
        assert frames[1] > 0.8 * groups, "an event is one page, unless a page is full"
    else:
        assert sum(map(len, written)) < groups * (events / 6 + 4)
    print(f"{events} events a commit: {sum(map(len, written)) / groups:.2f} pages")
    store.connection.close()


def test_state_is_saved_after_many_rows_and_with_changes_that_rows_lack(memory):
    path = memory / "outbox.db"
    store = open_store(path, clock=FakeClock())
    take(store, *(message(n) for n in range(10)))
    with store.transaction():
        store.save()
    saved = {table: pages_of(store.connection, path, table) for table in ("stream", "resend")}
    empty_log(store.connection)
    for n in range(SAVED_ROWS + 10):
        take(store, message(100 + n))
    written = [set(pages) for pages in commits(path)]
    assert [n for n, pages in enumerate(written) if pages & saved["stream"]] == [SAVED_ROWS - 1]
    empty_log(store.connection)
    assert take(store, message(100 + SAVED_ROWS, again=True)) == [Receipt.DUPLICATE]
    (written,) = commits(path)
    assert set(written) <= saved["stream"] | pages_of(store.connection, path, "resend")
    store.connection.close()


async def test_a_running_gateway_writes_one_page_for_most_events(folder):
    """Through the writer's thread, with its housekeeping."""
    outbox, path = Outbox.open(settings(folder, group_commit_ms=0), clock=FakeClock()), folder / "data" / "outbox.db"
    await asyncio.gather(*(put(outbox, message(n)) for n in range(10)))
    await outbox.read_journal(lambda connection, _: empty_log(connection))
    for n in range(100):
        assert await put(outbox, message(100 + n)) is Receipt.STORED
    written = commits(path)
    allowed = await outbox.read_journal(lambda connection, _: pages_of(connection, path, "event"))
    assert [set(pages) - allowed - {SIZE_PAGE} for pages in written] == [set()] * len(written)
    assert sum(map(len, written)) < 150
    await outbox.close()
