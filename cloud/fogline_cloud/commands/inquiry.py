"""Asks a gateway whether its journal has a command: for direct commands, which no bridge may start a second time."""

import asyncio
from collections.abc import Callable
from enum import StrEnum
from functools import partial

from fogline.amqp.outcome import Outcome, State
from fogline.amqp.sending import Sender
from fogline.command import CONFLICT, JournalQuery, encode_query
from fogline.errors import Unreachable
from fogline_cloud.commands.record import Record


class Finding(StrEnum):
    """A gateway's answer.

    `HELD`: the journal has this command, so that its end comes on lane `reply` or has come. `OTHER`: it has another
    command under this id. `ABSENT`: it has none, and the device has not seen it. `CANNOT_SAY`: an old gateway, which
    does not know the question. `NO_WORD`: the connection ended first.
    """

    HELD = "held"
    OTHER = "other"
    ABSENT = "absent"
    CANNOT_SAY = "cannot say"
    NO_WORD = "no word"


def ask(control: Sender, record: Record, done: Callable[[Finding], None]) -> None:
    """Ask over a gateway's control link. `done` is called once, on the loop."""
    query = JournalQuery(id=record.id, tenant=record.tenant, gateway=record.gateway, digest=bytes.fromhex(record.digest))
    control.send(encode_query(query)).add_done_callback(partial(_on_outcome, done))


def _on_outcome(done: Callable[[Finding], None], future: "asyncio.Future[Outcome]") -> None:
    if future.cancelled() or isinstance(future.exception(), Unreachable):
        done(Finding.NO_WORD)
        return
    outcome = future.result()
    match outcome.state:
        case State.ACCEPTED:
            done(Finding.HELD)
        case State.RELEASED:
            done(Finding.ABSENT)
        case State.REJECTED if outcome.condition == CONFLICT:
            done(Finding.OTHER)
        case _:
            done(Finding.CANNOT_SAY)
