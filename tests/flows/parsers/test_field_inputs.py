"""Bodies of real devices, and what a user expects of them: `inputs/field.jsonl` and `inputs/field-expected.jsonl`."""

import json
from pathlib import Path

import pytest

from fogline_cloud.flows.parsers import installed, parser_name
from fogline_cloud.flows.sandbox.parser_runner import ParserRunner
from fogline_cloud.flows.sandbox.time_limit import TimeLimit
from fogline_cloud.parser_kit.sample_events import read_events

INPUTS = Path(__file__).parent / "inputs"
EVENTS = read_events(INPUTS / "field.jsonl")
EXPECTED = [json.loads(line) for line in (INPUTS / "field-expected.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("event", "expected"), list(zip(EVENTS, EXPECTED, strict=True)), ids=[each["topic"] for each in EXPECTED]
)
def test_body_from_the_field_gives_its_intended_readings(event, expected):
    assert event.subject == expected["topic"]
    name = parser_name(event.content_type, {})
    with TimeLimit(10) as limit:
        result = ParserRunner(installed(), limit).run(name, event)
    assert result.outcome.value == expected["outcome"]
    assert {metric: value for _, metric, value, *_ in result.readings} == expected["values"]
