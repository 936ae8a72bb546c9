"""The gateway's data folder: one process at a time, and always the same gateway."""

import fcntl
import os
import sqlite3
from pathlib import Path

from fogline.errors import Misconfigured
from fogline_edge.outbox.queries import SQL
from fogline_edge.settings import Settings


def lock_folder(folder: Path) -> int:
    """Take the folder for this process; the descriptor holds the lock. Raises `Misconfigured`."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Misconfigured(
            f"data folder {folder} cannot be used: {error.strerror}; choose one that this user may write"
        ) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise Misconfigured(
            f"data folder {folder} is in use by another gateway: stop it, or give this one its own `data`"
        ) from None
    return lock


def check_owner(connection: sqlite3.Connection, settings: Settings, folder: Path) -> None:
    """The rows carry their gateway's name: a renamed gateway needs a new folder. Raises `Misconfigured`."""
    name = f"{settings.tenant}/{settings.gateway}"
    row = connection.execute(SQL["get_meta"], ("gateway",)).fetchone()
    if row is None:
        connection.execute(SQL["set_meta"], ("gateway", name))
    elif row[0] != name:
        raise Misconfigured(f"data folder {folder} belongs to gateway {row[0]}, not {name}: give this one its own `data`")
