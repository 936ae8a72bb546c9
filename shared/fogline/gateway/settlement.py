"""Outcomes of signed messages, which their receiver signs itself: what a router or a broker answers proves nothing. Pure.

The receiver of a numbered message (`fogline.gateway.signed_session`) sends its outcome back in `SignedOutcomes`, with others.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from fogline.amqp.outcome import DeliveryState, Outcome
from fogline.documents.json_document import read_document
from fogline.events.event import Lane
from fogline.message import Message

SETTLEMENT_CONTENT_TYPE = "application/vnd.fogline-settlement+json"
LANE_CREDIT = 16
"""Batches of a lane that may be in flight, unless the bridge allows fewer for a while."""
BEACON_S = 20.0
"""Interval at which a gateway sends a settlement, be it empty, and gets one."""
SILENCE_S = 60.0
"""A peer of which no signed message has come for so long is gone."""
MAX_OUTCOMES = 1000
"""Limit of the outcomes in one message."""

Text = Annotated[str, Meta(max_length=1024)]


class NumberedOutcome(msgspec.Struct, frozen=True, array_like=True):
    """The outcome of the message with a number."""

    number: Annotated[int, Meta(ge=1, le=2**63 - 1)]
    state: DeliveryState
    condition: Text = ""
    description: Text = ""

    @property
    def outcome(self) -> Outcome:
        """The outcome."""
        return Outcome(self.state, self.condition, self.description)


class SignedOutcomes(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Outcomes of one side. `closed`: why this side has ended the connection, "" if it has not.

    `windows`: of a bridge: how many batches of a lane may be in flight; `LANE_CREDIT` for a lane that is not there.
    """

    outcomes: Annotated[list[NumberedOutcome], Meta(max_length=MAX_OUTCOMES)] = msgspec.field(default_factory=list)
    windows: dict[Lane, Annotated[int, Meta(ge=0, le=LANE_CREDIT)]] = msgspec.field(default_factory=dict)
    closed: Text = ""


def numbered(number: int, outcome: Outcome) -> NumberedOutcome:
    """Return an outcome with the number of its message, and its texts cut to their limits."""
    return NumberedOutcome(number, outcome.state, outcome.condition[:1024], outcome.description[:1024])


def encode_settlement(settlement: SignedOutcomes) -> Message:
    """Return the message."""
    return Message(body=msgspec.json.encode(settlement), content_type=SETTLEMENT_CONTENT_TYPE)


def decode_settlement(message: Message) -> SignedOutcomes:
    """Return the settlement of a message. Raises `Poison('malformed')`."""
    return read_document(message.body, SignedOutcomes, "a settlement")
