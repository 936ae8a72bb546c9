r"""Events for a trial of the rules: from a file, or from the outbox.

A file has one JSON object in each line. It may be one for `fogline parser test`, and `expect` is for rules alone:

    {"topic": "hall/east", "device": "hall-east", "body": "{\"temperature\": 27}", "expect": {"fan-on": "fired"}}

| key | meaning |
|---|---|
| `topic` or `subject` | the channel of the device: MQTT topic, CoAP or HTTP path, or Bluetooth characteristic |
| `content_type` | default: `application/octet-stream` |
| `body` or `base64` | the body, as text or in base64 |
| `device`, `type`, `adapter`, `lane` | default: `device-1`, `telemetry`, `mqtt`, `telemetry` |
| `recordedtime` | RFC 3339; default: a second after the event before it, the first at 2026-01-01T00:00:00Z |
| `clock_right` | `false`: the gateway's clock is not known to be right; default: `true` |
| `expect` | outcomes by rule; `quiet`: the rule does nothing. Rules that are not named are not checked |
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from fogline.errors import Misconfigured
from fogline.events.event import Arrival, Lane, parse_rfc3339
from fogline.events.large_body import MAX_INLINE_BYTES
from fogline.events.sample_line import SampleLine, read_lines
from fogline_edge.rule_trial.trial import TrialEvent

_SECOND_NS = 1_000_000_000
_START = "2026-01-01T00:00:00Z"


class _Line(SampleLine, forbid_unknown_fields=True):
    lane: Lane = Lane.TELEMETRY
    clock_right: bool = True
    expect: dict[str, str] = msgspec.field(default_factory=dict)


class ExpectedEvent(NamedTuple):
    """An event with the outcomes that are expected. `where`: its file and line."""

    where: str
    event: TrialEvent
    expect: dict[str, str]


def read_expected(path: Path) -> Iterator[ExpectedEvent]:
    """Yield the events of a file. Raises `Misconfigured`, which names the line."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise Misconfigured(f"{path}: {error.strerror}") from None
    at_ns = parse_rfc3339(_START) - _SECOND_NS
    for where, given in read_lines(str(path), content, _Line):
        at_ns = parse_rfc3339(given.recordedtime) if given.recordedtime is not None else at_ns + _SECOND_NS
        if len(given.data) > MAX_INLINE_BYTES:
            raise Misconfigured(f"{where}: no rule reads a body of more than {MAX_INLINE_BYTES:,} bytes (docs/large-bodies.md)")
        arrival = Arrival(
            device=given.device,
            channel=given.channel,
            lane=given.lane,
            content_type=given.content_type,
            data=given.data,
            adapter=given.adapter,
            type=given.type,
            properties=given.properties,
        )
        yield ExpectedEvent(where, TrialEvent(arrival, at_ns, given.clock_right), given.expect)
