"""Which changes of the radio's state are logged."""

from fogline_edge.adapters.ble.announcements import GRACE_S, Announcements


def test_each_change_is_logged_once():
    log = Announcements("not started yet", "")
    assert not log.changed("not started yet", "", 0, restarting=False)
    assert log.changed(None, "", 1, restarting=False)
    assert not log.changed(None, "", 2, restarting=False)
    assert log.changed("silence", "new scanner", 3, restarting=False)
    assert log.changed("silence", "power cycle", 4, restarting=False)
    assert not log.changed("silence", "power cycle", 5, restarting=False)
    assert log.changed(None, "", 6, restarting=False)


def test_what_may_be_over_in_a_moment_is_logged_if_it_is_not():
    log = Announcements(None, "")
    assert not log.changed("no daemon", "", 10, restarting=True)
    assert not log.changed("no adapter", "", 11, restarting=True)
    assert log.deadline_s == 10 + GRACE_S
    assert log.changed("no adapter", "", 10 + GRACE_S, restarting=True)
    assert log.changed("no daemon", "", 20, restarting=True), "it is no restart any more"


def test_what_was_over_in_a_moment_leaves_one_line():
    """R4."""
    log = Announcements(None, "")
    assert not log.changed("no daemon", "", 10, restarting=True)
    assert not log.changed("no adapter", "", 11, restarting=True)
    assert not log.changed("no adapter", "", 11.5, restarting=False), "a scanner is being started"
    assert log.changed(None, "", 12, restarting=False)
    assert log.deadline_s is None
    assert not log.changed(None, "", 13, restarting=False)
