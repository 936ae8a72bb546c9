"""Sends commands, requests to cancel and questions to gateways, and reports what they answer."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from fogline.amqp.outcome import DeliveryState, Outcome, rejected
from fogline.commands.cancel import encode_cancel
from fogline.commands.command import CONFLICT, MAX_NAME, MAX_TEXT, Deadline, JournalQuery, encode_command, encode_query
from fogline.commands.signature import Signer
from fogline.errors import Unreachable
from fogline.message import Message
from fogline.process.crash_points import CrashPoint, crash_point
from fogline_cloud.bridge.gateways.connected_gateways import ConnectedGateways
from fogline_cloud.bridge.peers.peer import ControlSender, GatewayPeer
from fogline_cloud.commands.command_life import AskJournal, AskToCancel, CommandLife, Effects, JournalLookup, Now, SendCommand
from fogline_cloud.commands.record import CommandRecord, cancel_of, command_of

_log = logging.getLogger("fogline.commands")

Report = Callable[[CommandRecord, Callable[[CommandLife, Now], Effects]], None]
"""Takes an event of a command's life (`fogline_cloud.bridge.commands.command_table.CommandTable.on`)."""


class CommandSender:
    """Writes to the control links of the connected gateways, signed by `signer`. All methods run on the loop."""

    def __init__(self, gateways: ConnectedGateways, signer: Signer) -> None:
        self._gateways = gateways
        self._signer = signer

    def journal_of(self, gateway: str) -> str | None:
        """Return the name of a gateway's journal, "" for one without a name; `None` if the gateway cannot take commands."""
        peer = self._peer(gateway)
        return peer.journal if peer is not None else None

    def deadline(self, gateway: str, left_ms: int, known: Deadline | None = None) -> Deadline | None:
        """Return `known`, or `left_ms` from now if the gateway has started since, on its clock; `None` as for `journal_of`."""
        peer = self._peer(gateway)
        return peer.deadline(left_ms, known) if peer is not None else None

    def perform(self, effect: SendCommand | AskToCancel | AskJournal, left_ms: int, report: Report) -> None:
        """Send a command, a request to cancel one, or a question about one. The command lives for another `left_ms`."""
        record = effect.record
        if isinstance(effect, AskJournal):
            self.ask_journal(record, lambda found, name: report(record, lambda it, now: it.answered(now, effect, found, name)))
        elif (deadline := self.deadline(record.gateway, left_ms, record.deadline)) is None:
            return  # a new connection asks for the command again
        elif isinstance(effect, SendCommand):
            crash_point(CrashPoint.BEFORE_COMMAND_SENT)
            message = encode_command(self._signer.sign(command_of(record, deadline)))
            self._send(record, message, partial(_on_outcome, record, report))
        else:
            crash_point(CrashPoint.BEFORE_CANCEL_SENT)
            message = encode_cancel(self._signer.sign_cancel(cancel_of(record, deadline)))
            self._send(record, message, partial(_on_cancel_outcome, record, report))

    def ask_journal(self, record: CommandRecord, done: Callable[[JournalLookup, str], None]) -> None:
        """Ask the gateway's journal for a command. `done` gets the answer and the journal's name once, now or later."""
        journal, control = self.journal_of(record.gateway), self._control(record.gateway)
        if journal is None or control is None:
            done(JournalLookup.UNANSWERED, "")
            return
        query = JournalQuery(id=record.id, tenant=record.tenant, gateway=record.gateway, digest=bytes.fromhex(record.digest))
        control.send(encode_query(query)).add_done_callback(lambda future: done(_lookup(future), journal))

    def _peer(self, gateway: str) -> GatewayPeer | None:
        peer = self._gateways.welcomed(gateway)
        return peer if peer is not None and peer.control is not None else None

    def _control(self, gateway: str) -> ControlSender | None:
        peer = self._peer(gateway)
        return peer.control if peer is not None else None

    def _send(self, record: CommandRecord, message: Message, done: Callable[[Outcome], None]) -> None:
        if (control := self._control(record.gateway)) is not None:
            control.send(message).add_done_callback(partial(_retrieve, record, done))


def _retrieve(record: CommandRecord, done: Callable[[Outcome], None], future: "asyncio.Future[Outcome]") -> None:
    """Pass an outcome on; nothing, if the connection ended first."""
    if future.cancelled() or isinstance(future.exception(), Unreachable):
        return
    outcome = future.result()
    if outcome.state is DeliveryState.REJECTED:
        outcome = rejected(outcome.condition[:MAX_NAME], outcome.description[:MAX_TEXT])
        extra = {"gateway": record.gateway, "device": record.device, "reason": outcome.condition}
        _log.info("gateway %s rejects command %s: %s", record.gateway, record.id, outcome, extra=extra)
    done(outcome)


def _on_outcome(record: CommandRecord, report: Report, outcome: Outcome) -> None:
    crash_point(CrashPoint.BEFORE_COMMAND_END_COMMIT)
    report(record, lambda it, now: it.outcome(now, record, outcome))


def _on_cancel_outcome(record: CommandRecord, report: Report, outcome: Outcome) -> None:
    if outcome.condition == CONFLICT:  # any other end of the command comes on lane `reply`
        question = AskJournal(record, to_cancel=True)
        report(record, lambda it, now: it.answered(now, question, JournalLookup.DIFFERENT, record.journal))


def _lookup(future: "asyncio.Future[Outcome]") -> JournalLookup:
    if future.cancelled() or isinstance(future.exception(), Unreachable):
        return JournalLookup.UNANSWERED
    match (outcome := future.result()).state:
        case DeliveryState.ACCEPTED:
            return JournalLookup.FOUND
        case DeliveryState.RELEASED:
            return JournalLookup.ABSENT
        case DeliveryState.REJECTED if outcome.condition == CONFLICT:
            return JournalLookup.DIFFERENT
    _log.warning("a gateway does not say whether it has a command: %s", outcome)
    return JournalLookup.REFUSED
