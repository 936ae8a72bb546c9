"""The supervisor as a transcript: input, time, and the effects that it orders."""

from dataclasses import replace

import pytest

from edge.ble.supervisor_effects import DROP, NEW_CLIENTS, NEW_SCANNER, RENEW, SCANNING, STALE, START
from fogline_edge.adapters.ble.supervision.bluez_state import Adapters, BluezState, RadioPhase
from fogline_edge.adapters.ble.supervision.supervisor import LOOK_AGAIN_S, Effect, RadioTimeouts, Supervisor

HCI0 = "/org/bluez/hci0"
LOST = [DROP, RENEW]
AGAIN = [STALE, START]


def supervisor(**limits) -> Supervisor:
    return Supervisor(RadioTimeouts(silence_s=60, **limits))


def scanning(**limits) -> Supervisor:
    """A supervisor that has scanned since second 0."""
    found = supervisor(**limits)
    assert found.observe(SCANNING, 0) == AGAIN
    assert found.started(0) == []
    assert (found.phase, found.problem) == (RadioPhase.SCANNING, None)
    return found


def counted(found: Supervisor, *but: str) -> dict[str, int]:
    names = (each for each in found.steps.__slots__ if each not in ("scanners", *but))
    return {name: getattr(found.steps, name) for name in names if getattr(found.steps, name)}


@pytest.mark.parametrize(
    ("bluez", "phase", "said"),
    [
        (BluezState(why="no socket"), RadioPhase.NO_BUS, "the system bus cannot be reached (no socket)"),
        (BluezState(), RadioPhase.NO_DAEMON, "bluetoothd does not run"),
        (BluezState(None, ":1.7"), RadioPhase.NO_ADAPTER, "there is no Bluetooth adapter"),
        (BluezState(None, ":1.7", "hci0"), RadioPhase.OFF, "the Bluetooth adapter hci0 is off"),
        (
            BluezState(None, ":1.7", "hci0", blocked="soft"),
            RadioPhase.OFF,
            "the Bluetooth adapter hci0 is blocked by rfkill; to unblock",
        ),
        (BluezState(None, ":1.7", "hci0", blocked="hard"), RadioPhase.OFF, "the Bluetooth adapter hci0 is blocked by a switch"),
    ],
)
def test_missing_adapter_is_waited_for_and_named(bluez, phase, said):
    found = supervisor(power_on_s=None)
    assert found.observe(bluez, 0) == []
    assert found.phase is phase
    assert found.problem.startswith(said)
    assert found.observe(SCANNING, 5) == AGAIN
    found.started(5)
    assert found.problem is None


def test_as_long_as_there_is_nothing_it_is_asked_for_again():
    found = supervisor()
    found.observe(BluezState(), 0)
    assert found.tick(LOOK_AGAIN_S - 1) == []
    assert found.tick(LOOK_AGAIN_S) == [Effect.LOOK]
    assert found.tick(2 * LOOK_AGAIN_S) == [Effect.LOOK]


def test_adapter_switched_off_by_the_ladder_is_switched_on_without_power_on():
    found, now_s = scanning(power_on_s=None), 0.0
    while Effect.POWER_CYCLE not in (effects := found.tick(now_s)):
        if effects:
            found.started(now_s)
        now_s += 30
        assert now_s < 1000, "there is no such rung"
    off = BluezState(None, ":1.7", "hci0")
    found.observe(off, now_s)
    assert found.phase is RadioPhase.OFF
    assert found.tick(now_s + 1) == [Effect.POWER_ON]
    assert found.observe(SCANNING, now_s + 2) == AGAIN
    found.started(now_s + 2)
    found.observe(off, now_s + 3)
    assert found.tick(now_s + 100) == [], "this time it was somebody else"


def test_an_adapter_that_is_not_the_wanted_one_is_named():
    found = supervisor(wanted="hci1")
    found.observe(BluezState(None, ":1.7"), 0)
    assert found.problem == "there is no Bluetooth adapter hci1 (ble.adapter); plug one in"


def test_an_adapter_that_is_off_is_switched_on_and_again():
    found = supervisor(power_on_s=5)
    found.observe(BluezState(None, ":1.7", "hci0"), 0)
    assert found.tick(4.9) == []
    assert found.tick(5) == [Effect.POWER_ON]
    assert found.tick(34) == []
    assert found.tick(35) == [Effect.POWER_ON]
    assert counted(found) == {"power_on": 2}


@pytest.mark.parametrize(
    ("lost", "back", "step"),
    [
        (BluezState(why="closed"), SCANNING, "bus_lost"),
        (BluezState(), BluezState(None, ":1.9", "hci0", powered=True), "daemon_lost"),
        (BluezState(None, ":1.7", unplugged=1), BluezState(None, ":1.7", "hci0", powered=True, unplugged=1), "adapter_lost"),
        (
            BluezState(None, ":1.7", "hci0", switched_off=1),
            BluezState(None, ":1.7", "hci0", powered=True, switched_off=1),
            "powered_off",
        ),
    ],
)
def test_bluez_state_below_the_scanner_is_lost_and_returns(lost, back, step):
    found = scanning()
    assert found.observe(lost, 10) == LOST
    assert not found.phase.can_connect
    assert found.observe(back, 20) == AGAIN
    found.started(20)
    assert counted(found) == {step: 1, "recovered": 1}


@pytest.mark.parametrize(
    "back",
    [
        BluezState(None, ":1.9", "hci0", powered=True),
        BluezState(None, ":1.7", "hci0", powered=True, unplugged=1),
        BluezState(None, ":1.7", "hci0", powered=True, switched_off=1),
        BluezState(None, ":1.7", "hci1", powered=True),
    ],
)
def test_a_loss_that_is_over_when_it_is_seen_is_a_loss(back):
    found = scanning()
    assert found.observe(back, 10) == [*LOST, *AGAIN]


def test_a_scanner_that_does_not_start_is_tried_again_by_the_ladder():
    found = supervisor()
    found.observe(SCANNING, 0)
    assert found.failed("InProgress", 0) == []
    assert (found.phase, found.problem) == (RadioPhase.WAITING, "InProgress")
    assert found.tick(0.9) == []
    assert found.tick(1) == [DROP, START]
    found.failed("InProgress", 1)
    assert found.tick(3) == [DROP, RENEW, STALE, START]
    found.failed("InProgress", 3)
    assert found.tick(7) == [DROP, RENEW, Effect.POWER_CYCLE, STALE, START]
    found.started(7)
    found.received(8)
    assert found.problem is None
    assert counted(found) == {"start_failures": 3, "new_scanner": 1, "new_clients": 1, "power_cycle": 1, "recovered": 1}


def test_scanner_that_never_starts_is_retried_with_back_off():
    found = supervisor()
    found.observe(SCANNING, 0)
    now_s, waits_s = 0, []
    for _ in range(14):
        found.failed("InProgress", now_s)
        waits_s.append(found.deadline_s - now_s)
        now_s = found.deadline_s
        found.tick(now_s)
    assert waits_s == [1, 2, 4, 8, *[2 * 16, *[2 * 30] * 3], *[4 * 30] * 4, *[8 * 30] * 2]
    found.started(now_s)
    found.received(now_s)
    found.pause()
    found.resume()
    found.failed("InProgress", now_s)
    assert found.deadline_s == now_s + 1


def test_silence_is_answered_by_the_ladder_then_reported_then_less_often():
    found = scanning()
    found.received(30)
    assert found.tick(60) == []
    assert found.deadline_s == 90
    assert found.tick(90) == [DROP, START]
    found.started(90)
    assert found.problem == "no advertisement was received for 60 s"
    assert found.tick(150) == [DROP, RENEW, STALE, START]
    found.started(150)
    assert found.tick(210) == [DROP, RENEW, Effect.POWER_CYCLE, STALE, START]
    found.started(210)
    assert found.tick(270) == [DROP, START]
    assert found.problem.endswith("new scanner, new clients, adapter hci0 off and on: nothing helps")
    found.started(270)
    assert found.tick(389) == []
    assert found.tick(390) == [DROP, START]
    assert counted(found) == {"silences": 5, "new_scanner": 2, "new_clients": 1, "power_cycle": 1, "reported": 1}


def state_of(adapters: Adapters) -> BluezState:
    return BluezState(None, ":1.7", "hci0", adapters.state(HCI0)[0], adapters.unplugged, adapters.switched_off)


def power_cycle(adapters: Adapters) -> None:
    """Switch the adapter off and on as the gateway does, with BlueZ's signals."""
    adapters.going_off(HCI0)
    adapters.changed(HCI0, {"Powered": False})
    adapters.changed(HCI0, {"Powered": True})
    adapters.back_on(HCI0)


def test_adapter_switched_off_by_the_ladder_is_no_loss_and_the_ladder_continues():
    adapters = Adapters(None)
    adapters.added(HCI0, {"Powered": True})
    found = supervisor()
    found.observe(state_of(adapters), 0)
    found.started(0)
    for now_s in (60, 120, 180, 240):
        if Effect.POWER_CYCLE in found.tick(now_s):
            power_cycle(adapters)
        found.started(now_s)
        assert found.observe(state_of(adapters), now_s) == []
    assert found.problem.endswith("nothing helps")
    assert found.deadline_s == 240 + 2 * 60
    assert counted(found) == {"silences": 4, "new_scanner": 1, "new_clients": 1, "power_cycle": 1, "reported": 1}


def test_adapter_switched_off_by_another_program_is_counted():
    adapters = Adapters(None)
    adapters.added(HCI0, {"Powered": True})
    power_cycle(adapters)
    adapters.changed(HCI0, {"Powered": False})
    assert adapters.switched_off == 1
    adapters.going_off(HCI0)  # refused: it stays as it is
    adapters.back_on(HCI0)
    adapters.changed(HCI0, {"Powered": True})
    adapters.changed(HCI0, {"Powered": False})
    assert adapters.switched_off == 2


def test_the_first_word_after_silence_ends_the_trouble():
    found = scanning()
    found.tick(60)
    found.started(60)
    found.received(61)
    assert (found.problem, found.ladder.rung) == (None, 0)
    assert found.tick(121) == [DROP, START]


def silence(found: Supervisor, *at_s: int, link: bool = True) -> list[list[Effect]]:
    """Effects at each of these times without an advertisement. `link`: a connected device was alive just before."""
    done = []
    for now_s in at_s:
        if link:
            found.ladder.link_alive("A", now_s - 1)
        done.append(found.tick(now_s))
        found.started(now_s)
    return done


def test_while_a_link_lives_nothing_ends_it():
    found = scanning()
    assert silence(found, 60, 120, 180, 240) == [NEW_SCANNER] * 4
    assert counted(found) == {"silences": 4, "new_scanner": 4}


def test_a_scanner_that_cannot_be_started_is_worth_the_links():
    found = scanning()
    found.ladder.link_alive("A", 59)
    done = [found.tick(60)]
    for now_s in (61, 63, 67):
        found.failed("InProgress", found.deadline_s or 60)
        found.ladder.link_alive("A", now_s - 1)
        done.append(found.tick(found.deadline_s))
    assert done == [NEW_SCANNER, NEW_SCANNER, NEW_SCANNER, NEW_CLIENTS]
    found.failed("InProgress", 67)
    assert found.tick(found.deadline_s) == [DROP, RENEW, Effect.POWER_CYCLE, STALE, START]
    found.started(80)
    assert silence(found, 140) == [NEW_SCANNER]


def test_a_device_that_falls_silent_with_the_scanner_costs_the_links_once():
    found = scanning()
    found.ladder.device_silent()
    assert silence(found, 60, 120, 180, 240) == [NEW_SCANNER, NEW_CLIENTS, NEW_SCANNER, NEW_SCANNER]
    found.ladder.device_silent()
    assert silence(found, 300, 360) == [NEW_CLIENTS, NEW_SCANNER]


def test_silent_device_beside_others_ends_no_link():
    found = scanning()
    found.ladder.device_silent()
    found.received(1)
    assert silence(found, 61, 121, 181) == [NEW_SCANNER] * 3


def test_when_the_last_link_has_died_the_ladder_is_not_at_its_end_yet():
    found = scanning()
    silence(found, 60, 120, 180)
    assert silence(found, 240, 300, link=False) == [NEW_CLIENTS, [DROP, RENEW, Effect.POWER_CYCLE, STALE, START]]


def test_a_link_that_says_something_seldom_lives_until_it_ends():
    found = scanning()
    found.ladder.link_alive("A", 0, lasts_s=600)
    assert silence(found, 60, 120, link=False) == [NEW_SCANNER] * 2
    found.ladder.link_ended("A")
    assert silence(found, 180, link=False) == [NEW_CLIENTS]


DEAF = replace(SCANNING, discovering=False)


def test_a_scan_that_bluez_has_stopped_is_started_again_within_5_s():
    """R2."""
    found = scanning()
    found.received(10)
    assert found.observe(DEAF, 10) == []
    assert found.tick(10) == []
    assert found.deadline_s <= 14
    assert found.tick(found.deadline_s) == NEW_SCANNER
    assert found.problem.startswith("BlueZ stopped scanning")
    found.started(14)
    assert found.observe(SCANNING, 14.1) == []
    assert found.problem is None
    assert counted(found) == {"scan_stopped": 1, "recovered": 1}
    assert found.tick(73) == []


def test_a_scan_that_bluez_interrupts_for_a_moment_goes_on():
    """R2: BlueZ 5.82 does so for 0.1 s every 10 s."""
    found = scanning()
    for now_s in range(10, 50, 10):
        found.observe(DEAF, now_s)
        assert found.tick(now_s) == []
        found.observe(SCANNING, now_s + 0.1)
        assert found.tick(now_s + 9) == []
    assert counted(found) == {}


def test_while_scanning_is_paused_bluez_does_not_scan_either():
    found = scanning()
    found.pause()
    found.observe(DEAF, 1)
    assert found.tick(30) == []
    assert found.resume() == [START]
    found.started(30)
    assert found.tick(31) == []
    found.observe(SCANNING, 31)
    assert found.tick(40) == []


def test_bluez_that_never_reports_scanning_is_restarted_with_back_off_while_no_advertisement_arrives():
    found, restarts = scanning(), []
    found.observe(DEAF, 0)
    for tenth in range(600):
        if found.tick(tenth / 10) == NEW_SCANNER:
            restarts.append(tenth / 10)
            found.started(tenth / 10)
    assert len(restarts) <= 5
    for now_s in range(60, 120):
        found.received(now_s)
        assert found.tick(now_s + 0.5) == [], "what is heard proves that it scans"


def test_scanning_pauses_while_a_device_is_being_connected():
    found = scanning()
    assert found.pause() == [DROP]
    assert found.phase is RadioPhase.PAUSED
    assert found.tick(1000) == []
    assert found.resume() == [START]
    found.started(1000)
    assert found.phase is RadioPhase.SCANNING


def test_a_pause_that_outlives_a_loss_holds():
    found = scanning()
    found.pause()
    assert found.observe(BluezState(), 1) == LOST
    assert found.observe(BluezState(None, ":1.9", "hci0", powered=True), 2) == AGAIN
    assert found.started(2) == [DROP]
    assert found.resume() == [START]


def test_a_pause_that_ends_while_all_is_lost_starts_nothing():
    found = scanning()
    found.pause()
    found.observe(BluezState(), 1)
    assert found.resume() == []
    assert found.observe(SCANNING, 2) == AGAIN
    assert found.started(2) == []


def test_late_observation_is_ignored():
    found = scanning()
    found.observe(BluezState(), 1)
    assert found.started(2) == []
    assert found.failed("late", 2) == []
    assert found.phase is RadioPhase.NO_DAEMON
    found.received(3)
    assert found.phase is RadioPhase.NO_DAEMON
