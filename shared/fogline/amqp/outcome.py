"""The outcome of a delivery (AMQP 1.0 part 3, section 3.4), always set explicitly."""

from enum import StrEnum

import msgspec


class DeliveryState(StrEnum):
    """The state of a settled delivery. `UNKNOWN`: settled without an outcome, or the connection ended first."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    RELEASED = "released"
    MODIFIED = "modified"
    UNKNOWN = "unknown"


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of a delivery. `condition` and `description` are the error of a rejected one."""

    state: DeliveryState
    condition: str = ""
    description: str = ""

    def __str__(self) -> str:
        return " ".join(part for part in (self.state, self.condition, self.description) if part)


ACCEPTED = Outcome(DeliveryState.ACCEPTED)
RELEASED = Outcome(DeliveryState.RELEASED)
MODIFIED = Outcome(DeliveryState.MODIFIED)
UNKNOWN = Outcome(DeliveryState.UNKNOWN)


def rejected(condition: str, description: str) -> Outcome:
    """Return the outcome of a delivery that is refused for good."""
    return Outcome(DeliveryState.REJECTED, condition, description)


class Condition(msgspec.Struct, frozen=True):
    """The error with which a link or a connection was closed (AMQP 1.0 part 2, section 2.8.14)."""

    name: str
    description: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.description}" if self.description else self.name


INTERNAL_ERROR = "amqp:internal-error"
NOT_FOUND = "amqp:not-found"
UNAUTHORIZED = "amqp:unauthorized-access"
DECODE_ERROR = "amqp:decode-error"
INVALID_FIELD = "amqp:invalid-field"
NOT_ALLOWED = "amqp:not-allowed"
NOT_IMPLEMENTED = "amqp:not-implemented"
PRECONDITION_FAILED = "amqp:precondition-failed"
RESOURCE_LIMIT = "amqp:resource-limit-exceeded"
DETACH_FORCED = "amqp:link:detach-forced"
LINK_STOLEN = "amqp:link:stolen"
MESSAGE_SIZE_EXCEEDED = "amqp:link:message-size-exceeded"
TRANSFER_LIMIT = "amqp:link:transfer-limit-exceeded"
FORCED = "amqp:connection:forced"
UNKNOWN_STREAM = "fogline:unknown-stream"
CLOSED_STREAM = "fogline:closed-stream"
