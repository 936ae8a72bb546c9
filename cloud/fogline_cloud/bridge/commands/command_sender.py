"""Sends commands to gateways, asks their journals about commands, and takes the outcomes.

No bridge starts a direct command a second time. If its outcome was lost with a connection or a bridge, the bridge asks the
gateway's journal. If the journal does not have the command, it ends as released: the operator's next copy is a new attempt.

Only the journal to which a command was sent can say that it does not have it. A record names that journal before the command
is sent. If a gateway comes with another one, because it was restored, salvaged or got a new card, the bridge asks that one too.
What it does not have may have been executed from the former journal, so it ends IN_DOUBT and is not sent again.
"""

import asyncio
import logging
from functools import partial

import msgspec

from fogline.amqp.outcome import ACCEPTED, RELEASED, RESOURCE_LIMIT, DeliveryState, Outcome, rejected
from fogline.cancel import FEATURE, encode_cancel
from fogline.command import (
    CONFLICT,
    EXPIRED,
    MAX_NAME,
    MAX_TEXT,
    CommandState,
    Status,
    encode_command,
)
from fogline.errors import Unreachable
from fogline.process.crash_points import CrashPoint, crash_point
from fogline.signature import Signer
from fogline_cloud.bridge.commands.command_table import CommandTable
from fogline_cloud.bridge.commands.journal_lookups import JournalLookup, JournalLookups
from fogline_cloud.bridge.gateways.connected_gateways import ConnectedGateways
from fogline_cloud.bridge.peers.peer import GatewayPeer
from fogline_cloud.commands.record import CommandRecord, cancel_of, command_of, why_cancelled

_REFUSALS = {
    EXPIRED: (CommandState.EXPIRED, Status.EXPIRED),
    CONFLICT: (CommandState.REJECTED, Status.CONFLICT),
    RESOURCE_LIMIT: (CommandState.REJECTED, Status.QUOTA),
}

_ANOTHER = "its gateway has another journal of commands than the one to which it was sent: the device may have executed it"
_OLD = "its gateway's journal may have forgotten it: the device may have executed it"

_log = logging.getLogger("fogline.commands")


class CommandSender:
    """Sends the commands of a table, signed by `signer`. All methods run on the loop. `journals`: asks the journals."""

    def __init__(self, table: CommandTable, gateways: ConnectedGateways, signer: Signer) -> None:
        self._table = table
        self._gateways = gateways
        self._signer = signer
        self._loop = asyncio.get_running_loop()
        self.journals = JournalLookups(gateways, table.now_ms)

    def resume(self, peer: GatewayPeer) -> None:
        """Send a new gateway connection what it has not accepted: durable commands, requests to cancel, queries."""
        for record in self._table.registry.open_for(peer.principal.name):
            if record.cancelling:
                self.cancel(record)
            elif record.outcome_unknown or (record.state is CommandState.DISPATCHED and record.journal != peer.journal):
                self.query(record)
            elif record.state is CommandState.ACCEPTED:
                self.send(record)

    def send(self, record: CommandRecord) -> None:
        """Send a command to its gateway, if the gateway can receive commands now, and once its record names the journal."""
        peer = self._gateways.welcomed(record.gateway)
        if peer is None or peer.control is None:
            return
        command = self._table.follow(record)
        deadline = peer.deadline(int((command.expires_s - self._loop.time()) * 1000), record.deadline)
        if deadline is None or command.ending or command.cancelling:
            return
        if record.journal != peer.journal and command.maybe_sent:
            self.query(record)
            return
        if record.journal != peer.journal:
            self._table.write(record.sent_to(peer.journal), self._on_noted, lambda: None)
            return
        command.maybe_sent = True
        crash_point(CrashPoint.BEFORE_COMMAND_SENT)
        outcome = peer.control.send(encode_command(self._signer.sign(command_of(record, deadline))))
        outcome.add_done_callback(partial(self._on_outcome, record))

    def _on_noted(self, current: CommandRecord) -> None:
        self._table.take_over(current)
        if current.state is CommandState.ACCEPTED:
            self.send(current)

    def cancel(self, record: CommandRecord) -> None:
        """Have the gateway's journal decide about a command to be cancelled, if the gateway is connected.

        A gateway without that feature is asked whether it has the command. If it has, the command ends as if nobody had
        wanted to cancel it.
        """
        peer = self._gateways.welcomed(record.gateway)
        command = self._table.open.get(record.id)
        if peer is None or peer.control is None or (command is not None and command.ending):
            return  # with `ending`, a verdict of this bridge is being written, and the journal must not have another
        if not record.journal and command is not None and not command.maybe_sent:
            self._table.end(record, CommandState.CANCELLED, Status.CANCELLED, why_cancelled(record))
        elif FEATURE not in peer.features or record.journal != peer.journal:
            self.journals.look_up(record, partial(self._on_cancel_lookup, record))
        else:
            self._ask_to_cancel(peer, record)

    def _ask_to_cancel(self, peer: GatewayPeer, record: CommandRecord) -> None:
        command = self._table.open.get(record.id)
        left_s = command.expires_s - self._loop.time() if command is not None else 0.0
        deadline = peer.deadline(int(left_s * 1000), record.deadline)
        if peer.control is not None and deadline is not None:
            crash_point(CrashPoint.BEFORE_CANCEL_SENT)
            request = self._signer.sign_cancel(cancel_of(record, deadline))
            peer.control.send(encode_cancel(request)).add_done_callback(partial(self._on_cancel_outcome, record))

    def _on_cancel_outcome(self, record: CommandRecord, future: "asyncio.Future[Outcome]") -> None:
        if future.cancelled() or isinstance(future.exception(), Unreachable):
            return
        outcome = future.result()
        if outcome.condition == CONFLICT:
            self._on_conflict(record)
        elif outcome.state is not DeliveryState.ACCEPTED:
            refusal = rejected(outcome.condition[:MAX_NAME], outcome.description[:MAX_TEXT])
            _log.warning("gateway %s does not cancel command %s: %s", record.gateway, record.id, refusal)

    def _on_cancel_lookup(self, record: CommandRecord, lookup: JournalLookup) -> None:
        peer = self._gateways.welcomed(record.gateway)
        match lookup:
            case JournalLookup.ABSENT:
                self._table.end(record, CommandState.CANCELLED, Status.CANCELLED, why_cancelled(record))
            case JournalLookup.FORGOTTEN:
                self._doubt(record)
            case JournalLookup.DIFFERENT:
                self._on_conflict(record)
            case JournalLookup.FOUND if peer is not None and FEATURE in peer.features:
                self._ask_to_cancel(peer, record)
            case JournalLookup.FOUND | JournalLookup.UNSUPPORTED:
                _log.warning("gateway %s is too old to cancel command %s: it goes on", record.gateway, record.id)

    def query(self, record: CommandRecord) -> None:
        """Ask the gateway's journal for a command that it may have, and take its outcome."""
        peer = self._gateways.welcomed(record.gateway)
        self.journals.look_up(record, partial(self._on_lookup, record, peer.journal if peer is not None else ""))

    def _on_lookup(self, record: CommandRecord, journal: str, lookup: JournalLookup) -> None:
        if lookup is not JournalLookup.FOUND and self._is_asked_to_cancel(record):
            return  # the gateway's answer to that ends the command
        why = "the gateway did not get it"
        match lookup:
            case JournalLookup.FOUND if not record.provisional:
                self._on_accepted(record if record.journal == journal else record.sent_to(journal))
            case JournalLookup.ABSENT if record.provisional:
                self._table.end(record, CommandState.EXPIRED, Status.EXPIRED, why, RELEASED)
            case JournalLookup.ABSENT:
                self._table.end(record, CommandState.REJECTED, Status.OFFLINE, why, RELEASED)
            case JournalLookup.FORGOTTEN:
                self._doubt(record)
            case JournalLookup.DIFFERENT:
                self._on_conflict(record)
            case JournalLookup.UNSUPPORTED:
                _log.warning("gateway %s is too old to report the outcome of command %s", record.gateway, record.id)

    def _doubt(self, record: CommandRecord) -> None:
        """End a command of which its gateway's journal cannot tell."""
        peer = self._gateways.welcomed(record.gateway)
        why = _OLD if peer is not None and record.journal == peer.journal else _ANOTHER
        self._table.end(record, CommandState.IN_DOUBT, Status.NO_ANSWER, why)

    def _on_conflict(self, record: CommandRecord) -> None:
        why = f"command {record.id} is known at its gateway with another body"
        self._table.end(record, CommandState.REJECTED, Status.CONFLICT, why, rejected(CONFLICT, why))

    def _on_outcome(self, record: CommandRecord, future: "asyncio.Future[Outcome]") -> None:
        if future.cancelled() or isinstance(future.exception(), Unreachable):
            return
        outcome = future.result()
        if outcome.state is not DeliveryState.ACCEPTED and self._is_asked_to_cancel(record):
            return  # the gateway's answer to that ends the command
        crash_point(CrashPoint.BEFORE_COMMAND_END_COMMIT)
        match outcome.state:
            case DeliveryState.ACCEPTED:
                self._on_accepted(record)
            case DeliveryState.RELEASED:
                self._table.end(record, CommandState.REJECTED, Status.OFFLINE, "the device is not connected", RELEASED)
            case DeliveryState.REJECTED:
                outcome = rejected(outcome.condition[:MAX_NAME], outcome.description[:MAX_TEXT])
                extra = {"gateway": record.gateway, "device": record.device, "reason": outcome.condition}
                _log.info("gateway %s rejects command %s: %s", record.gateway, record.id, outcome, extra=extra)
                state, status = _REFUSALS.get(outcome.condition, (CommandState.REJECTED, Status.UNDELIVERABLE))
                self._table.end(record, state, status, outcome.description, outcome)

    def _is_asked_to_cancel(self, record: CommandRecord) -> bool:
        command, peer = self._table.open.get(record.id), self._gateways.welcomed(record.gateway)
        known = self._table.registry.get(record.id)
        asked = command.cancelling if command is not None else known is not None and known.cancelling
        return asked and peer is not None and FEATURE in peer.features

    def _on_accepted(self, record: CommandRecord) -> None:
        dispatched = msgspec.structs.replace(record, state=CommandState.DISPATCHED, changed_ms=self._table.now_ms())
        self._table.change(dispatched, ACCEPTED)
