"""The watchman: a process that grows leaves with a reason, and a clock that jumps is noted."""

import pytest

from fogline.events.event import rfc3339
from fogline_edge.machine.run_record import RunRecord, read_run
from fogline_edge.machine.watchman import MemoryExceeded, Watchman, own_memory_bytes
from fogline_lab.clock import RIGHT_NS, SECOND_NS, YEAR_NS, FakeClock

MIB_KB = 1024


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def watchman(tmp_path, clock):
    """A watchman with a bound of 100 MiB; `status` in the folder is what the kernel says of the process."""
    grown(tmp_path, 60)
    return Watchman(RunRecord(tmp_path, clock), clock, 100, tmp_path / "status")


def grown(folder, mib, swapped_mib=0):
    text = f"VmRSS:\t  900000 kB\nRssAnon:\t  {mib * MIB_KB} kB\nRssFile:\t 800000 kB\nVmSwap:\t  {swapped_mib * MIB_KB} kB\n"
    (folder / "status").write_text(text)


def reasons(caplog):
    return [each.reason for each in caplog.records if hasattr(each, "reason")]


def test_the_kernel_tells_the_memory_of_this_process():
    assert 1e6 < own_memory_bytes() < 1e11


def test_a_process_within_its_bound_goes_on(tmp_path, watchman):
    watchman.check()
    grown(tmp_path, 100)
    watchman.check()


def test_a_process_that_grows_beyond_its_bound_leaves_with_the_reason(tmp_path, watchman, caplog):
    grown(tmp_path, 90, swapped_mib=11)
    with pytest.raises(MemoryExceeded, match="101 MiB of memory, more than 100 MiB"):
        watchman.check()
    assert reasons(caplog) == ["memory"]


def test_without_a_bound_it_may_grow(tmp_path, clock):
    grown(tmp_path, 10_000)
    Watchman(RunRecord(tmp_path, clock), clock, 0, tmp_path / "status").check()


@pytest.mark.parametrize("years", [5, -5])
def test_a_jump_of_the_clock_is_noted_with_both_times(tmp_path, watchman, clock, caplog, years):
    watchman.check()
    clock.go_on(2)
    clock.wall_ns += years * YEAR_NS
    clock.synchronized = False
    watchman.check()
    state = read_run(tmp_path).clock
    (jump,) = state.jumps
    assert not state.synced
    assert jump.by_s == years * YEAR_NS / SECOND_NS
    assert jump.instead_of == rfc3339(RIGHT_NS + 2 * SECOND_NS)
    assert reasons(caplog) == ["clock", "clock"]
    clock.wall_ns = RIGHT_NS + 2 * SECOND_NS
    clock.synchronized = True
    watchman.check()
    assert len(read_run(tmp_path).clock.jumps) == 2
    assert read_run(tmp_path).clock.synced


def test_time_that_passes_is_no_jump(tmp_path, watchman, clock):
    watchman.check()
    clock.go_on(86_400)  # it slept
    clock.wall_ns += 30 * SECOND_NS  # NTP
    watchman.check()
    assert read_run(tmp_path).clock.jumps == ()
