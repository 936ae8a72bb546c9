"""What an outbox holds, read from its file beside the running gateway, without disturbing it."""

import sqlite3
from pathlib import Path
from typing import Any

import msgspec
from sqlite_utils import Database

from fogline.errors import Misconfigured
from fogline_edge.adapters.ble.state import STATE_KEY, decode_state

_STREAMS = """
SELECT stream, lane, open, head, settled, head - settled AS backlog, acknowledged, stored, duplicate, dead, sent,
       settled_events, quarantined,
       coalesce((SELECT events FROM filtered WHERE filtered.stream = number), 0) AS filtered,
       coalesce((SELECT events FROM dropped WHERE dropped.stream = number), 0) AS dropped, reason
FROM stream ORDER BY number
"""
_TOTALS = (
    "acknowledged",
    "stored",
    "duplicate",
    "dead",
    "sent",
    "settled_events",
    "quarantined",
    "filtered",
    "dropped",
    "backlog",
)


def open_read_only(folder: Path) -> Database:
    """The outbox in `folder`. Raises `Misconfigured` if there is none."""
    path = folder / "outbox.db"
    if not path.exists():
        raise Misconfigured(f"there is no outbox in {folder}: no gateway has run with these settings")
    try:
        return Database(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5.0))
    except sqlite3.Error as error:
        raise Misconfigured(f"the outbox {path} cannot be read: {error}") from None


def read_status(folder: Path) -> dict[str, Any]:
    """Counts per stream and in all, the size of the file, how many events are in quarantine, and how Bluetooth goes."""
    database = open_read_only(folder)
    try:
        streams = list(database.query(_STREAMS))
        (pages,) = database.execute("PRAGMA page_count").fetchone()
        (page_bytes,) = database.execute("PRAGMA page_size").fetchone()
        (gateway,) = database.execute("SELECT value FROM meta WHERE key = 'gateway'").fetchone()
        ble = database.execute("SELECT value FROM kept WHERE key = ?", [STATE_KEY]).fetchone()
    except sqlite3.Error as error:
        raise Misconfigured(f"the outbox in {folder} cannot be read: {error}") from None
    finally:
        database.close()
    totals = {name: sum(stream[name] for stream in streams) for name in _TOTALS}
    status = {"gateway": gateway, "bytes": pages * page_bytes, **totals, "streams": streams}
    return status if ble is None else {**status, "ble": msgspec.to_builtins(decode_state(ble[0]))}


def read_events(folder: Path, table: str, limit: int) -> list[dict[str, Any]]:
    """The oldest rows of `event` or `quarantine`, bodies as text."""
    database = open_read_only(folder)
    try:
        query = f"SELECT stream, sequence, body FROM {table} ORDER BY stream, sequence LIMIT ?"  # noqa: S608 - our own names
        return [{**row, "body": row["body"].decode("utf-8", "replace")} for row in database.query(query, [limit])]
    except sqlite3.Error as error:
        raise Misconfigured(f"the outbox in {folder} cannot be read: {error}") from None
    finally:
        database.close()
