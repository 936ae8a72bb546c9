"""Any program: topics to devices as the settings say."""

import pytest

from fogline.errors import Misconfigured, Poison
from fogline.events.event import Lane
from fogline_edge.broker_settings import TopicSettings
from fogline_edge.profiles.plain import Plain
from fogline_edge.profiles.profile import BrokerMessage, Filter, Ignored, IgnoreReason


def read(topic, *patterns, retained=False, **rule):
    rules = [TopicSettings(topic=each, **rule) for each in patterns or ("plant/{device}/#",)]
    return Plain(rules).read(BrokerMessage(topic, b"1", retained))


def test_the_settings_say_everything():
    arrival = read("plant/p1/alarm", lane=Lane.ALARM, type="overheat", content_type="text/plain")
    assert (arrival.device, arrival.channel, arrival.lane, arrival.type, arrival.content_type) == (
        "p1", "plant/p1/alarm", Lane.ALARM, "overheat", "text/plain",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("pattern", "topic", "device"),
    [
        ("plant/{device}/#", "plant/p1", "p1"),
        ("plant/{device}/#", "plant/p1/a/b", "p1"),
        ("+/{device}/rpm", "hall/p1/rpm", "p1"),
        ("{device}", "p1", "p1"),
        ("a.b/{device}", "a.b/p1", "p1"),
    ],
)
def test_patterns_match_as_mqtt_says(pattern, topic, device):
    assert read(topic, pattern).device == device


def test_the_first_that_matches_decides():
    assert read("a/b/c", "a/{device}/c", "{device}/#").device == "b"


def test_filters_are_the_patterns_with_one_level_for_the_device():
    assert Plain([TopicSettings(topic="+/{device}/#")]).filters == (Filter("+/+/#"),)


@pytest.mark.parametrize("topic", ["plant", "other/p1/x", "plant//x"])
def test_topic_without_a_matching_pattern_is_poison(topic):
    with pytest.raises(Poison) as caught:
        read(topic)
    assert caught.value.reason == "bad-topic"


def test_a_device_that_is_no_identifier_is_escaped():
    assert read("plant/pump 1/rpm").device == "pump:201"


def test_retained_readings_are_passed_over_and_retained_alarms_taken():
    assert read("plant/p1/x", retained=True) == Ignored(IgnoreReason.RETAINED)
    assert read("plant/p1/x", retained=True, lane=Lane.BULK) == Ignored(IgnoreReason.RETAINED)
    assert read("plant/p1/x", retained=True, lane=Lane.ALARM).device == "p1"


@pytest.mark.parametrize(
    "pattern", ["", "plant/#", "{device}/{device}", "#/{device}", "a+/{device}", "x{device}", "a/{device}/#b"]
)
def test_a_pattern_that_is_none_is_named(pattern):
    with pytest.raises(Misconfigured, match="topics"):
        Plain([TopicSettings(topic=pattern)])


def test_no_pattern_at_all_is_refused():
    with pytest.raises(Misconfigured, match="needs topics"):
        Plain([])
