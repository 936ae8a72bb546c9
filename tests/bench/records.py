"""The events that go through bridge and flow: what a gateway makes of `payload.payloads`; ten devices a gateway."""

import zlib

from payload import payloads

from fogline.events.event import Event, Lane, TimeQuality, rfc3339
from fogline.events.identity import sequence_id
from fogline_edge.settings import UplinkSettings

BATCH = UplinkSettings().batch_events
GROUP = 256
"""Events that a gateway commits at once."""
DEVICES = 10
_BEGAN_NS = 1_790_000_000_000_000_000


def stream_of(number: int) -> str:
    """The stream of a gateway."""
    return f"{number + 1:016x}"


def tag_of(sequence: int) -> str:
    """Digits that are the same for one group and differ between them."""
    return f"{zlib.crc32(b'%d' % (sequence // GROUP)):08x}"


def events_of(tenant: str, gateway: str, number: int, events: int) -> list[Event]:
    """Telemetry of one gateway, as it stores it when it is busy: full groups."""
    stream = stream_of(number)
    return [
        Event(
            id=sequence_id(stream, sequence, tag_of(sequence)),
            tenant=tenant,
            device=device,
            type="telemetry",
            subject="telemetry",
            recordedtime=rfc3339(_BEGAN_NS + sequence // GROUP * 10_000_000),
            content_type="application/json",
            data=data,
            gateway=gateway,
            stream=stream,
            sequence=sequence,
            lane=Lane.TELEMETRY,
            timequality=TimeQuality.SYNCED,
            dedup="weak",
            adapter="mqtt",
        )
        for sequence, data in enumerate(payloads(number, events), 1)
        for device in (f"{gateway}-{sequence % DEVICES}",)
    ]
