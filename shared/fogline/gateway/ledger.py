"""The counts of a stream, which the gateway writes in the transaction of the counted events, and sends as events.

A *statement* is a gateway's event with the counts of its stream before it. One with sequence n has `stored == n - 1`.
"""

import msgspec

from fogline.documents.json_document import read_document

STATEMENT_CONTENT_TYPE = "application/vnd.fogline-ledger+json"


class Counts(msgspec.Struct, kw_only=True):
    """Counts of one stream since it was opened; `fogline.process.monitoring.metrics` has their meanings."""

    acknowledged: int = 0  # with retransmissions
    stored: int = 0  # with statements and gap records
    duplicate: int = 0
    dead: int = 0
    sent: int = 0
    settled: int = 0
    quarantined: int = 0
    filtered: int = 0  # counted in memory: the gateway's death may lose those since the last event
    dropped: int = 0  # an upper limit: gap records name those that did not land


class Statement(msgspec.Struct, frozen=True, omit_defaults=True):
    """The counts of one stream at one moment. `closed`: the last statement of the stream.

    `heads`: the highest stored sequence of each stream of the outbox that is open, or not accepted whole. When all of them have
    arrived, everything has arrived that the gateway stored before the statement.
    """

    stream: str
    lane: str
    counts: Counts
    closed: bool = False
    heads: dict[str, int] = msgspec.field(default_factory=dict)


def encode_statement(statement: Statement) -> bytes:
    """Return the JSON body of a statement's event."""
    return msgspec.json.encode(statement)


def decode_statement(body: bytes) -> Statement:
    """Return the statement of an event's body. Raises `Poison('malformed')`."""
    return read_document(body, Statement, "a ledger statement")
