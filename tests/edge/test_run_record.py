"""The record of the gateway's runs, which `fogline-edge status` shows."""

import logging

import pytest

from fogline.events.event import rfc3339
from fogline_edge.machine.process_end import STOPPED_TEXT, EndCause
from fogline_edge.machine.run_record import FILE, KEPT_ENDS, NOTE, ClockJump, RunRecord, lines_of_run, read_run
from fogline_lab.clock import RIGHT_NS, FakeClock

NOW = rfc3339(RIGHT_NS)


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def begin(tmp_path, clock):
    """A function that begins a run."""
    (tmp_path / "vmstat").write_text("nr_free_pages 7\noom_kill 3\n")
    return lambda: RunRecord(tmp_path, clock, note=tmp_path / NOTE, vmstat=tmp_path / "vmstat")


def lines(folder) -> str:
    return "\n".join(lines_of_run(read_run(folder)))


def test_the_first_run_has_no_run_before(tmp_path, begin):
    begin()
    assert read_run(tmp_path).ends == ()
    assert lines(tmp_path) == f"run of {NOW}"


def test_the_end_that_the_service_noted_is_shown_and_logged_once(tmp_path, begin, caplog):
    begin()
    (tmp_path / NOTE).write_text("watchdog killed KILL".ljust(63) + "\n")
    begin().log_last_end()
    (end,) = read_run(tmp_path).ends
    assert end.cause is EndCause.WATCHDOG
    assert f"the run before: {end.text}, at {end.at}" in lines(tmp_path)
    (logged,) = [each for each in caplog.records if "the run before this one" in each.message]
    assert (logged.levelno, logged.reason) == (logging.WARNING, "watchdog")
    begin()
    assert read_run(tmp_path).ends[-1].cause is EndCause.UNKNOWN, "the note is of one run"


def test_a_cause_stays_visible_behind_an_end_in_order(tmp_path, begin):
    begin().leave(EndCause.MEMORY, "it left by itself: too much")
    begin().leave(EndCause.STOPPED, STOPPED_TEXT)
    assert f"run of {NOW}: it was stopped in order" in lines(tmp_path)
    begin()
    assert "the run before: it was stopped in order" in lines(tmp_path)
    assert "an earlier run: it left by itself: too much" in lines(tmp_path)


def test_a_power_cut_and_an_oom_kill_need_no_note(tmp_path, begin, clock):
    begin()
    clock.reboot(RIGHT_NS)
    begin()
    assert read_run(tmp_path).ends[-1].cause is EndCause.MACHINE
    (tmp_path / "vmstat").write_text("oom_kill 4\n")
    begin()
    assert read_run(tmp_path).ends[-1].cause is EndCause.OOM


def test_jumps_of_the_clock_are_shown(tmp_path, begin):
    record = begin()
    record.note_clock(None, synced=True)
    assert "clock" not in lines(tmp_path)
    record.note_clock(ClockJump("2031-01-01T00:00:00Z", "2026-01-01T00:00:00Z", 157_766_400.0), synced=False)
    assert "was set from 2026-01-01T00:00:00Z to 2031-01-01T00:00:00Z (+157,766,400 s)" in lines(tmp_path)
    assert "not known to be right now" in lines(tmp_path)


def test_the_file_has_one_size_and_a_damaged_one_is_no_obstacle(tmp_path, begin):
    for _ in range(2 * KEPT_ENDS):
        begin().leave(EndCause.ERROR, "\x01\U0001f600" * 10_000)
    record = begin()
    for _ in range(10):
        record.note_clock(ClockJump("2031-01-01T00:00:00.000000Z", "2026-01-01T00:00:00.000000Z", 1e9), synced=False)
    assert len(read_run(tmp_path).ends) == KEPT_ENDS
    size = (tmp_path / FILE).stat().st_size
    (tmp_path / FILE).write_bytes(b"\xff" * size)
    assert read_run(tmp_path) is None
    begin()
    assert read_run(tmp_path).ends == ()
    assert (tmp_path / FILE).stat().st_size == size
