"""Effects: the IO that the pure state machine asks the server to perform."""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from fogline.commands.command import Deadline
from fogline.events.event import Arrival
from fogline_edge.adapters.mqtt.hono.intake import ClientKey
from fogline_edge.adapters.mqtt.hono.local_events import LocalMessage
from fogline_edge.adapters.mqtt.hono.responses import MqttResponse
from fogline_edge.adapters.mqtt.session.ack_order import PendingAck


class CloseReason(StrEnum):
    """The reason for the end of a connection, and the name of its counter."""

    LEFT = "left"
    LOST = "lost"
    MALFORMED = "malformed"
    REFUSED = "refused"
    TAKEN_OVER = "taken_over"
    TIMED_OUT = "timed_out"
    SLOW_READER = "slow_reader"
    STALLED_COMMAND = "stalled_command"
    OVER_LIMIT = "over_limit"
    SHUT_DOWN = "shut_down"


class DeliveryResult(StrEnum):
    """The result of a command's delivery, as `CommandPort` reports it, and the name of its counter."""

    TAKEN = "taken"
    NOT_SENT = "not_sent"
    LOST = "lost"
    REFUSED = "refused"


class Send(NamedTuple):
    """Write these bytes to the client. `deadline`: of the command that they let the device begin, `None` for other bytes."""

    data: bytes
    deadline: Deadline | None = None


class Store(NamedTuple):
    """Put this arrival, and call `AckOrder.committed(pending)` when it is durable."""

    arrival: Arrival
    pending: PendingAck


class StoreBody(NamedTuple):
    """Store this arrival as `Store`, with a large body of `size` bytes that begins with its data and comes in pieces."""

    arrival: Arrival
    pending: PendingAck
    size: int


class Respond(NamedTuple):
    """Give a command response to the journal, and call `AckOrder.committed(pending)` when it is durable."""

    response: MqttResponse
    pending: PendingAck


class Verify(NamedTuple):
    """Check this password, read no packet meanwhile, then call `ClientProtocol.verified`."""

    name: str
    password: bytes


class ClientAccepted(NamedTuple):
    """Register the client and end its former connection. `resumed`: the session continues."""

    key: ClientKey
    resumed: bool


class Close(NamedTuple):
    """Write `data`, then end the connection. `detail` is for the log."""

    data: bytes
    reason: CloseReason
    detail: str


class Abort(NamedTuple):
    """End the connection at once, and discard the bytes that the client's TCP has not got. `detail` is for the log."""

    reason: CloseReason
    detail: str


class Forget(NamedTuple):
    """Durably free a packet id of a retransmission slot, then perform `then` if the connection is still open."""

    slot: bytes
    packet_id: int
    then: "Continuation"


class Keep(NamedTuple):
    """Durably keep a value (`None`: delete it), then perform `then` if the connection is still open."""

    key: str
    value: bytes | None
    then: "Continuation | None" = None


class ReportDelivery(NamedTuple):
    """Report the result of a command's delivery. `detail` is for the operator."""

    result: DeliveryResult
    command_id: str
    detail: str = ""


class SetReachable(NamedTuple):
    """Report that the client accepts commands for `device` from now on, or no longer."""

    device: str
    reachable: bool


class ListenMode(StrEnum):
    """Whether a subscriber gets events: `ON` over its connection, `AWAY` into its session, or `OFF` none."""

    ON = "on"
    AWAY = "away"
    OFF = "off"


class EventListener(Protocol):
    """The session of a subscriber, as the feed of events sees it. `discarded`: events that it has discarded."""

    key: ClientKey

    @property
    def discarded(self) -> int:
        """Number of events that were discarded because the subscriber was too slow for them."""

    def deliver(self, message: LocalMessage) -> "Sequence[Effect]":
        """Send or queue a message if a subscription matches its topic."""


class Listen(NamedTuple):
    """Give the events to `session` from now on, in this way."""

    session: EventListener
    mode: ListenMode


Effect = (
    Send
    | Store
    | StoreBody
    | Respond
    | Verify
    | ClientAccepted
    | Close
    | Abort
    | Forget
    | Keep
    | ReportDelivery
    | SetReachable
    | Listen
)
Continuation = Callable[[], Sequence[Effect]]
"""The next step of the state machine, after a commit."""


class LastWill(NamedTuple):
    """A will to put after `delay_s`, unless the session is opened again before. `cost`: its share of the `WillBudget`."""

    arrival: Arrival
    delay_s: float
    cost: int = 0


class Ended(NamedTuple):
    """The will to publish and the effects to perform after the end of a connection."""

    will: LastWill | None = None
    effects: Sequence[Effect] = ()
