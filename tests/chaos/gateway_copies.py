"""The journal of `command_world` as a file: its unsettled replies, its memory, backups of it, and empty cards."""

import sqlite3

from fogline.commands.command import CommandState
from fogline_edge.outbox.file.data_folder import forget_journal_name
from fogline_edge.outbox.file.schema import migrate
from fogline_edge.outbox.memory.memory_expiry import MemoryExpiry

REPLY_STREAM = 1


def begin(world) -> None:
    """Set up what the steps of this module need.

    `in_doubt`: commands of which some byte may have left for the device. `forgotten`: those that another journal had, or that
    are older than a journal's memory. `unrecorded`: those of which no record is left that could tell of another journal. `old`:
    those that the bridge may have forgotten after 8 days. `first_number`: the message ids from there on are new.
    """
    world.in_doubt, world.forgotten, world.unrecorded, world.old = set(), set(), set(), set()
    world.first_number, world.backup = 0, None
    prepare(world)


def prepare(world) -> None:
    """Make the stream of lane `reply`."""
    columns = (
        "number, stream, lane, open, head, settled, settled_commit_id, acknowledged, stored, duplicate, dead, sent,"
        " settled_events, quarantined"
    )
    values = (REPLY_STREAM, "s", "reply", 1, 0, 0, b"", 0, 0, 0, 0, 0, 0, 0)
    marks = ", ".join("?" * len(values))
    world.journal.execute(f"INSERT OR IGNORE INTO stream ({columns}) VALUES ({marks})", values)


def store_replies(world) -> None:
    """Have the file contain the replies that the bridge has not landed."""
    place = REPLY_STREAM << 40
    world.journal.execute("DELETE FROM event")
    rows = [(place + number, b"", b"") for number in range(world.landed + 1, len(world.replies) + 1)]
    world.journal.executemany("INSERT INTO event (place, commit_id, body) VALUES (?, ?, ?)", rows)
    world.journal.execute("UPDATE stream SET settled = ?", (world.landed,))


def expire_memory(world) -> None:
    """The journal forgets what it may."""
    expiry = MemoryExpiry(world.journal, 10**9, world.gateway)
    while expiry.step(int(world.loop.time())):
        pass


def note_doubts(world) -> None:
    """The process ends: nobody knows whether an adapter had sent what the journal has in `SENDING`."""
    world.in_doubt |= _ids(world.journal, CommandState.SENDING)


def back_up(world) -> None:
    """Take a backup of the running gateway."""
    copy = sqlite3.connect(":memory:", isolation_level=None)
    world.journal.backup(copy)
    world.backup = copy, world.replies[world.landed :]


def restore(world) -> None:
    """The gateway's machine is gone, with the replies that it has not delivered. Its backup is restored on another one."""
    if world.backup is None:
        return
    copy, waiting = world.backup
    journal = sqlite3.connect(":memory:", isolation_level=None)
    copy.backup(journal)
    journal.execute("UPDATE command SET state = 'SENDING' WHERE state = 'QUEUED'")  # as `fogline-edge restore`
    forget_journal_name(journal)
    _replace(world, journal, waiting)


def empty_card(world) -> None:
    """The gateway's card is gone. It gets a new one under its old name."""
    journal = sqlite3.connect(":memory:", isolation_level=None)
    migrate(journal)
    _replace(world, journal, [])


def ten_days(world) -> None:
    """Time passes, in which no connection lasts. The bridge commits what expires: else it would try again every 5 seconds.

    It forgets what was over before (`Registry`), so that no operator uses an old message id again.
    """
    world.disconnect()
    for seconds in (700.0, 700.0, 10 * 86_400.0):
        world.loop.advance(seconds)
        _commit(world)
    world.forgotten |= set(world.asked)
    world.old |= set(world.asked)
    world.first_number += 10
    expire_memory(world)


def _commit(world) -> None:
    while world.bridge.changes:
        world.loop.call(world.bridge.commit)


def _replace(world, journal: sqlite3.Connection, waiting: list) -> None:
    _commit(world)  # it takes minutes
    world.forgotten |= set(world.asked)
    world.unrecorded |= {each for each in world.asked if _is_unrecorded(world.truth.get(each))}
    del world.replies[world.landed :]
    world.replies += waiting
    world.journal = journal
    prepare(world)
    store_replies(world)
    world.gateway_dies(reboot=True)


def _is_unrecorded(record) -> bool:
    """Return True if no record says that the command was sent: its bridge was killed before it had written that."""
    return record is None or record.released


def _ids(journal: sqlite3.Connection, state: CommandState) -> set[str]:
    return {row[0] for row in journal.execute("SELECT id FROM command WHERE state = ?", (state.value,))}
