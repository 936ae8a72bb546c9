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

from pathlib import Path

from fogline.errors import Misconfigured
from fogline.events.event import Event, Lane, TimeQuality
from fogline.events.sample_line import SampleLine, read_lines

_RECORDED = "2026-01-01T00:00:00Z"


def read_events(path: Path) -> list[Event]:
    """Read the events of a file. Raises `Misconfigured`, which names the line."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise Misconfigured(f"{path}: {error.strerror}") from None
    events = [_event(where, given) for where, given in read_lines(str(path), content, SampleLine)]
    if not events:
        raise Misconfigured(f"{path}: there is no event in this file")
    return events


def _event(where: str, given: SampleLine) -> Event:
    return Event(
        id=f"line-{where.rpartition(':')[2]}",
        tenant="test",
        device=given.device,
        type=given.type,
        subject=given.channel,
        recordedtime=given.recordedtime or _RECORDED,
        content_type=given.content_type,
        data=given.data,
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
