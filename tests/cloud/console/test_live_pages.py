"""Pages that renew themselves are bounded, of all users and of each session."""

from fogline_cloud.console.live_pages import MAX_OF_SESSION, MAX_PAGES, SILENT_S, LivePages


def test_beyond_the_bounds_a_page_is_told_to_stop_until_another_is_closed():
    live = LivePages()
    sessions = MAX_PAGES // MAX_OF_SESSION
    for session in range(sessions):
        assert all(live.may_renew(f"s{session}", f"p{page}", 0.0) for page in range(MAX_OF_SESSION))
        assert not live.may_renew(f"s{session}", "one more", 0.0)
    assert not live.may_renew("another", "p", 1.0)
    assert live.may_renew("s0", "p0", 5.0), "an open page goes on"
    assert live.may_renew("another", "p", SILENT_S + 1), "those that have not asked for so long are closed"
    assert len(live) == 2


def test_a_long_name_of_a_page_is_cut():
    live = LivePages()
    assert live.may_renew("s", "x" * 100_000, 0.0)
    assert sum(len(name) for _, name in live._seen_s) < 100
