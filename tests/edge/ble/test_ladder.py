"""The ladder against silence, by the supervisor, second by second (R3)."""

from edge.ble.supervisor_effects import NEW_SCANNER, POWER_CYCLE, SCANNING
from fogline_edge.adapters.ble.supervision.supervisor import Effect, RadioTimeouts, Supervisor

from .supervisor_effects import NEW_CLIENTS


def deaf_from(found: Supervisor, began_s: int, ended_s: int, *, link: bool) -> dict[int, list[Effect]]:
    """Effects in each second of silence. `link`: a connected device is alive all the time."""
    done = {}
    for now_s in range(began_s, ended_s):
        if link and POWER_CYCLE not in done.values():
            found.ladder.link_alive("A", now_s)
        if effects := found.tick(now_s):
            done[now_s - began_s] = effects
            found.started(now_s)
    return done


def hearing(until_s: int, *, near: bool) -> Supervisor:
    """A supervisor with default settings that received an advertisement each second."""
    found = Supervisor(RadioTimeouts())
    found.observe(SCANNING, 0)
    found.started(0)
    for now_s in range(until_s + 1):
        found.received(now_s)
        if near:
            found.ladder.near(now_s)
    return found


def test_a_deaf_radio_is_reset_within_60_s():
    """R3."""
    expected = {20: NEW_SCANNER, 30: NEW_CLIENTS, 40: POWER_CYCLE}
    assert deaf_from(hearing(100, near=True), 100, 145, link=False) == expected
    assert deaf_from(hearing(100, near=False), 100, 145, link=False) == expected


def test_a_deaf_radio_beside_a_link_that_lives_is_reset_within_60_s_if_advertisers_are_near():
    """R3."""
    done = deaf_from(hearing(100, near=True), 100, 145, link=True)
    assert done == {20: NEW_SCANNER, 30: NEW_SCANNER, 40: POWER_CYCLE}


def test_a_link_that_lives_is_not_ended_if_no_advertiser_is_near():
    """A site with one lock, or with buttons that say something when they are pressed."""
    done = deaf_from(hearing(100, near=False), 100, 7300, link=True)
    assert list(done.values()) == [NEW_SCANNER] * len(done)
    assert list(done)[:4] == [20, 40, 60, 80]
    assert len(done) < 20, "less and less often"


def test_advertisers_that_left_are_not_near():
    found = hearing(100, near=True)
    for now_s in range(101, 130):
        found.received(now_s)
    assert POWER_CYCLE not in deaf_from(found, 129, 300, link=True).values()


def test_a_reset_that_does_not_help_is_not_repeated_for_the_same_advertisers():
    found = hearing(100, near=True)
    deaf_from(found, 100, 150, link=True)
    found.received(150)  # somebody passes by
    done = deaf_from(found, 150, 400, link=True)
    assert POWER_CYCLE not in done.values()
