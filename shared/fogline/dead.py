"""Dead letters made at the gateway: what a device sent that can never be an event of that device.

It is stored, as an event of the gateway itself, so that it may be acknowledged and is never lost silently.
"""

import base64

import msgspec

from fogline.errors import Poison
from fogline.event import Arrival, Lane
from fogline.identity import Retransmission

DEAD_CONTENT_TYPE = "application/vnd.fogline-dead+json"
DEAD_TYPE = "dead"


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """What came, from whom, and why it was not taken. `reason` is a short, stable word."""

    reason: str
    detail: str
    sender: str
    channel: str
    body_base64: str

    @property
    def body(self) -> bytes:
        """The bytes as they came."""
        return base64.b64decode(self.body_base64)


def dead_letter(
    error: Poison, *, gateway: str, adapter: str, sender: str, channel: str, data: bytes, retransmission: Retransmission | None
) -> Arrival:
    """Wrap a refused message as an arrival of the gateway itself. `sender` and `channel` may hold anything."""
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
    """Raises `Poison('malformed')`."""
    try:
        return msgspec.json.decode(body, type=DeadLetter)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Poison("malformed", f"a dead letter is not readable: {error}") from None
