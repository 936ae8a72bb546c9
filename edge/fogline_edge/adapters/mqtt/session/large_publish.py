"""PUBLISHes with a large body, of which the framing has the beginning only: pure."""

from collections.abc import Sequence

from fogline.dead_letter import DEAD_TYPE
from fogline_edge.adapters.mqtt.protocol.primitives import ProtocolError, Reason
from fogline_edge.adapters.mqtt.session.effects import Effect, Respond, Store, StoreBody


def in_pieces(effects: Sequence[Effect], rest: int) -> list[Effect]:
    """Return the effects of the beginning of a PUBLISH, of which `rest` bytes follow. Raises `ProtocolError`.

    The beginning of a message that is a dead letter is stored, as of any dead letter, and the rest is not needed.
    """
    if any(isinstance(each, Respond) for each in effects):
        raise ProtocolError("a response to a command is too large", Reason.PACKET_TOO_LARGE)
    return [
        StoreBody(each.arrival, each.pending, len(each.arrival.data) + rest)
        if isinstance(each, Store) and each.arrival.type != DEAD_TYPE
        else each
        for each in effects
    ]
