"""Dead letters: messages of a device that cannot become its events. The gateway stores them as events of its own."""

import base64
import logging
import re

import msgspec

from fogline.documents.json_document import read_document
from fogline.errors import Poison
from fogline.events.event import Arrival, Lane
from fogline.events.identity import Retransmission
from fogline.process.log_throttle import LogThrottle

DEAD_CONTENT_TYPE = "application/vnd.fogline-dead+json"
DEAD_TYPE = "dead"

_log = logging.getLogger("fogline.dead_letters")
_log.addFilter(LogThrottle(variable=re.compile(r": of .*", re.DOTALL)))  # a device that repeats itself must not fill the disk


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """One refused message. `reason` is a short, stable word (see `Poison`); `detail` is one line for the user."""

    reason: str
    detail: str
    sender: str
    channel: str
    body_base64: str

    @property
    def body(self) -> bytes:
        """The bytes of the message, unchanged."""
        return base64.b64decode(self.body_base64)


def dead_letter(
    error: Poison, *, gateway: str, adapter: str, sender: str, channel: str, data: bytes, retransmission: Retransmission | None
) -> Arrival:
    """Return a refused message as an arrival of the gateway itself, and log it. `sender` and `channel` may hold any text."""
    _log.warning(
        "%s: a message becomes a dead letter (%s): of %s: %s",
        *(adapter, error.reason, ascii(sender)[:256], error),
        extra={"device": sender, "reason": error.reason},
    )
    letter = DeadLetter(
        reason=error.reason,
        detail=str(error),
        sender=ascii(sender)[:256],
        channel=ascii(channel)[:1024],
        body_base64=base64.b64encode(data).decode(),
    )
    return Arrival(
        device=gateway,
        channel="dead",
        lane=Lane.BULK,
        content_type=DEAD_CONTENT_TYPE,
        data=msgspec.json.encode(letter),
        adapter=adapter,
        type=DEAD_TYPE,
        retransmission=retransmission,
    )


def decode_dead_letter(body: bytes) -> DeadLetter:
    """Return the dead letter of an event's body. Raises `Poison('malformed')`."""
    return read_document(body, DeadLetter, "a dead letter")
