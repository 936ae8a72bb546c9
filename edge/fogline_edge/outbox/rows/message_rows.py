"""Messages of rules in the file: a note from the commit of the event until the message is published.

A note that is still there when the gateway starts is of a message that was published perhaps. It is not published again.
"""

import contextlib
import sqlite3
from typing import Final

import msgspec

from fogline_edge.outbox.file.queries import SQL
from fogline_edge.rules.message import MessageNote, RuleMessage

MESSAGE_KEY: Final = "rule-message/"
MAX_UNPUBLISHED = 1000
"""The most messages that wait to be published."""
_pack = msgspec.msgpack.Encoder().encode
_notes = msgspec.msgpack.Decoder(MessageNote)


def note_message(connection: sqlite3.Connection, message: RuleMessage) -> None:
    """Within a transaction: note a message that is to be published after the commit."""
    connection.execute(SQL["keep"], (message.key, _pack(message.note)))


def room_for_messages(connection: sqlite3.Connection) -> int:
    """Return how many more messages may wait."""
    return MAX_UNPUBLISHED - int(connection.execute(SQL["count_rule_messages"], (MAX_UNPUBLISHED,)).fetchone()[0])


def unpublished(connection: sqlite3.Connection) -> dict[str, MessageNote | None]:
    """Return the notes in the file by key; None for one that cannot be read."""
    found: dict[str, MessageNote | None] = {}
    for key, value in connection.execute(SQL["rule_messages"]):
        found[key] = None
        with contextlib.suppress(msgspec.MsgspecError):  # of another version: it is deleted
            found[key] = _notes.decode(value)
    return found
