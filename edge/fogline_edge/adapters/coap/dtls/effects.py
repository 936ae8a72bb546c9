"""Effects of the server: what the transport performs. Values."""

from typing import NamedTuple

from fogline_edge.adapters.coap.dtls.session import SessionEndpoint
from fogline_edge.adapters.coap.wire import Endpoint


class SendDatagram(NamedTuple):
    """A datagram to send."""

    data: bytes
    address: Endpoint


class SessionContent(NamedTuple):
    """Content that a client has sent in its session."""

    data: bytes
    endpoint: SessionEndpoint


class SessionEnded(NamedTuple):
    """A session has ended: nothing reaches its client there any more."""

    endpoint: SessionEndpoint


class Refusal(NamedTuple):
    """Input that was refused: one line for the log."""

    reason: str
    address: Endpoint
    what: str


Effect = SendDatagram | SessionContent | SessionEnded | Refusal
