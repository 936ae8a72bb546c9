"""Asks the journals of gateways whether they have a command."""

import asyncio
from collections.abc import Callable
from enum import Enum, auto
from functools import partial

from fogline.amqp.outcome import DeliveryState, Outcome
from fogline.command import CONFLICT, REMEMBER_COMMANDS_S, JournalQuery, encode_query
from fogline.errors import Unreachable
from fogline_cloud.bridge.gateways.connected_gateways import ConnectedGateways
from fogline_cloud.commands.record import CommandRecord

MEMORY_MS = (REMEMBER_COMMANDS_S - 86_400) * 1000
"""Age of a command from which its journal may have forgotten it, with a margin for the bridge's clock."""


class JournalLookup(Enum):
    """The result of a journal query."""

    FOUND = auto()  # its reply comes on lane `reply`, or has come
    DIFFERENT = auto()  # the journal has another command under this id
    ABSENT = auto()  # so the device has not seen the command
    FORGOTTEN = auto()  # this journal does not have it, but another one may have had it, or this one long ago
    UNSUPPORTED = auto()  # the gateway's version does not know the query
    DISCONNECTED = auto()  # the gateway is not connected, or its connection ended first


class JournalLookups:
    """Queries to the journals of the connected gateways. All methods run on the loop. `now_ms`: the bridge's wall clock."""

    def __init__(self, gateways: ConnectedGateways, now_ms: Callable[[], int]) -> None:
        self._gateways = gateways
        self._now_ms = now_ms

    def look_up(self, record: CommandRecord, done: Callable[[JournalLookup], None]) -> None:
        """Ask the gateway's journal for a command. `done` is called once, now or later."""
        peer = self._gateways.welcomed(record.gateway)
        if peer is None or peer.control is None:
            done(JournalLookup.DISCONNECTED)
            return
        query = JournalQuery(id=record.id, tenant=record.tenant, gateway=record.gateway, digest=bytes.fromhex(record.digest))
        answered = partial(self._on_answer, record, peer.journal, done)
        peer.control.send(encode_query(query)).add_done_callback(answered)

    def _on_answer(
        self, record: CommandRecord, journal: str, done: Callable[[JournalLookup], None], future: "asyncio.Future[Outcome]"
    ) -> None:
        """Report what a journal has said. Only the one that would know the command can say that it does not have it.

        A command whose record names no journal was not sent to any.
        """
        lookup, age_ms = _lookup(future), self._now_ms() - record.accepted_ms
        knows = record.journal in ("", journal) and age_ms < MEMORY_MS
        done(JournalLookup.FORGOTTEN if lookup is JournalLookup.ABSENT and not knows else lookup)


def _lookup(future: "asyncio.Future[Outcome]") -> JournalLookup:
    if future.cancelled() or isinstance(future.exception(), Unreachable):
        return JournalLookup.DISCONNECTED
    outcome = future.result()
    match outcome.state:
        case DeliveryState.ACCEPTED:
            return JournalLookup.FOUND
        case DeliveryState.RELEASED:
            return JournalLookup.ABSENT
        case DeliveryState.REJECTED if outcome.condition == CONFLICT:
            return JournalLookup.DIFFERENT
    return JournalLookup.UNSUPPORTED
