"""The machine's clock counts as right only when something says so."""

import ctypes
import sys

import pytest

from fogline.events.event import TimeQuality
from fogline.process import kernel_clock
from fogline_edge.machine import boot
from fogline_lab.clock import RIGHT_NS, SECOND_NS, YEAR_NS


class Settable(boot.SystemClock):
    """The machine's clock with a wall clock that a test sets, and evidence that it gives."""

    def __init__(self, monkeypatch) -> None:
        super().__init__()
        self.wall_ns = RIGHT_NS
        self.synchronized = False
        monkeypatch.setattr(boot, "machine_is_synchronized", lambda: self.synchronized)

    def time_ns(self) -> int:
        return self.wall_ns


@pytest.fixture
def clock(monkeypatch):
    return Settable(monkeypatch)


@pytest.mark.fault("T6")
def test_a_plausible_time_alone_is_no_evidence(clock):
    """G10."""
    now = boot.moment(clock)
    assert (now.synced, now.beacon is not None) == (False, True)
    assert boot.time_quality(clock) is TimeQuality.UNSYNCED
    assert not clock.compare(RIGHT_NS + YEAR_NS)
    assert not clock.is_right()


@pytest.mark.parametrize("differ_s", [-50, 0, 50])
def test_a_bridge_that_agrees_is_evidence(clock, differ_s):
    assert clock.compare(RIGHT_NS + differ_s * SECOND_NS)
    now = boot.moment(clock)
    assert (now.synced, now.beacon) == (True, None)


def test_evidence_holds_through_an_outage_of_time_servers_and_ends_when_the_clock_is_set(clock):
    clock.synchronized = True
    assert clock.is_right()
    clock.synchronized = False
    assert clock.is_right()
    clock.wall_ns -= YEAR_NS
    assert not clock.is_right()
    clock.wall_ns += YEAR_NS
    assert not clock.is_right()
    clock.synchronized = True
    assert clock.is_right()


def test_1970_is_never_a_valid_time(clock):
    clock.wall_ns, clock.synchronized = 20 * SECOND_NS, True
    assert not boot.moment(clock).synced


@pytest.mark.skipif(sys.platform != "linux", reason="adjtimex is Linux's")
@pytest.mark.parametrize(("state", "flag", "right"), [(5, False, False), (5, True, True), (0, False, True), (-1, False, False)])
def test_the_kernel_or_timesyncd_is_asked(monkeypatch, tmp_path, state, flag, right):
    class Kernel:
        def adjtimex(self, timex: ctypes.Array) -> int:
            assert bytes(timex) == bytes(len(timex)), "nothing is set"
            return state

    monkeypatch.setattr(kernel_clock, "_libc", Kernel)
    monkeypatch.setattr(kernel_clock, "TIMESYNCD", tmp_path / "synchronized")
    if flag:
        kernel_clock.TIMESYNCD.touch()
    assert kernel_clock.machine_is_synchronized() is right


@pytest.mark.skipif(sys.platform != "linux", reason="adjtimex is Linux's")
def test_the_kernel_answers():
    assert kernel_clock.machine_is_synchronized() in {True, False}
