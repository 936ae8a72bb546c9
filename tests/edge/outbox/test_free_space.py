"""A disk without room, in each way in which it says so, is waited for; it is never a reason to restart in a loop."""

import asyncio
import errno
import os
import sqlite3

import pytest

from edge.outbox.full_outbox import Full
from fogline.errors import Misconfigured
from fogline.events.event import Receipt
from fogline_edge import gateway
from fogline_edge.outbox.file import free_space as module
from fogline_edge.outbox.file.data_folder import DataFolder
from fogline_edge.outbox.file.free_space import NoRoom
from fogline_edge.outbox.outbox import Outbox
from fogline_lab.amqp import within
from fogline_lab.disk import Disk, DiskOperation, quota_exceeded, sync_failed
from fogline_lab.events import make_arrival
from fogline_lab.gateway.outbox_use import put, settings

LIMIT_S = 60.0


@pytest.mark.fault("C10")
async def test_a_quota_that_is_used_up_is_waited_for(folder, monkeypatch):
    """G15: EDQUOT is an I/O error to SQLite, and ended the process again after each restart."""
    disk, full = Disk(), Full(monkeypatch, DiskOperation.WRITE, quota_exceeded)
    outbox = Outbox.open(settings(folder, statement_s=0.01), disk.connect)
    assert await put(outbox, make_arrival(1)) is Receipt.STORED
    disk.before, full.full = full, True
    waiting = asyncio.ensure_future(put(outbox, make_arrival(2)))
    async with asyncio.timeout(LIMIT_S):
        while not full.refused:
            await outbox.streams.pending()
    assert not waiting.done()
    full.full = False
    assert await within(waiting, "it does not heal") is Receipt.STORED
    assert not outbox.failed.done()
    await outbox.close()


@pytest.mark.fault("C9")
async def test_a_write_that_fails_for_another_reason_is_fatal(folder, monkeypatch):
    disk, full = Disk(), Full(monkeypatch, DiskOperation.WRITE, quota_exceeded)
    outbox = Outbox.open(settings(folder), disk.connect)
    monkeypatch.setattr(module, "_has_room", lambda _: True)
    disk.before, full.full = full, True
    outbox.port.put(make_arrival(1), lambda _: None)
    assert "disk quota exceeded" in await within(outbox.failed, "it goes on")
    await outbox.close()


@pytest.mark.parametrize(
    ("kind", "error"), [(DiskOperation.SYNC, sync_failed), (DiskOperation.WRITE, quota_exceeded)], ids=["sync", "write"]
)
@pytest.mark.fault("C10")
async def test_an_outbox_that_cannot_be_opened_for_want_of_room_says_so(folder, monkeypatch, kind, error):
    disk, full = Disk(), Full(monkeypatch, kind, error)
    await Outbox.open(settings(folder), disk.connect).close()
    disk.before, full.full = full, True
    with pytest.raises(NoRoom, match=r"the disk, or this user's quota of it, is full; check the folder's free space"):
        Outbox.open(settings(folder), disk.connect)
    monkeypatch.setattr(module, "_has_room", lambda _: True)
    with pytest.raises(Misconfigured) as other:
        Outbox.open(settings(folder), disk.connect)
    assert not isinstance(other.value, NoRoom)
    full.full = False
    outbox = Outbox.open(settings(folder), disk.connect)
    assert await put(outbox, make_arrival(1)) is Receipt.STORED
    await outbox.close()


async def test_a_note_that_finds_no_room_is_no_other_error(folder, monkeypatch):
    def no_room(*_) -> None:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr(DataFolder, "note", no_room)
    with pytest.raises(NoRoom):
        Outbox.open(settings(folder))
    monkeypatch.undo()
    await Outbox.open(settings(folder)).close()


@pytest.mark.parametrize(("number", "room"), [(errno.ENOSPC, False), (errno.EDQUOT, False), (errno.EIO, True), (0, True)])
def test_the_folder_is_asked_with_a_file_that_goes_again(folder, monkeypatch, number, room):
    def sync(_) -> None:
        if number:
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", sync)
    assert module._has_room(folder) is room
    assert list(folder.iterdir()) == []


@pytest.mark.fault("C10")
async def test_a_gateway_that_starts_on_a_full_disk_waits_for_room(folder, monkeypatch, caplog):
    """G15: it ended at once, again after each restart."""
    monkeypatch.setattr(gateway, "ROOM_S", 0.001)
    await Outbox.open(settings(folder)).close()
    answers, opened = iter([NoRoom("the disk is full"), NoRoom("the disk is full")]), object()

    def open_outbox(_, export):
        if (error := next(answers, None)) is not None:
            raise error
        return opened

    monkeypatch.setattr(gateway.Outbox, "open", open_outbox)
    assert await within(gateway._open_outbox(settings(folder), asyncio.Event()), "it does not start") is opened
    assert caplog.text.count("the disk is full (retrying every") == 2


async def test_a_first_start_on_a_full_disk_is_an_error(folder, monkeypatch):
    def open_outbox(_, export):
        raise NoRoom("the disk is full")

    monkeypatch.setattr(gateway.Outbox, "open", open_outbox)
    with pytest.raises(NoRoom):
        await gateway._open_outbox(settings(folder), asyncio.Event())


async def test_a_gateway_that_waits_for_room_can_be_stopped(folder, monkeypatch):
    stop = asyncio.Event()
    await Outbox.open(settings(folder)).close()

    def open_outbox(_, export):
        stop.set()
        raise NoRoom("the disk is full")

    monkeypatch.setattr(gateway.Outbox, "open", open_outbox)
    assert await within(gateway._open_outbox(settings(folder), stop), "it does not stop") is None


def test_a_folder_where_no_log_can_be_written_ahead_is_refused(folder):
    """G15: without a log, a power cut damages the file, and each commit costs several syncs."""
    with pytest.raises(
        Misconfigured, match=r"cannot have a write-ahead log here \(it is in mode memory\): put `data` on a local"
    ):
        Outbox.open(settings(folder), lambda _: sqlite3.connect(":memory:", isolation_level=None))
