"""Changes of the radio's problem that are logged."""

from fogline_edge.adapters.ble.supervision.bluez_state import GRACE_S, ProblemLog


def test_each_change_is_logged_once():
    log = ProblemLog("not started yet", "")
    assert not log.is_due("not started yet", "", 0, restarting=False)
    assert log.is_due(None, "", 1, restarting=False)
    assert not log.is_due(None, "", 2, restarting=False)
    assert log.is_due("silence", "new scanner", 3, restarting=False)
    assert log.is_due("silence", "power cycle", 4, restarting=False)
    assert not log.is_due("silence", "power cycle", 5, restarting=False)
    assert log.is_due(None, "", 6, restarting=False)


def test_short_problem_is_logged_if_it_lasts():
    log = ProblemLog(None, "")
    assert not log.is_due("no daemon", "", 10, restarting=True)
    assert not log.is_due("no adapter", "", 11, restarting=True)
    assert log.deadline_s == 10 + GRACE_S
    assert log.is_due("no adapter", "", 10 + GRACE_S, restarting=True)
    assert log.is_due("no daemon", "", 20, restarting=True), "it is no restart any more"


def test_problem_of_a_moment_leaves_one_line():
    """R4."""
    log = ProblemLog(None, "")
    assert not log.is_due("no daemon", "", 10, restarting=True)
    assert not log.is_due("no adapter", "", 11, restarting=True)
    assert not log.is_due("no adapter", "", 11.5, restarting=False), "a scanner is being started"
    assert log.is_due(None, "", 12, restarting=False)
    assert log.deadline_s is None
    assert not log.is_due(None, "", 13, restarting=False)
