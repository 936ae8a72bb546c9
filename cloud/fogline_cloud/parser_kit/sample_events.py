"""A file with events for the test of a parser: one JSON object in each line.

    {"topic": "plant/oven/climate", "content_type": "application/octet-stream", "base64": "CJIo"}
    {"topic": "plant/oven/door", "content_type": "text/plain", "body": "open", "device": "oven"}

| key | meaning |
|---|---|
| `topic` or `subject` | the channel of the device: MQTT topic, CoAP or HTTP path, or Bluetooth characteristic |
| `content_type` | default: `application/octet-stream` |
| `body` or `base64` | the body, as text or in base64 |
| `device`, `type`, `adapter` | default: `device-1`, `telemetry`, `mqtt` |
| `gateway` | default: none, as of an AMQP client |
| `time`, `recordedtime` | RFC 3339; default: none, 2026-01-01T00:00:00Z |
| `properties` | URL query, for example the user properties of MQTT 5: `firmware=1.2` |
"""

import base64
import binascii
import codecs
from pathlib import Path

import msgspec

from fogline.documents.document_error import explained
from fogline.errors import Misconfigured
from fogline.events.event import Event, Lane, TimeQuality, parse_rfc3339


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    topic: str | None = None
    subject: str | None = None
    content_type: str = "application/octet-stream"
    body: str | None = None
    base64: str | None = None
    device: str = "device-1"
    type: str = "telemetry"
    adapter: str = "mqtt"
    gateway: str = ""
    time: str | None = None
    recordedtime: str = "2026-01-01T00:00:00Z"
    properties: str | None = None


_decoder = msgspec.json.Decoder(_Line)


def read_events(path: Path) -> list[Event]:
    """Read the events of a file. Raises `Misconfigured`, which names the line."""
    try:
        lines = path.read_bytes().removeprefix(codecs.BOM_UTF8).splitlines()
    except OSError as error:
        raise Misconfigured(f"{path}: {error.strerror}") from None
    events = [_event(f"{path}:{number}", number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not events:
        raise Misconfigured(f"{path}: there is no event in this file")
    return events


def _event(where: str, number: int, line: bytes) -> Event:
    try:
        given = _decoder.decode(line)
        for time in filter(None, (given.time, given.recordedtime)):
            parse_rfc3339(time)
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as error:
        raise Misconfigured(f"{where}: {explained(error, _Line)}") from None
    if given.topic is not None and given.subject is not None:
        raise Misconfigured(f"{where}: give topic or subject, they are the same")
    return Event(
        id=f"line-{number}",
        tenant="test",
        device=given.device,
        type=given.type,
        subject=given.topic or given.subject or "",
        recordedtime=given.recordedtime,
        content_type=given.content_type,
        data=_body(where, given),
        gateway=given.gateway,
        stream="",
        sequence=0,
        lane=Lane.TELEMETRY,
        timequality=TimeQuality.SYNCED,
        dedup="weak",
        adapter=given.adapter,
        time=given.time,
        properties=given.properties,
    )


def _body(where: str, given: _Line) -> bytes:
    if (given.body is None) == (given.base64 is None):
        raise Misconfigured(f"{where}: give the body either as body (text) or as base64")
    if given.body is not None:
        return given.body.encode()
    try:
        return base64.b64decode(given.base64 or "", validate=True)
    except binascii.Error as error:
        raise Misconfigured(f"{where}: base64: {error}") from None
