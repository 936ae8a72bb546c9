"""The outcome of a delivery (AMQP 1.0 part 3, section 3.4), always set explicitly."""

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """What became of a delivery. `UNKNOWN`: it was settled without an outcome, or the connection ended first."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    RELEASED = "released"
    MODIFIED = "modified"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Outcome:
    """`condition` and `description` are the error of a rejected delivery."""

    state: State
    condition: str = ""
    description: str = ""

    def __str__(self) -> str:
        return " ".join(part for part in (self.state, self.condition, self.description) if part)


ACCEPTED = Outcome(State.ACCEPTED)
RELEASED = Outcome(State.RELEASED)
MODIFIED = Outcome(State.MODIFIED)
UNKNOWN = Outcome(State.UNKNOWN)


def rejected(condition: str, description: str) -> Outcome:
    """Refused for good."""
    return Outcome(State.REJECTED, condition, description)


@dataclass(frozen=True, slots=True)
class Condition:
    """Why a link or a connection was closed (AMQP 1.0 part 2, section 2.8.14)."""

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
RESOURCE_LIMIT = "amqp:resource-limit-exceeded"
LINK_STOLEN = "amqp:link:stolen"
MESSAGE_SIZE_EXCEEDED = "amqp:link:message-size-exceeded"
TRANSFER_LIMIT = "amqp:link:transfer-limit-exceeded"
REDIRECT = "amqp:connection:redirect"
FORCED = "amqp:connection:forced"
UNKNOWN_STREAM = "fogline:unknown-stream"
CLOSED_STREAM = "fogline:closed-stream"
