"""Serves the links of operators: takes their commands, decides how each goes on, and sends replies.

A durable command is sent to its gateway after its record is committed. A direct command is sent at once, while its record is
written; the operator learns the gateway's outcome (accepted, released, rejected) after the record of it is committed.
"""

import asyncio
from collections.abc import Callable
from functools import partial

import msgspec

from fogline.address import Address, CommandAddress, CommandResponse, shown
from fogline.amqp.events import Delivery, Link
from fogline.amqp.outcome import ACCEPTED, MODIFIED, NOT_ALLOWED, NOT_FOUND, RELEASED, RESOURCE_LIMIT, Outcome, rejected
from fogline.amqp.scheduler import Share
from fogline.commands.command import CONFLICT, CommandState, Reply, Status
from fogline.connection_clock import monotonic_ms, time_left_ms
from fogline.errors import Poison
from fogline.message import Message
from fogline_cloud.access.policy import Action, Policy
from fogline_cloud.access.principal import Principal
from fogline_cloud.bridge.commands.approvals import Approvals
from fogline_cloud.bridge.commands.cancels import Cancels, unknown_command
from fogline_cloud.bridge.commands.command_table import CommandTable, Settle
from fogline_cloud.bridge.group.shard_table import ShardTable
from fogline_cloud.bridge.peers.forwarding import SHARDS, Forwarder, unknown_device
from fogline_cloud.bridge.peers.peer import LinkHandler, Peer
from fogline_cloud.commands.approval import proposal_refusal
from fogline_cloud.commands.client.id_notice import TELL_ID
from fogline_cloud.commands.command_id import CommandIds
from fogline_cloud.commands.command_life import CommandLife, JournalLookup
from fogline_cloud.commands.record import CommandRecord, audit_of, ended, left_ms, with_request
from fogline_cloud.commands.request import read_approval, read_cancel, read_command, reply_owner
from fogline_cloud.commands.routes import Routes
from fogline_cloud.settings import CommandPolicySettings
from fogline_cloud.shard.work.command_changes import AuditNote

CREDIT = 100
"""Commands that an operator may have in flight on one link."""
REGISTRY_S = 0.2
"""Pause until a command is looked at again that came before the bridge had read the registry."""


class OperatorHandler(LinkHandler):
    """Serves `command/` and `command_response/`. All methods run on the loop.

    `refusal` returns the outcome for a new command that its device does not take, RELEASED while that is not known, or `None`.
    """

    def __init__(
        self,
        shards: ShardTable,
        routes: Routes,
        table: CommandTable,
        *,
        settings: CommandPolicySettings,
        ids: CommandIds,
        policy: Policy,
        refusal: Callable[[CommandRecord], Outcome | None] = lambda _: None,
        forwarder: Forwarder,
    ) -> None:
        self.cancels = Cancels(shards, table, policy)
        self.approvals = Approvals(shards, table, policy)
        self._policy = policy
        self._refusal = refusal
        self._forwarder = forwarder
        self._shards = shards
        self._routes = routes
        self._table = table
        self._settings = settings
        self._ids = ids

    def attach(self, peer: Peer, link: Link, address: Address) -> None:
        """See `LinkHandler`."""
        if isinstance(address, CommandResponse):
            sender = peer.connection.accept_link(link, share=Share(strict=0))
            assert sender is not None
            self._table.add_reply_link((reply_owner(peer.principal), address.reply_id), sender)
            if not peer.forwarded:
                self._forwarder.add_reply_link(peer, address, sender)
        else:
            peer.accept_link(link, address, CREDIT)

    def received(self, peer: Peer, delivery: Delivery, message: Message, address: Address) -> None:
        """See `LinkHandler`."""
        assert isinstance(address, CommandAddress)
        approved, cancelled = read_approval(message), read_cancel(message, address, peer.principal, ids=self._ids)
        if (command_id := approved if approved is not None else cancelled) is not None:
            peer.check_quota()
            peer.count(commands=1)
            peer.queue(delivery, message)
            own = msgspec.structs.replace(message, to=str(address))
            take = self.approvals.approve if approved is not None else self.cancels.settle_cancel
            self._change_or_forward(peer, command_id, take, own, partial(peer.settle_command, delivery))
            return
        stated_ms, now_ms = time_left_ms(message, monotonic_ms()), self._table.now_ms()
        record = read_command(message, address, peer.principal, now_ms, self._settings, ids=self._ids, left_ms=stated_ms)
        if not self._policy.may(peer.principal, Action.SEND, CommandAddress(address.tenant, record.device), record.name):
            raise Poison("not-authorised", f"{peer.principal} may not send command {shown(record.name)} to {record.device}")
        peer.queue(delivery, message)
        if record.of_kafka:
            self._take_or_forward(peer, record, message, _of_kafka(self._table, record.id, partial(peer.settle, delivery)))
            return
        if message.properties.get(TELL_ID) is True and record.reply_to and not peer.forwarded:
            self._table.replies.tell_id(record, proposed=self._policy.needs_approval(record.device, record.name))
        known = self._table.registry.get(record.id)
        is_copy = known is not None and not known.released  # it has counted, and its sender needs the verdict
        if not is_copy:
            peer.check_quota()
        peer.count(commands=int(not is_copy), size_bytes=len(message.body))
        settle = peer.settle_command if record.durable and not is_copy else peer.settle
        own = msgspec.structs.replace(message, to=str(CommandAddress(address.tenant, record.device)))
        self._take_or_forward(peer, record, own, partial(settle, delivery))

    def take(self, peer: Peer, message: Message, address: CommandAddress, settle: Settle) -> None:
        """Take a command that came over Kafka. `settle` is called once, now or later.

        ACCEPTED: its record is committed. REJECTED: it has none, and is not delivered. Else it has to be taken again. Raises
        `Poison`.
        """
        record = read_command(message, address, peer.principal, self._table.now_ms(), self._settings, ids=self._ids)
        self._take_or_forward(peer, record, message, _of_kafka(self._table, record.id, settle))

    def _take_or_forward(self, peer: Peer, record: CommandRecord, message: Message, settle: Settle) -> None:
        """Take a command whose shard is here. Another bridge gets any other, unless it came from one."""
        known = self._table.registry.get(record.id)
        gateway = known.gateway if known is not None else self.gateway_of(record.device)
        number = self._shards.number_of(gateway) if gateway is not None else None
        is_here = self._shards.all_ready if number is None else number in self._shards.owned
        if peer.forwarded and number is None and self._shards.has(str(message.properties.get(SHARDS, ""))):
            settle(rejected(NOT_FOUND, unknown_device(record.device)))
        elif is_here or peer.forwarded:
            self.submit(record, settle)
        else:
            ends_ms = monotonic_ms() + left_ms(record, self._table.now_ms())
            self._forwarder.send(peer, message, number, settle, ends_ms)

    def _change_or_forward(
        self, peer: Peer, command_id: str, take: Callable[[str, Principal, Settle], None], message: Message, settle: Settle
    ) -> None:
        """Cancel or approve a command whose shard is here. Another bridge gets any other request, unless it came from one."""
        known = self._table.registry.get(command_id)
        number = self._shards.number_of(known.gateway) if known is not None else None
        is_here = self._shards.all_ready if number is None else number in self._shards.owned
        if peer.forwarded and number is None and self._shards.has(str(message.properties.get(SHARDS, ""))):
            settle(rejected(NOT_FOUND, unknown_command(command_id)))
        elif is_here or peer.forwarded:
            take(command_id, peer.principal, settle)
        else:
            self._forwarder.send(peer, message, number, partial(_settle_change, settle, command_id))

    def detached(self, link: Link | None) -> None:
        """See `LinkHandler`."""
        self._table.replies.remove_link(link)
        self._forwarder.remove_link(link)

    def submit(self, record: CommandRecord, settle: Settle) -> None:
        """Take a command, whose gateway is not known yet. `settle` is called once, now or later."""
        known = self._table.registry.get(record.id)
        gateway = self.gateway_of(record.device)
        if known is not None and known.digest and known.digest != record.digest:
            settle(rejected(CONFLICT, f"command {known.id} is known with another body"))
        elif known is not None and known.released and not known.of_kafka:
            attempt = msgspec.structs.replace(record, gateway=gateway or known.gateway, attempt=known.attempt + 1)
            self._begin(attempt, settle)
        elif known is not None and not known.digest:
            self._confirm(known, record, settle)
        elif known is not None:
            self._take_copy(known, record, settle)
        elif (refusal := self._refusal(record)) is RELEASED and left_ms(record, self._table.now_ms()) > 0:
            # The registry is being read. An operator of a direct command would take `released` for an absent device.
            asyncio.get_running_loop().call_later(REGISTRY_S, self.submit, record, settle)
        elif refusal is not None:
            settle(refusal)
        elif gateway is None and not self._shards.all_ready:
            settle(RELEASED)  # a shard that is not here at present may know the device
        elif gateway is None:
            self._table.unknown_devices += 1
            settle(rejected(NOT_FOUND, unknown_device(record.device)))
        else:
            self._begin(msgspec.structs.replace(record, gateway=gateway), settle)

    def submit_through(self, gateway: str, record: CommandRecord, settle: Settle) -> None:
        """Take a durable command of the bridge's own for a device at this gateway. `settle` is called once, now or later."""
        self._begin(msgspec.structs.replace(record, gateway=gateway), settle)

    def gateway_of(self, device: str) -> str | None:
        """Return the gateway that reaches a device and may speak for it."""
        gateway = self._routes.gateway_of(device)
        return gateway if gateway is not None and self._policy.may_speak_for(gateway, device) else None

    def _begin(self, record: CommandRecord, settle: Settle) -> None:
        now_ms, proposed = self._table.now_ms(), self._policy.needs_approval(record.device, record.name)
        if proposed and (refusal := proposal_refusal(record)) is not None:
            settle(refusal)
            return
        deadline = self._table.sender.deadline(record.gateway, left_ms(record, now_ms))
        journal = self._table.sender.journal_of(record.gateway)
        if deadline is not None:
            record = msgspec.structs.replace(record, deadline_boot=deadline.boot_id, deadline_ms=deadline.boottime_ms)
        if proposed:
            record = msgspec.structs.replace(record, state=CommandState.PROPOSED)
        elif journal:
            record = record.sent_to(journal)
        shard = self._shards.ready(self._shards.number_of(record.gateway))
        if shard is None:
            settle(RELEASED)
        elif (why := self._table.registry.capacity_error(record)) is not None:
            settle(rejected(RESOURCE_LIMIT, why))
        elif record.durable:
            release = self._table.registry.reserve(record)  # it counts as an open command while it is being written
            committed = _after(release, partial(self._on_committed, settle, record.digest))
            self._table.write(record, committed, _after(release, partial(settle, MODIFIED)))
        elif journal is None and record.of_kafka:
            reply = Reply(int(Status.OFFLINE), b"the gateway is not connected", "text/plain")
            end = ended(record, CommandState.REJECTED, reply, now_ms, why="the gateway is away")
            self._table.write(end, partial(self._on_committed, settle, end.digest), partial(settle, MODIFIED))
        elif journal is None:
            reply = Reply(int(Status.OFFLINE))
            shard.submit(AuditNote(audit_of(ended(record, CommandState.REJECTED, reply, now_ms, why="the gateway is away"))))
            settle(RELEASED)
        else:
            self._table.begin(record, settle)

    def _on_committed(self, settle: Settle, digest: str, current: CommandRecord) -> None:
        """Settle a command whose record is committed, and send it. `current` may be another command with the same id."""
        self._table.on(current, CommandLife.learned, current)
        if current.digest != digest:
            settle(rejected(CONFLICT, f"command {current.id} is known with another body"))
            return
        settle(ACCEPTED)
        if current.state is CommandState.ACCEPTED:
            self._table.on(current, CommandLife.connected)

    def _take_copy(self, known: CommandRecord, record: CommandRecord, settle: Settle) -> None:
        command = self._table.open.get(known.id)
        if command is not None and command.waiting:
            command.waiting.append(settle)
        elif command is not None and known.outcome_unknown and not known.provisional:
            command.waiting.append(settle)
            self._table.on(known, CommandLife.connected)
        elif known.state is CommandState.REJECTED and known.reply_delivered:
            settle(rejected(NOT_ALLOWED, f"it was refused before ({known.why}); send it with a new message-id"))
        else:
            settle(ACCEPTED)
            if known.state.terminal and record.reply_to:
                request = {"reply_to": record.reply_to, "reply_owner": record.reply_owner, "correlation": record.correlation}
                self._table.replies.send(msgspec.structs.replace(known, reply_delivered=False, **request))

    def _confirm(self, known: CommandRecord, record: CommandRecord, settle: Settle) -> None:
        """Take a copy of a command that is known from its gateway's reply alone, if the journal has the same command."""
        claim = with_request(known, record)
        self._table.sender.ask_journal(claim, partial(self._on_confirmed, claim, settle))

    def _on_confirmed(self, claim: CommandRecord, settle: Settle, lookup: JournalLookup, _journal: str) -> None:
        shard = self._shards.ready(self._shards.number_of(claim.gateway))
        if lookup is JournalLookup.UNANSWERED or shard is None:
            settle(MODIFIED)
        elif lookup is JournalLookup.FOUND:
            self._table.write(claim, partial(self._on_committed, settle, claim.digest), partial(settle, MODIFIED))
        elif lookup is JournalLookup.DIFFERENT:
            settle(rejected(CONFLICT, f"command {claim.id} is known at its gateway with another body"))
        else:
            settle(ACCEPTED)
            doubt = Reply(int(Status.NO_ANSWER), b"its gateway cannot confirm it", "text/plain")
            self._table.replies.send(ended(claim, CommandState.IN_DOUBT, doubt, self._table.now_ms(), provisional=True))


def _after(first: Callable[[], None], then: Callable[..., None]) -> Callable[..., None]:
    """Return a callback that calls `first`, and then `then` with its own arguments."""

    def both(*arguments: object) -> None:
        first()
        then(*arguments)

    return both


def _settle_change(settle: Settle, command_id: str, outcome: Outcome) -> None:
    settle(rejected(NOT_FOUND, unknown_command(command_id)) if outcome.condition == NOT_FOUND else outcome)


def _of_kafka(table: CommandTable, command_id: str, settle: Settle) -> Settle:
    """Return a `settle` that waits for the table to have the verdict. With a verdict, the response is in Kafka too."""

    def decided(outcome: Outcome) -> None:
        known = table.registry.get(command_id)
        settle(ACCEPTED if known is not None and known.state.terminal else outcome)

    def later(outcome: Outcome) -> None:
        asyncio.get_running_loop().call_soon(decided, outcome)

    return later
