"""The status of a refusal, for every client: HTTP, the Python client and `fogline command`. Pure.

The bridge decides, and its text says why. AMQP has a condition for it; this is the one place that gives each a status.
"""

from fogline.amqp.outcome import (
    DECODE_ERROR,
    INTERNAL_ERROR,
    INVALID_FIELD,
    MESSAGE_SIZE_EXCEEDED,
    NOT_ALLOWED,
    NOT_FOUND,
    PRECONDITION_FAILED,
    RESOURCE_LIMIT,
    UNAUTHORIZED,
    Outcome,
)
from fogline.commands.cancel import TOO_LATE
from fogline.commands.command import CONFLICT, EXPIRED, Status

NOT_CONNECTED = "the device is not connected"
"""Why a direct command was released."""
_STATUS = {
    DECODE_ERROR: 400,
    INVALID_FIELD: int(Status.UNDELIVERABLE),
    NOT_ALLOWED: 400,
    UNAUTHORIZED: int(Status.FORBIDDEN),
    MESSAGE_SIZE_EXCEEDED: 413,
    NOT_FOUND: int(Status.UNKNOWN_DEVICE),
    PRECONDITION_FAILED: 412,
    RESOURCE_LIMIT: int(Status.QUOTA),
    CONFLICT: int(Status.CONFLICT),
    TOO_LATE: int(Status.CONFLICT),
    EXPIRED: int(Status.EXPIRED),
    INTERNAL_ERROR: 500,
}


def status_of(outcome: Outcome) -> int:
    """Return the status of a rejected message."""
    return _STATUS.get(outcome.condition, int(Status.UNDELIVERABLE))
