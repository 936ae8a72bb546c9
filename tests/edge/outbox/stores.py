"""A real store on a real file without the writer's thread: it commits, saves and rolls back as the gateway does."""

import contextlib
import copy
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fogline.events.codec import decode_event
from fogline.events.event import Arrival, Event, Receipt
from fogline.gateway.ledger import Counts
from fogline_edge.machine.boot import SYSTEM, Clock, moment
from fogline_edge.outbox.file.free_space import may_wait
from fogline_edge.outbox.file.schema import Connect, connect_file, open_database
from fogline_edge.outbox.memory.resend_memory import ResendMemory
from fogline_edge.outbox.rows.streams import EventRecord, Stream
from fogline_edge.outbox.writer.ingest import Act, Waiting
from fogline_edge.outbox.writer.store import OutboxStore, history_of, windows_due_ms
from fogline_edge.rule_settings import RuleSettings
from fogline_edge.settings import EdgeSettings, OutboxSettings, UplinkSettings

LARGE = 10**9


def open_store(
    path: Path,
    *,
    max_bytes: int = LARGE,
    clock: Clock = SYSTEM,
    gateway: str = "gw-1",
    connect: Connect = connect_file,
    rules: RuleSettings | None = None,
) -> OutboxStore:
    """Open or create the file at `path`. No event of it is in flight."""
    connection = open_database(path, max_bytes, connect)
    settings = EdgeSettings(
        tenant="acme",
        gateway=gateway,
        data=str(path.parent),
        outbox=OutboxSettings(max_bytes=max_bytes),
        uplink=UplinkSettings(batches_in_flight=0),
        rules=rules or RuleSettings(),
    )
    return OutboxStore(
        connection, settings, may_wait=partial(may_wait, folder=path.parent), clock=clock, history=history_of(settings)
    )


def take(store: OutboxStore, *arrivals: Arrival, age_ms: int | None = None) -> list[Receipt]:
    """Store arrivals as one group. `age_ms`: the gateway's age, by default that of its clock."""
    when = moment(store.clock)
    with store.transaction():
        items = [Waiting(each, when, _ignore) for each in arrivals]
        receipts = store.ingest.store(items, store.age.ms if age_ms is None else age_ms)
    store.ingest.committed()
    return receipts


class NoRoom(sqlite3.OperationalError):
    """SQLite's error for a full file."""

    sqlite_errorcode = sqlite3.SQLITE_FULL


def roll_back(store: OutboxStore, *steps: Callable[[], object]) -> None:
    """Do the steps in one transaction, which then finds no room."""
    with contextlib.suppress(NoRoom), store.transaction():
        for step in steps:
            step()
        raise NoRoom


def resends(store: OutboxStore) -> ResendMemory:
    """Return the memory of messages that the store uses."""
    return store.ingest.duplicates.resends


def rows(store: OutboxStore, stream: Stream, after: int = 0) -> list[EventRecord]:
    """Return all rows of a stream above a sequence."""
    return [EventRecord(*each) for each in store.events(stream, after, -1)]


@dataclass(frozen=True)
class StreamState:
    """The state of a stream that a restart must not change."""

    number: int
    lane: str
    open: bool
    head: int
    settled: int
    dropped_upto: int
    counts: Counts


def states(store: OutboxStore) -> dict[str, StreamState]:
    """Return the state of each stream, by name."""
    return {
        each.stream: StreamState(
            each.number, each.lane, each.open, each.head, each.settled, each.dropped.upto, _copy(each.counts)
        )
        for each in store.streams.everything()
    }


def copy_file(path: Path, folder: Path) -> Path:
    """Copy a database as it is on the disk at this moment, with its log. Returns the path of the copy."""
    folder.mkdir(parents=True, exist_ok=True)
    for former in folder.glob(path.name + "*"):
        former.unlink()
    for suffix in ("", "-wal"):
        source = path.with_name(path.name + suffix)
        if source.exists():
            shutil.copy(source, folder / source.name)
    return folder / path.name


def _copy(counts: Counts) -> Counts:
    return copy.deepcopy(counts)


def _ignore(_: Receipt) -> None:
    pass


def close_windows(store: OutboxStore) -> int:
    """Close all windows of rules that are due, as the timer does. Returns the number of transactions."""
    closed = 0
    while windows_due_ms(store) <= store.age.ms:
        with store.transaction():
            store.ingest.store([Act(lambda ingest, group: ingest.close_windows(group), lambda _: None)], store.age.ms)
        store.ingest.committed()
        closed += 1
    return closed


def stored_events(store: OutboxStore) -> list[Event]:
    """Return all events of the file, stream by stream."""
    return [decode_event(row.body) for stream in store.streams.everything() for row in rows(store, stream)]
