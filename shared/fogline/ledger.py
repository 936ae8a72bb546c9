"""The counts that the gateway keeps per stream, in the transaction of what they count, and sends as events.

A *statement* is an event of the gateway itself (`device` = the gateway): the counts of its stream as they stood when
it was written, itself not counted. So at a statement with sequence n: `stored == n - 1`.
"""

import msgspec

from fogline.document import read_document

STATEMENT_CONTENT_TYPE = "application/vnd.fogline-ledger+json"


class Counts(msgspec.Struct, kw_only=True):
    """Per stream, since it was opened.

    `acknowledged`: arrivals answered with success (stored ones and recognised resends). `stored`: events given a
    sequence, statements and gap records included. `duplicate`: resends recognised at the device border. `dead`:
    arrivals stored as a dead letter. `sent`: events handed to the connection, resends included. `settled`: events
    that the bridge accepted. `quarantined`: events that the bridge refused for good. `filtered`: arrivals that were no
    news (see `fogline.report`); nobody waits for their being durable, so what came since the stream's last event may be
    forgotten when the gateway dies. `dropped`: sequences that were let go of for want of room, or because they expired; at
    most, since what was on its way then may have landed (the gap records say what has not).
    """

    acknowledged: int = 0
    stored: int = 0
    duplicate: int = 0
    dead: int = 0
    sent: int = 0
    settled: int = 0
    quarantined: int = 0
    filtered: int = 0
    dropped: int = 0


class Statement(msgspec.Struct, frozen=True, omit_defaults=True):
    """One gateway's word on one stream at one moment. `closed`: the last one, nothing comes after it."""

    stream: str
    lane: str
    counts: Counts
    closed: bool = False


def encode_statement(statement: Statement) -> bytes:
    """A statement as the JSON body of its event."""
    return msgspec.json.encode(statement)


def decode_statement(body: bytes) -> Statement:
    """The inverse of `encode_statement`. Raises `Poison('malformed')`."""
    return read_document(body, Statement, "a ledger statement")
