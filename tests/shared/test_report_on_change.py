"""The arrivals of a repeating device that become events."""

import pytest

from fogline.events.report_on_change import Reported, ReportPolicy, is_news

SAID = Reported(10_000)
AT_MOST_ONCE_A_SECOND = ReportPolicy(min_interval_s=1.0)
ON_CHANGE = ReportPolicy(on_change=True)
PRESSES = ReportPolicy(on_change=True, pause_s=2.0)
BOTH = ReportPolicy(on_change=True, min_interval_s=1.0, max_interval_s=60.0)


@pytest.mark.parametrize("report", [ReportPolicy(), AT_MOST_ONCE_A_SECOND, ON_CHANGE, BOTH])
def test_the_first_word_is_always_news(report):
    assert is_news(report, None, 0, changed=False)


@pytest.mark.parametrize(
    ("report", "payload", "now_ms", "news"),
    [
        (ReportPolicy(), b"21.5", 10_000, True),
        (AT_MOST_ONCE_A_SECOND, b"21.6", 10_999, False),
        (AT_MOST_ONCE_A_SECOND, b"21.5", 11_000, True),
        (ON_CHANGE, b"21.5", 10**9, False),
        (ON_CHANGE, b"21.6", 10_000, True),
        (BOTH, b"21.6", 10_999, False),
        (BOTH, b"21.6", 11_000, True),
        (BOTH, b"21.5", 69_999, False),
        (BOTH, b"21.5", 70_000, True),
    ],
)
def test_report_is_new_if_it_changed_and_its_interval_has_passed(report, payload, now_ms, news):
    assert is_news(report, SAID, now_ms, changed=payload != b"21.5") is news


@pytest.mark.parametrize(("repeated_ms", "now_ms", "news"), [(0, 11_999, False), (0, 12_000, True), (11_000, 12_500, False)])
def test_repetition_after_a_pause_is_another_press(repeated_ms, now_ms, news):
    assert is_news(PRESSES, Reported(10_000, repeated_ms), now_ms, changed=False) is news


@pytest.mark.parametrize(
    ("report", "payload", "news"), [(BOTH, b"21.5", False), (BOTH, b"21.6", True), (ReportPolicy(), b"21.5", True)]
)
def test_after_a_restart_of_unknown_length_only_the_payload_tells(report, payload, news):
    assert is_news(report, SAID, 9_999, changed=payload != b"21.5") is news
