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

import base64
import binascii
import codecs
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from fogline.documents.document_error import explained
from fogline.errors import Misconfigured
from fogline.events.event import Arrival, Lane, parse_rfc3339
from fogline_edge.rule_trial.trial import TrialEvent

_SECOND_NS = 1_000_000_000
_START = "2026-01-01T00:00:00Z"


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    topic: str | None = None
    subject: str | None = None
    content_type: str = "application/octet-stream"
    body: str | None = None
    base64: str | None = None
    device: str = "device-1"
    type: str = "telemetry"
    adapter: str = "mqtt"
    lane: Lane = Lane.TELEMETRY
    gateway: str = ""
    time: str | None = None
    recordedtime: str | None = None
    properties: str | None = None
    clock_right: bool = True
    expect: dict[str, str] = {}


class ExpectedEvent(NamedTuple):
    """An event with the outcomes that are expected. `where`: its file and line."""

    where: str
    event: TrialEvent
    expect: dict[str, str]


_decoder = msgspec.json.Decoder(_Line)


def read_expected(path: Path) -> Iterator[ExpectedEvent]:
    """Yield the events of a file. Raises `Misconfigured`, which names the line."""
    try:
        lines = path.read_bytes().removeprefix(codecs.BOM_UTF8).splitlines()
    except OSError as error:
        raise Misconfigured(f"{path}: {error.strerror}") from None
    at_ns = parse_rfc3339(_START) - _SECOND_NS
    for number, line in enumerate(lines, 1):
        if line.strip():
            expected = _expected(f"{path}:{number}", line, at_ns + _SECOND_NS)
            at_ns = expected.event.at_ns
            yield expected


def _expected(where: str, line: bytes, next_ns: int) -> ExpectedEvent:
    try:
        given = _decoder.decode(line)
        at_ns = parse_rfc3339(given.recordedtime) if given.recordedtime is not None else next_ns
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as error:
        raise Misconfigured(f"{where}: {explained(error, _Line)}") from None
    arrival = Arrival(
        device=given.device,
        channel=given.topic or given.subject or "",
        lane=given.lane,
        content_type=given.content_type,
        data=_body(where, given),
        adapter=given.adapter,
        type=given.type,
        properties=given.properties,
    )
    return ExpectedEvent(where, TrialEvent(arrival, at_ns, given.clock_right), given.expect)


def _body(where: str, given: _Line) -> bytes:
    if (given.body is None) == (given.base64 is None):
        raise Misconfigured(f"{where}: give the body either as body (text) or as base64")
    if given.body is not None:
        return given.body.encode()
    try:
        return base64.b64decode(given.base64 or "", validate=True)
    except binascii.Error as error:
        raise Misconfigured(f"{where}: base64: {error}") from None
