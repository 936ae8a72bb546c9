"""Topics to devices and lanes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fogline.errors import Misconfigured, Poison
from fogline.events.event import Lane
from fogline_edge.adapters.mqtt.hono.topics import MAX_TOPIC, Topics, TopicTarget
from fogline_edge.broker_settings import TopicSettings


def topics(*patterns, **more):
    return Topics("acme", [TopicSettings(topic=each, **more) for each in patterns])


@pytest.mark.parametrize(
    ("topic", "target"),
    [
        ("telemetry", TopicTarget(None, "telemetry", Lane.TELEMETRY, "telemetry", None)),
        ("t", TopicTarget(None, "t", Lane.TELEMETRY, "telemetry", None)),
        ("event", TopicTarget(None, "event", Lane.ALARM, "alarm", None)),
        ("e", TopicTarget(None, "e", Lane.ALARM, "alarm", None)),
        ("telemetry/acme/d1", TopicTarget("d1", "telemetry/acme/d1", Lane.TELEMETRY, "telemetry", None)),
        ("t//d1", TopicTarget("d1", "t//d1", Lane.TELEMETRY, "telemetry", None)),
        ("e/acme/a:b.c-d_1", TopicTarget("a:b.c-d_1", "e/acme/a:b.c-d_1", Lane.ALARM, "alarm", None)),
        ("t/?content-type=text%2Fplain", TopicTarget(None, "t", Lane.TELEMETRY, "telemetry", "text/plain")),
        ("e//d1/?x=1&content-type=a%2Fb&y=", TopicTarget("d1", "e//d1", Lane.ALARM, "alarm", "a/b", "x=1&y=")),
        ("event/?hono-ttl=10", TopicTarget(None, "event", Lane.ALARM, "alarm", None, "hono-ttl=10")),
        ("t/?%zz&&==", TopicTarget(None, "t", Lane.TELEMETRY, "telemetry", None, "%25zz=&=%3D")),
    ],
)
def test_hono_topics(topic, target):
    assert topics().resolve(topic) == target


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        ("telemetry/other/d1", "foreign-tenant"),
        ("t/acme/", "bad-identifier"),
        ("telemetry/acme", "bad-topic"),
        ("telemetry/acme/d1/more", "bad-topic"),
        ("telemetri", "bad-topic"),
        ("/telemetry", "bad-topic"),
        ("", "bad-topic"),
        ("t//d\x07", "bad-topic"),
        ("t/\N{ZERO WIDTH SPACE}/d", "bad-topic"),
        ("x" * 10_240, "bad-topic"),
    ],
)
@pytest.mark.fault("D9")
def test_topics_that_the_gateway_does_not_serve(topic, reason):
    with pytest.raises(Poison) as caught:
        topics().resolve(topic)
    assert caught.value.reason == reason
    assert len(str(caught.value)) < 300
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("pattern", "topic", "device"),
    [
        ("plant/{device}/#", "plant/d1/temp/c", "d1"),
        ("plant/{device}/#", "plant/d1", "d1"),
        ("plant/{device}/#", "plant/d1/", "d1"),
        ("{device}/up", "d1/up", "d1"),
        ("a/+/{device}", "a//d1", "d1"),
        ("a/+/{device}", "a/x y/d1", "d1"),
        ("zigbee2mqtt/#", "zigbee2mqtt/lamp", None),
        ("#", "anything/at/all", None),
        ("a.b/{device}", "a.b/d1", "d1"),
        ("$SYS/{device}", "$SYS/d1", "d1"),
    ],
)
def test_patterns_of_the_settings(pattern, topic, device):
    target = topics(pattern, lane=Lane.BULK, type="image", content_type="image/png").resolve(topic)
    assert target == TopicTarget(device, topic, Lane.BULK, "image", "image/png")


@pytest.mark.parametrize(
    ("pattern", "topic", "reason"),
    [
        ("plant/{device}/#", "plant", "bad-topic"),
        ("plant/{device}", "plant/d1/x", "bad-topic"),
        ("a.b/{device}", "axb/d1", "bad-topic"),
        ("#", "$SYS/broker", "bad-topic"),
        ("+/x", "$SYS/x", "bad-topic"),
    ],
)
def test_topics_that_a_pattern_does_not_match(pattern, topic, reason):
    with pytest.raises(Poison) as caught:
        topics(pattern).resolve(topic)
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("Wohnzimmer Lampe", "Wohnzimmer:20Lampe"),
        ("Küche", "K:C3:BCche"),
        ("\N{CYRILLIC SMALL LETTER A}", ":D0:B0"),
        ("d$1", "d:241"),
        ("A4:C1:38:8D:18:B2", "A4:C1:38:8D:18:B2"),
    ],
)
@pytest.mark.fault("D9")
def test_a_name_in_utf_8_or_with_blanks_is_escaped(name, device):
    """G14: no two names look alike once they are escaped."""
    for topic in (f"t//{name}", f"plant/{name}"):
        target = topics("plant/{device}").resolve(topic)
        assert (target.device, target.channel) == (device, topic)


def test_the_first_pattern_that_matches_decides():
    both = Topics("acme", [TopicSettings(topic="a/#", type="first"), TopicSettings(topic="a/b", type="second")])
    assert both.resolve("a/b").type == "first"


def test_a_pattern_does_not_take_honos_words_away():
    assert topics("{device}/#").resolve("telemetry/acme/d1").device == "d1"
    assert topics("{device}/#").resolve("telemetry").device is None


@pytest.mark.parametrize("pattern", ["", "a/#/b", "a#", "+a", "{device}/{device}", "x{device}+", "a/b#/c"])
def test_a_pattern_that_is_none_is_said(pattern):
    with pytest.raises(Misconfigured, match="topic ="):
        topics(pattern)


@given(st.text(max_size=40))
@pytest.mark.fault("D9")
def test_any_topic_resolves_or_is_poison(topic):
    mapped = topics("plant/{device}/#", "+/x")
    try:
        first = mapped.resolve(topic)
    except Poison:
        return
    assert mapped.resolve(topic) == first
    assert len(first.channel) <= MAX_TOPIC
