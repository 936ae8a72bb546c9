"""Paths to devices and lanes."""

import pytest

from fogline.errors import Misconfigured
from fogline.events.event import Lane
from fogline_edge.adapters.coap.paths import Paths, PathTarget, ResponsePath
from fogline_edge.adapters.coap.wire import Code, RequestRefused
from fogline_edge.settings import PathSettings

PATHS = Paths(
    "acme",
    [
        PathSettings(path="plant/{device}/#", lane=Lane.BULK, type="log"),
        PathSettings(path="/+/of/{device}", content_type="a/b"),
    ],
)
DEVICE = "4711"


def resolve(path):
    return PATHS.resolve(path.split("/"))


@pytest.mark.parametrize("path", ["telemetry/acme/4711", "telemetry//4711", "t/acme/4711", "t//4711"])
def test_telemetry_of_a_device(path):
    assert resolve(path) == PathTarget(DEVICE, path, Lane.TELEMETRY, "telemetry")


@pytest.mark.parametrize("path", ["event/acme/4711", "event//4711", "e/acme/4711", "e//4711"])
def test_an_event_of_a_device_is_an_alarm(path):
    assert resolve(path) == PathTarget(DEVICE, path, Lane.ALARM, "alarm")


def test_an_answer_to_a_command():
    assert resolve("command_response/acme/4711/CMD-1") == ResponsePath(DEVICE, "CMD-1")


def test_free_paths():
    assert resolve("plant/4711") == PathTarget(DEVICE, "plant/4711", Lane.BULK, "log", None)
    assert resolve("plant/4711/a/b").channel == "plant/4711/a/b"
    assert resolve("temperature/of/4711") == PathTarget(DEVICE, "temperature/of/4711", Lane.TELEMETRY, "telemetry", "a/b")


def test_a_name_in_utf_8_or_with_blanks_is_escaped():
    """G14."""
    assert resolve("t//Wohnzimmer Lampe").device == "Wohnzimmer:20Lampe"
    assert resolve("plant/Küche/x").device == "K:C3:BCche"
    assert resolve("command_response//Küche/CMD-1") == ResponsePath("K:C3:BCche", "CMD-1")


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("", Code.NOT_FOUND),
        ("nowhere", Code.NOT_FOUND),
        ("telemetry/", Code.NOT_FOUND),
        ("telemetry/acme", Code.NOT_FOUND),
        ("telemetry/acme/4711/more", Code.NOT_FOUND),
        (".well-known/core", Code.NOT_FOUND),
        ("plant", Code.NOT_FOUND),
        ("plant/4711/" + "x" * 1024, Code.NOT_FOUND),
        ("plant/4711/\n", Code.NOT_FOUND),
        ("telemetry", Code.UNAUTHORIZED),
        ("t", Code.UNAUTHORIZED),
        ("event", Code.UNAUTHORIZED),
        ("e", Code.UNAUTHORIZED),
        ("telemetry/other/4711", Code.FORBIDDEN),
        ("telemetry/o t/4711", Code.BAD_REQUEST),
        ("telemetry/acme/", Code.BAD_REQUEST),
        ("command_response/acme/4711/a b", Code.BAD_REQUEST),
        ("command_response/other/4711/CMD-1", Code.FORBIDDEN),
    ],
)
@pytest.mark.fault("D9")
def test_coap_path_without_a_meaning_is_refused(path, code):
    with pytest.raises(RequestRefused) as refused:
        resolve(path)
    assert refused.value.code == code


def test_a_segment_with_a_slash_is_not_two_segments():
    with pytest.raises(RequestRefused):
        PATHS.resolve(["plant", "4711/x"])


@pytest.mark.parametrize("path", ["", "plant/x", "{device}/{device}", "#/{device}", "a+/{device}", "a//{device}", "x{device}"])
def test_a_pattern_that_is_none_is_a_mistake_of_the_settings(path):
    with pytest.raises(Misconfigured, match=r"coap\.paths"):
        Paths("acme", [PathSettings(path=path)])
