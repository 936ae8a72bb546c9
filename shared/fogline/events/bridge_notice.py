"""The notice: an event that a bridge itself adds to a shard. It has no stream and no sequence, and is not a measurement."""

import secrets

from fogline.events.event import Event, Lane, TimeQuality, rfc3339
from fogline.events.identity import semantic_id

NOTICE_CONTENT_TYPE = "application/vnd.fogline-notice"
NOTICE_DEVICE = "fogline-bridge"


def notice_event(text: str, *, tenant: str, now_ns: int) -> Event:
    """Return the notice with this text."""
    return Event(
        id=semantic_id(5, tenant, NOTICE_DEVICE, "notice", secrets.token_bytes(16)),
        tenant=tenant,
        device=NOTICE_DEVICE,
        type="notice",
        subject="notice",
        recordedtime=rfc3339(now_ns),
        content_type=NOTICE_CONTENT_TYPE,
        data=text.encode(),
        gateway="",
        stream="",
        sequence=0,
        lane=Lane.BULK,
        timequality=TimeQuality.SYNCED,
        dedup="weak",
        adapter="fogline",
    )
