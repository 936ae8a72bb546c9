"""The journal of commands has a random name, by which a bridge tells it from the journal of a copy or a new card."""

import contextlib
import shutil
import sqlite3

import pytest

from fogline.commands.command import REMEMBER_COMMANDS_S
from fogline_edge.outbox.file.data_folder import forget_journal_name, journal_name
from fogline_edge.outbox.file.schema import open_database
from fogline_edge.outbox.memory.memory_expiry import LATE_MS, MemoryExpiry
from fogline_edge.outbox.outbox import Outbox
from fogline_lab.clock import FakeClock
from fogline_lab.gateway.outbox_use import settings

NOW_S = 30 * 86_400


async def name_of(folder):
    outbox = Outbox.open(settings(folder))
    try:
        return outbox.journal
    finally:
        await outbox.close()


async def test_a_journal_keeps_its_name_over_restarts_and_a_new_card_has_another(folder):
    name = await name_of(folder)
    assert len(name) == 16
    assert await name_of(folder) == name
    shutil.rmtree(folder / "data")
    assert await name_of(folder) != name


@pytest.mark.fault("X9")
async def test_a_salvaged_journal_has_a_new_name(folder):
    name = await name_of(folder)
    path = folder / "data" / "outbox.db"
    content = bytearray(path.read_bytes())
    content[100:120] = bytes(20)  # the header of the first page's cells
    path.write_bytes(bytes(content))
    assert await name_of(folder) != name
    assert list(path.parent.glob("outbox.db.damaged-*")), "it was not salvaged"


async def test_a_copy_that_forgot_its_name_gets_a_new_one(folder):
    name = await name_of(folder)
    with contextlib.closing(sqlite3.connect(folder / "data" / "outbox.db", isolation_level=None)) as connection:
        assert journal_name(connection) == name
        forget_journal_name(connection)
    assert await name_of(folder) != name


@pytest.fixture
def connection(tmp_path):
    with contextlib.closing(open_database(tmp_path / "outbox.db", 10**9)) as connection:
        yield connection


def end_commands(connection, clock):
    """Ten commands that ended long ago, one each second, and whose deadlines are long past."""
    now = clock.beacon()
    for number in range(10):
        values = (f"c-{number}", now.boot_id, now.boottime_ms - LATE_MS - 1, NOW_S + number)
        connection.execute(
            "INSERT INTO command (id, device, name, data, reply, durable, idempotent, correlation, boot, deadline_ms, digest,"
            " state, changed_s) VALUES (?, 'lamp', 'on', x'', 1, 1, 0, '', ?, ?, x'', 'SUCCEEDED', ?)",
            values,
        )


def waiting_replies(connection, head, settled):
    """Lane `reply` has a stream with rows up to `head`, of which the bridge has accepted those up to `settled`."""
    connection.execute("DELETE FROM stream")
    connection.execute("DELETE FROM event")
    columns = "number, stream, lane, open, head, settled, settled_commit_id"
    counts = "acknowledged, stored, duplicate, dead, sent, settled_events, quarantined"
    values = "7, 's', 'reply', 1, ?, ?, x'', 0, 0, 0, 0, 0, 0, 0"
    connection.execute(f"INSERT INTO stream ({columns}, {counts}) VALUES ({values})", (head, settled))
    rows = [(7 << 40 | sequence,) for sequence in range(1, head + 1)]
    connection.executemany("INSERT INTO event (place, commit_id, body) VALUES (?, x'', x'')", rows)


@pytest.mark.fault("X10")
@pytest.mark.parametrize("over", ["age", "share"])
def test_a_verdict_is_forgotten_only_when_the_bridge_has_accepted_its_reply(connection, over):
    """The age is over after an outage of ten days; the share after many commands, long before."""
    clock = FakeClock()
    clock.go_on(2 * LATE_MS // 1000)
    end_commands(connection, clock)
    age_s = NOW_S + REMEMBER_COMMANDS_S + 100 if over == "age" else NOW_S + 100
    for settled, left in ((0, 10), (17, 3), (19, 1), (20, 0)):
        waiting_replies(connection, head=20, settled=settled)
        expiry = MemoryExpiry(connection, 10**9 if over == "age" else 1, clock)
        while expiry.step(age_s):
            pass
        assert connection.execute("SELECT count(*) FROM command").fetchone() == (left,)
