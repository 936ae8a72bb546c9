"""The files of a new parser: a small distribution with an example that passes its own test."""

import re
from pathlib import Path
from string import Template

from fogline.errors import Misconfigured
from fogline_cloud.flows.parsers import GROUP, installed

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")

_PROJECT = """\
[project]
name = "$distribution"
version = "0.1.0"
description = "A Fogline parser for $name"
requires-python = ">=3.11"
dependencies = ["fogline-cloud"]

[project.entry-points."$group"]
$name = "$module:parse"

[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[tool.hatch.build.targets.wheel]
only-include = ["$module.py"]
"""

_PARSER = '''\
"""Parser `$name`: describe the format of your device here. The example has bodies of 3 bytes.

| bytes | value |
|---|---|
| 0 and 1 | temperature in 0.01 degrees Celsius, signed, most significant byte first |
| 2 | relative humidity in percent; 255: the sensor does not respond |
"""

from collections.abc import Iterator

from fogline.errors import Poison
from fogline.events.event import Event
from fogline_cloud.flows.parsers import Leftover, Reading, Skip

_NO_HUMIDITY = 255


def parse(event: Event) -> Iterator[Reading | Leftover]:
    """Parse one event. Raises `Skip` for an empty body, `Poison` for a body of another length."""
    if not event.data:
        raise Skip("no-values", "the device has no values yet")
    if len(event.data) != 3:
        raise Poison("malformed", f"a body of {len(event.data)} bytes; expected 3")
    yield Reading("temperature", int.from_bytes(event.data[:2], "big", signed=True) / 100, unit="Cel")
    if event.data[2] == _NO_HUMIDITY:
        yield Leftover("humidity", "the sensor does not respond")
    else:
        yield Reading("humidity", event.data[2], unit="%RH")
'''

_TEST = """\
from pathlib import Path

import msgspec
from fogline_cloud.parser_kit.sample_events import read_events
from fogline_cloud.parser_kit.trial import try_parser

from $module import parse

EVENTS = Path(__file__).with_name("events.jsonl")


def test_the_sample_events_have_the_expected_outcomes():
    results = try_parser(parse, read_events(EVENTS))
    values = [[(metric, value, unit) for _, metric, value, _, unit, _ in result.readings] for result in results]
    assert values == [[("temperature", 21.94, "Cel"), ("humidity", 40.0, "%RH")], [("temperature", -0.5, "Cel")], []]
    assert [result.outcome for result in results] == ["ok", "ok", "skip"]
    assert results[1].detail == "not understood: humidity (the sensor does not respond)"


def test_a_body_of_another_length_is_dead():
    event = msgspec.structs.replace(read_events(EVENTS)[0], data=b"?")
    (result,) = try_parser(parse, [event])
    assert (result.outcome, result.reason) == ("dead", "malformed")
"""

_EVENTS = """\
{"topic": "plant/oven/climate", "content_type": "application/octet-stream", "base64": "CJIo"}
{"topic": "plant/oven/climate", "content_type": "application/octet-stream", "base64": "/87/"}
{"topic": "plant/oven/climate", "content_type": "application/octet-stream", "body": ""}
"""


def write_skeleton(name: str, into: Path) -> Path:
    """Write the files into a new folder `into/name`. Returns the folder. Raises `Misconfigured`."""
    if not _NAME.fullmatch(name):
        raise Misconfigured(f"parser {name!r}: a name is words of a-z and 0-9 with hyphens between them, such as my-sensor")
    if name in installed():
        raise Misconfigured(f"a parser {name} is installed already: choose another name")
    folder = into / name
    words = {
        "name": name,
        "group": GROUP,
        "distribution": f"fogline-parser-{name}",
        "module": f"{name.replace('-', '_')}_parser",
    }
    files = {
        "pyproject.toml": _PROJECT,
        f"{words['module']}.py": _PARSER,
        f"test_{words['module']}.py": _TEST,
        "events.jsonl": _EVENTS,
    }
    try:
        folder.mkdir(parents=True)
        for file, text in files.items():
            (folder / file).write_text(Template(text).substitute(words))
    except FileExistsError:
        raise Misconfigured(f"{folder} exists already: remove it, or choose another name or folder") from None
    except OSError as error:
        raise Misconfigured(f"{folder} cannot be written: {error.strerror}") from None
    return folder
