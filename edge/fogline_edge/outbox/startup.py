"""Prepares the outbox's file: checks its owner and the end of the last run, and salvages a damaged file."""

import logging
import sqlite3
from pathlib import Path

from fogline.errors import Misconfigured
from fogline_edge.machine.boot import Clock
from fogline_edge.outbox.file.age import Age
from fogline_edge.outbox.file.data_folder import (
    FILE,
    DataFolder,
    RunEnd,
    check_owner,
    foreign,
    journal_name,
    note_start,
    write_again,
)
from fogline_edge.outbox.file.free_space import is_damage
from fogline_edge.outbox.file.queries import SQL
from fogline_edge.outbox.file.schema import Connect, open_database
from fogline_edge.outbox.salvage import salvage
from fogline_edge.outbox.salvage.integrity import examine
from fogline_edge.settings import EdgeSettings

KEPT_STREAMS = 100
"""The newest streams, whose counts `status` shows also when they are closed and empty. Older ones are deleted at the start."""

_log = logging.getLogger("fogline.outbox")


def open_file(settings: EdgeSettings, connect: Connect, clock: Clock) -> tuple[sqlite3.Connection, DataFolder]:
    """Lock the data folder and open a sound file of this gateway. Raises `Misconfigured`."""
    folder = DataFolder(Path(settings.data), f"{settings.tenant}/{settings.gateway}")
    try:
        _prepare(settings, folder, clock)
        try:
            connection = _open(settings, folder, connect, clock)
        except Exception as error:
            if isinstance(error, sqlite3.Error) and not is_damage(error):
                raise _cannot("opened", folder.path / FILE, error) from error
            if not is_damage(error):
                raise
            _log.exception("the outbox cannot be opened")
            folder.note(RunEnd.DAMAGED)
            _prepare(settings, folder, clock)
            connection = _open(settings, folder, connect, clock)
    except BaseException:  # interrupts too: the folder must not stay locked
        folder.close()
        raise
    return connection, folder


def _prepare(settings: EdgeSettings, folder: DataFolder, clock: Clock) -> None:
    """Leave a sound file, or none, in the folder. Raises `Misconfigured`."""
    path, last = folder.path / FILE, folder.last()
    if last.owner not in (None, folder.name):
        raise foreign(folder.path, str(last.owner), folder.name)
    try:
        if salvage.resume(path, clock):
            folder.note(RunEnd.CLOSING)
            last = folder.last()
        marked = "it was found to be damaged while it was in use" if last.how is RunEnd.DAMAGED else None
        why = marked or examine(path, last=last.how, owner=last.owner, boot_id=clock.beacon().boot_id)
        if why is not None:
            salvage.salvage(path, why, identity=(settings.tenant, settings.gateway), clock=clock)
            folder.note(RunEnd.CLOSING)
        elif last.how is RunEnd.FAILED and (log := path.with_name(path.name + "-wal")).exists() and log.stat().st_size:
            write_again(log)
    except (OSError, sqlite3.Error) as error:
        raise _cannot("salvaged", path, error) from error


def _cannot(what: str, path: Path, error: Exception) -> Misconfigured:
    return Misconfigured(f"the outbox {path} cannot be {what}: {error}; check the folder, its owner and the free space")


def _open(settings: EdgeSettings, folder: DataFolder, connect: Connect, clock: Clock) -> sqlite3.Connection:
    connection = open_database(folder.path / FILE, settings.outbox.max_bytes, connect)
    try:
        check_owner(connection, folder)
        connection.execute("BEGIN IMMEDIATE")
        note_start(connection, clock)
        journal_name(connection)
        connection.execute(SQL["forget_streams"], (KEPT_STREAMS,))
        Age(connection, clock).save()
        connection.execute("COMMIT")
    except BaseException as error:  # interrupts too: the file must not stay open
        if not isinstance(error, Misconfigured):
            folder.note(RunEnd.FAILED)
        connection.close()
        raise
    return connection
