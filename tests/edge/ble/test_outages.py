"""Times without scanning, as `fogline-edge status` shows them."""

from fogline_edge.adapters.ble.supervision.bluez_state import RadioPhase
from fogline_edge.adapters.ble.supervision.outages import KEPT, OutageLog, RadioOutage

GONE = "there is no Bluetooth adapter; plug one in"


def test_an_outage_has_its_begin_and_then_its_length():
    log = OutageLog("not started yet")
    log.observe("not started yet", RadioPhase.NO_BUS, "T0", 0)
    log.observe(None, RadioPhase.SCANNING, "T1", 1)
    assert (log.present, log.ended) == (None, ())
    log.observe(GONE, RadioPhase.NO_ADAPTER, "T2", 2)
    log.observe(GONE, RadioPhase.STARTING, "T3", 9)
    assert log.present == RadioOutage("T2", GONE)
    log.observe(None, RadioPhase.SCANNING, "T4", 9.5)
    assert (log.present, log.ended) == (None, (RadioOutage("T2", GONE, 7.5),))


def test_a_problem_that_changes_is_one_outage():
    log = OutageLog(None)
    log.observe("silence for 20 s", RadioPhase.SCANNING, "T1", 1)
    log.observe("silence for 40 s", RadioPhase.SCANNING, "T2", 2)
    log.observe(GONE, RadioPhase.NO_ADAPTER, "T3", 3)
    assert log.present == RadioOutage("T1", f"silence for 40 s; then: {GONE}")


def test_the_last_outages_are_kept_also_those_of_earlier_runs():
    log = OutageLog(None, [RadioOutage("T0", "long ago", 1.0)] * KEPT)
    log.observe(GONE, RadioPhase.NO_ADAPTER, "T1", 1)
    log.observe(None, RadioPhase.SCANNING, "T2", 2)
    assert len(log.ended) == KEPT
    assert log.ended[-1].since == "T1"
