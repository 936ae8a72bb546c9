"""Active or passive: the choice for the next scan, and what the supervisor makes of it. Transcripts."""

from dataclasses import replace

import pytest

from edge.ble.supervisor_effects import DROP, RENEW, SCANNING, STALE, START
from fogline_edge.adapters.ble.supervision.bluez_state import Adapters, RadioPhase
from fogline_edge.adapters.ble.supervision.scan_mode import SILENCES, ScanChoice, ScanReason
from fogline_edge.adapters.ble.supervision.supervisor import STOPPED_S, RadioTimeouts, Supervisor
from fogline_edge.profiles.ble import BleProfile, Recognise, ReportRule
from fogline_edge.profiles.ble_files import built_in_profiles
from fogline_edge.profiles.ble_scan import MAX_PATTERNS, needs_active, passive_patterns, reason_for_active

OFFERED = replace(SCANNING, monitors=True)
SILENCE_S = 20.0
BUILT_IN = built_in_profiles()


def started(setting="auto", needs=None, bluez=OFFERED) -> Supervisor:
    """A supervisor whose scanner runs since second 0."""
    found = Supervisor(RadioTimeouts(silence_s=SILENCE_S), ScanChoice(setting, needs))
    found.observe(bluez, 0)
    found.started(0)
    assert found.phase is RadioPhase.SCANNING
    return found


def test_profiles_that_a_passive_scan_serves_are_those_that_only_broadcast_what_changes():
    passive = {name for name, each in BUILT_IN.items() if needs_active(each) is None}
    assert passive == {"bthome", "eddystone-tlm", "ruuvi-6", "ruuvi-e1", "ruuvitag", "xiaomi"}


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("govee", "most devices send their name in scan responses only"),
        ("ibeacon", "it stores unchanged advertisements too, which BlueZ does not report of a passive scan"),
        ("environmental-sensing", "the gateway connects to its devices, and waits for each of their advertisements"),
    ],
)
def test_profile_that_needs_more_than_a_passive_scan_is_named_with_the_reason(name, why):
    profiles = [BUILT_IN["bthome"], BUILT_IN[name]]
    assert reason_for_active(profiles, "auto") == f"profile {name}: {why}"
    assert reason_for_active(profiles, "passive") is None, "the operator knows these devices better"


def own(scan: str, **more) -> BleProfile:
    return BleProfile(name="own", recognise=[Recognise(manufacturer=1, name="x*")], channel="own", scan=scan, **more)


def test_word_of_a_profile_decides_whatever_it_declares():
    assert needs_active(own("passive", report=ReportRule(on_change=False))) is None
    assert reason_for_active([own("active")], "passive") == "profile own: it says so"


def test_a_passive_scan_asks_for_flags_and_company_numbers_and_for_no_more_than_linux_takes():
    patterns = passive_patterns([BUILT_IN["ruuvitag"], BUILT_IN["ruuvi-6"], BUILT_IN["bthome"]])
    assert (0, 0x01, b"\x06") in patterns
    assert [each for each in patterns if each[1] != 0x01] == [(0, 0xFF, b"\x99\x04")]
    many = BleProfile(name="many", recognise=[Recognise(manufacturer=each) for each in range(11)], channel="many")
    assert len(passive_patterns([many])) > MAX_PATTERNS
    assert "16 patterns" in reason_for_active([many], "passive")


@pytest.mark.parametrize(
    ("setting", "needs", "offered", "reason"),
    [
        ("auto", None, True, ScanReason.PASSIVE),
        ("passive", None, True, ScanReason.PASSIVE),
        ("active", None, True, ScanReason.SETTING),
        ("auto", "profile x: y", True, ScanReason.PROFILE),
        ("auto", None, False, ScanReason.UNSUPPORTED),
        ("passive", None, False, ScanReason.UNSUPPORTED),
    ],
)
def test_scan_is_passive_where_settings_profiles_and_bluez_allow_it(setting, needs, offered, reason):
    found = started(setting, needs, OFFERED if offered else SCANNING)
    assert found.scan.reason is reason
    assert found.scan.mode == ("passive" if reason is ScanReason.PASSIVE else "active")
    assert found.meter.scan == {reason: 1}
    assert found.scan.why


def test_passive_scan_that_bluez_refuses_is_an_active_one_at_once():
    found = Supervisor(RadioTimeouts(), ScanChoice("auto"))
    assert found.observe(OFFERED, 0) == [STALE, START]
    assert found.failed("hci0 does not scan: Failed", 0) == [START]
    assert (found.scan.reason, found.steps.start_failures) == (ScanReason.REFUSED, 0)
    assert "hci0 does not scan: Failed" in found.scan.why
    found.started(0)
    assert found.problem is None
    assert found.failed("late", 1) == []


def test_discovering_says_nothing_of_a_passive_scan():
    found = started(bluez=replace(OFFERED, discovering=False))
    found.observe(replace(OFFERED, discovering=True), 1)
    found.observe(replace(OFFERED, discovering=False), 2)
    found.received(3)
    assert found.tick(3 + 2 * STOPPED_S) == []


def test_silent_passive_scan_is_compared_with_an_active_one_which_stays_if_it_receives():
    found = started()
    found.received(10)
    silent_s = 10 + SILENCES * SILENCE_S
    assert found.tick(silent_s - 0.1) == [], "BlueZ reports only what changes"
    assert found.tick(silent_s) == [DROP, START]
    assert found.scan.reason is ScanReason.SILENT
    found.started(silent_s)
    found.received(silent_s + 1)
    assert found.tick(silent_s + 2) == []
    assert "the passive scan received nothing for 60 s" in found.scan.why
    found.pause()
    assert found.resume() == [START]
    assert found.scan.reason is ScanReason.SILENT, "it stays"


def test_silence_of_an_active_scan_too_is_no_fault_of_the_passive_one():
    found = started()
    now_s = SILENCES * SILENCE_S
    assert found.tick(now_s) == [DROP, START]
    found.started(now_s)
    effects = found.tick(now_s + SILENCE_S)
    assert effects[-1] is START
    assert found.scan.passive


def test_another_bluez_may_scan_passively_again():
    found = started()
    found.choice.insufficient("C0:00:00:00:00:01 sends presses without a packet id")
    assert found.tick(1) == [DROP, START]
    assert found.scan.reason is ScanReason.SENSOR
    found.started(1)
    assert found.observe(replace(OFFERED, daemon=":1.9"), 2) == [DROP, RENEW, STALE, START]
    assert found.scan.passive


def test_offer_that_comes_after_the_scanner_has_started_is_taken():
    found = started(bluez=SCANNING)
    assert found.scan.reason is ScanReason.UNSUPPORTED
    found.observe(OFFERED, 1)
    assert found.tick(1) == [DROP, START]
    assert found.scan.passive


def test_interface_of_an_unplugged_adapter_goes_with_it():
    adapters = Adapters(None)
    adapters.replace({"/org/bluez/hci0": {"Powered": True}}, ["/org/bluez/hci0"])
    assert adapters.may_monitor("/org/bluez/hci0")
    adapters.removed("/org/bluez/hci0")
    adapters.added("/org/bluez/hci0", {"Powered": True})
    assert not adapters.may_monitor("/org/bluez/hci0")
    adapters.offers_monitors("/org/bluez/hci0")
    assert adapters.may_monitor("/org/bluez/hci0")
