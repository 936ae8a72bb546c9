"""Expiry of the memory of duplicates."""

import asyncio
import contextlib
import sqlite3
import threading

import pytest

from fogline.events.event import Receipt
from fogline.events.identity import UniqueId
from fogline.events.report_on_change import ReportPolicy
from fogline_edge.outbox.file.pages import PAGE_BYTES
from fogline_edge.outbox.file.schema import open_database
from fogline_edge.outbox.memory import memory_expiry as module
from fogline_edge.outbox.memory.memory_expiry import REMEMBER_S, ROUND_S, MemoryExpiry
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.outbox.writer import housekeeping
from fogline_edge.outbox.writer.writer_queue import Call
from fogline_lab.amqp import within
from fogline_lab.clock import RIGHT_NS, FakeClock
from fogline_lab.events import make_arrival
from fogline_lab.gateway.outbox_use import put, settings

NOW_S = 30 * 86_400
LIMIT_S = 60.0


@pytest.fixture
def connection(tmp_path):
    with contextlib.closing(open_database(tmp_path / "outbox.db", 10**9)) as connection:
        connection.execute("BEGIN")
        yield connection


def remember(connection, device: str, *ages_s: int) -> None:
    """A row of each age."""
    for n, age_s in enumerate(ages_s):
        key = f"{device} {n}".encode()
        connection.execute("INSERT INTO memory VALUES (?, ?, ?, x'')", (key, device, NOW_S - age_s))


def ages(connection) -> dict[str, list[int]]:
    rows = connection.execute("SELECT device, ? - stored_s FROM memory ORDER BY device, stored_s DESC", (NOW_S,)).fetchall()
    return {device: [age for name, age in rows if name == device] for device, _ in rows}


def whole_round(forgetting: MemoryExpiry, age_s: int = NOW_S) -> int:
    """Returns how many steps it took."""
    steps = 1
    forgetting.step(age_s)
    while forgetting.more:
        forgetting.step(age_s)
        steps += 1
    return steps


def test_a_device_that_is_silent_for_48_hours_is_forgotten(connection):
    remember(connection, "here", 0, REMEMBER_S + 1)
    remember(connection, "just here", REMEMBER_S)
    remember(connection, "gone", REMEMBER_S + 1, REMEMBER_S + 2)
    whole_round(MemoryExpiry(connection, 10**9))
    assert ages(connection) == {"here": [0, REMEMBER_S + 1], "just here": [REMEMBER_S]}


def test_memory_of_a_device_keeps_its_newest_messages_and_those_of_48_hours(connection, monkeypatch):
    monkeypatch.setattr(module, "REMEMBER_EVENTS", 3)
    remember(connection, "little", 0, REMEMBER_S + 1, REMEMBER_S + 2, REMEMBER_S + 3)
    remember(connection, "much", 0, 1, 2, 3, REMEMBER_S + 1)
    whole_round(MemoryExpiry(connection, 10**9))
    assert ages(connection) == {"little": [0, REMEMBER_S + 1, REMEMBER_S + 2], "much": [0, 1, 2, 3]}


def test_all_devices_together_have_a_share_and_the_oldest_go_first(connection):
    for n in range(500):
        remember(connection, f"{n:04d}", n, 500 + n)
    whole_round(MemoryExpiry(connection, 1_000_000))
    left = sorted(age for each in ages(connection).values() for age in each)
    assert left == list(range(len(left)))
    assert 0.75 < len(left) * 212 / 150_000 <= 0.8


def test_entries_of_one_moment_are_not_forgotten_within_it(connection):
    remember(connection, "flood", *[0] * 5000)
    forgetting = MemoryExpiry(connection, 1_000_000)
    assert whole_round(forgetting) == 1
    assert len(ages(connection)["flood"]) == 5000
    assert whole_round(forgetting, NOW_S + 1) == 1, "the next hour, or when there is more of it"
    forgetting.grown(501)
    whole_round(forgetting, NOW_S + 1)
    assert ages(connection) == {}


def test_it_goes_in_small_steps_once_an_hour(connection):
    for n in range(1000):
        remember(connection, f"{n:04d}", REMEMBER_S + 1)
    remember(connection, "long", *range(REMEMBER_S + 1, REMEMBER_S + 3001))
    forgetting = MemoryExpiry(connection, 10**9)
    assert forgetting.step(NOW_S) == module.DEVICES_AT_ONCE
    assert 12 <= whole_round(forgetting) <= 20
    assert ages(connection) == {}
    remember(connection, "more", REMEMBER_S + 1)
    assert forgetting.step(NOW_S + ROUND_S - 1) == 0
    assert forgetting.step(NOW_S + ROUND_S) == 1


@pytest.fixture
def tidied_with_each(monkeypatch):
    """Housekeeping runs after each item of the writer's queue."""
    monkeypatch.setattr(housekeeping, "SAVED_EVERY_S", 0.0)


@pytest.mark.usefixtures("tidied_with_each")
async def test_a_device_that_always_says_the_same_is_not_forgotten(folder):
    """It is heard, though nothing of it is stored: after days it is still no news."""
    clock, same = FakeClock(), make_arrival(report=ReportPolicy(on_change=True))
    named = make_arrival(device="other", evidence=UniqueId(b"1"))
    outbox = Outbox.open(settings(folder), clock=clock)
    told = [await put(outbox, each) for each in (same, named)]
    for _ in range(10):
        clock.go_on(13 * 3600)
        told += [await put(outbox, each) for each in (same, named)]
    assert told == [Receipt.STORED] * 2 + [Receipt.FILTERED, Receipt.DUPLICATE] * 10
    await outbox.close()


@pytest.mark.usefixtures("tidied_with_each")
async def test_devices_that_were_never_real_leave_nothing(folder):
    clock = FakeClock()
    outbox = Outbox.open(settings(folder), clock=clock)
    for hour in range(60):
        for n in range(5):
            await put(outbox, make_arrival(device=f"{hour}-{n}", evidence=UniqueId(b"1")))
        clock.go_on(3600)
    await outbox.close()
    with contextlib.closing(sqlite3.connect(folder / "data" / "outbox.db")) as connection:
        (devices,) = connection.execute("SELECT count(DISTINCT device) FROM memory").fetchone()
    assert devices <= 49 * 5


@pytest.mark.fault("C10")
@pytest.mark.parametrize("when_full", ["block", "drop_oldest"])
async def test_file_full_of_resend_memory_recovers(folder, when_full):
    clock = FakeClock()
    make = settings(folder, max_bytes=1_000_000, when_full={"telemetry": when_full})
    outbox = Outbox.open(make, clock=clock)
    await put(outbox, make_arrival(0))
    await outbox.close()
    with contextlib.closing(sqlite3.connect(folder / "data" / "outbox.db")) as connection:
        rows = 0
        while connection.execute("PRAGMA page_count").fetchone()[0] * PAGE_BYTES < 950_000:
            values = (rows.to_bytes(16, "big"), f"made-up-{rows}", rows % 100, bytes(60))
            connection.execute("INSERT INTO memory VALUES (?, ?, ?, ?)", values)
            rows += 1
        connection.commit()
    clock.reboot(RIGHT_NS)
    outbox = Outbox.open(make, clock=clock)
    assert await put(outbox, make_arrival(1)) is Receipt.STORED
    (stream,) = await outbox.streams.pending()
    assert (stream.counts.dropped, stream.head) == (0, 2)
    await outbox.close()


async def test_while_there_is_work_little_is_forgotten_and_then_the_rest(folder, monkeypatch):
    steps: list[int] = []
    loop, all_gone = asyncio.get_running_loop(), asyncio.Event()

    def step(_forgetting, age_s):
        steps.append(age_s)
        if len(steps) == 5:
            loop.call_soon_threadsafe(all_gone.set)
        return 0

    monkeypatch.setattr(housekeeping, "STEP_S", 1000.0)
    monkeypatch.setattr(MemoryExpiry, "more", property(lambda _: len(steps) < 5))
    monkeypatch.setattr(MemoryExpiry, "step", step)
    outbox = Outbox.open(settings(folder))
    gate, seen = threading.Event(), []
    for run in (lambda _: gate.wait(LIMIT_S), *[lambda _: seen.append(len(steps))] * 50):
        outbox._writer.submit(Call(run, lambda _: None, lambda _: None))
    gate.set()
    await within(all_gone.wait(), "what is left is never forgotten", LIMIT_S)
    assert (len(seen), max(seen)) == (50, 1), "the one that is due in any case"
    await outbox.close()


def end(connection, first: int, many: int, *, boot: str, deadline_ms: int, state: str = "SUCCEEDED") -> None:
    """Commands that became `state` now."""
    rows = [
        (f"c-{n}", "lamp", "on", b"", 1, 1, 0, "", boot, deadline_ms, b"", state, NOW_S) for n in range(first, first + many)
    ]
    connection.executemany(
        "INSERT INTO command (id, device, name, data, reply, durable, idempotent, correlation, boot, deadline_ms, digest,"
        " state, changed_s) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        rows,
    )


def commands(connection) -> list[str]:
    return [row[0] for row in connection.execute("SELECT id FROM command ORDER BY number")]


def test_commands_that_are_over_have_a_share_and_none_goes_that_may_come_again(connection):
    clock = FakeClock()
    clock.go_on(2 * module.LATE_MS // 1000)
    now = clock.beacon()
    end(connection, 0, 100, boot=now.boot_id, deadline_ms=now.boottime_ms - 1, state="QUEUED")
    end(connection, 100, 100, boot="another boot", deadline_ms=0)
    late_ms = now.boottime_ms - module.LATE_MS
    end(connection, 200, 50, boot=now.boot_id, deadline_ms=late_ms)
    end(connection, 250, 50, boot=now.boot_id, deadline_ms=late_ms - 1, state="IN_DOUBT")
    end(connection, 300, 3000, boot=now.boot_id, deadline_ms=late_ms - 1)
    share = 400 * module.COMMAND_BYTES / module.COMMANDS_SHARE
    whole_round(MemoryExpiry(connection, int(share) + 1, clock))
    assert commands(connection) == [f"c-{n}" for n in (*range(300), *range(3200, 3300))]
    whole_round(MemoryExpiry(connection, 10**9, clock), NOW_S + module.REMEMBER_COMMANDS_S + 1)
    assert commands(connection) == [f"c-{n}" for n in range(100)], "only what is not over is left"
