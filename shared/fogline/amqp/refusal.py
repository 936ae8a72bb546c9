"""Tells a refusal from an outage, by the reason for the end of a connection or a link. Pure."""

from fogline.amqp.outcome import NOT_FOUND, UNAUTHORIZED
from fogline.amqp.sasl import BUSY
from fogline.amqp.security import BROKEN_OFF

_FOR_GOOD = (UNAUTHORIZED, NOT_FOUND)


def refusal_in(why: str) -> str:
    """Return the peer's words if it refuses this side, whose next attempt would end in the same way; else "".

    `why`: the text of the end of a connection, or of the condition of a link.
    """
    found = next((why.partition(name)[2] for name in _FOR_GOOD if name in why), None)
    if found is None or BROKEN_OFF in why or BUSY in why:
        return ""
    return found.removeprefix(":").strip() or why
