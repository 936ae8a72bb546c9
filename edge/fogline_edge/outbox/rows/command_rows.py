"""New commands in the journal, and how many may be open for rules to give more."""

import sqlite3

from fogline.commands.command import Command, CommandState
from fogline_edge.outbox.file.queries import SQL

MAX_OPEN = 1000
MAX_OPEN_A_DEVICE = 50
"""Open commands, in all and for one device, from which rules give no more: they leave room for operators."""


def insert_command(connection: sqlite3.Connection, command: Command, content: bytes, state: CommandState, age_s: int) -> None:
    """Within a transaction: insert a command that the journal does not have. `content`: the digest of the command."""
    body = (command.id, command.device, command.name, command.content_type, command.data)
    traits = (command.reply, command.durable, command.idempotent, command.correlation)
    deadline = (command.deadline.boot_id, command.deadline.boottime_ms)
    connection.execute(SQL["insert_command"], (*body, *traits, *deadline, content, state.value, age_s))


def is_room(connection: sqlite3.Connection, device: str) -> bool:
    """Return True if a rule may give one more command to a device."""
    (open_, of_device) = connection.execute(SQL["count_open_commands"], (device,)).fetchone()
    return bool(open_ < MAX_OPEN and of_device < MAX_OPEN_A_DEVICE)
