"""Reads all commands of the tenant from Kafka, on a thread, for a client that asks for some of them."""

import threading
import time
from dataclasses import dataclass

from fogline.address import CommandAddress
from fogline.errors import Poison
from fogline_cloud.access.policy import Action, Policy
from fogline_cloud.access.principal import Principal
from fogline_cloud.commands.newest_commands import NewestCommands
from fogline_cloud.commands.record import CommandRecord, decode_record
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.kafka.committed_records import read_committed
from fogline_cloud.listing import CommandQuery

TURN = 200
"""Records that the thread reads before it leaves the CPU to the event loop, for as long as they took."""
MAX_REST_S = 0.1


@dataclass(frozen=True, slots=True)
class CommandSearch:
    """A client's question for commands: those at the address that the query asks for, and that the client may read."""

    policy: Policy
    asker: Principal
    address: CommandAddress
    query: CommandQuery

    def run(self, clients: KafkaClients, stopping: threading.Event) -> NewestCommands:
        """Return the commands, as committed at the time of the call. Ends early after `stopping`. Raises `Unreachable`."""
        found = NewestCommands(self._wants, answers=bool(self.query.id))
        partitions = {(topics.commands(self.policy.tenant), shard): None for shard in range(self.policy.shards)}
        beginning = self.query.id.encode()
        began_s = time.thread_time()
        for number, stored in enumerate(read_committed(clients, partitions, lean=True), 1):
            if stored.value and stored.key.startswith(beginning):
                try:
                    found.take(decode_record(stored.value))
                except Poison:
                    continue  # its shard logs that it cannot be read
            if number % TURN == 0:
                if stopping.wait(min(MAX_REST_S, time.thread_time() - began_s)):
                    break
                began_s = time.thread_time()
        return found

    def may_read(self, device: str, command: str) -> bool:
        """Return True if the client may read commands of this name to a device."""
        return self.policy.may(self.asker, Action.RECEIVE, CommandAddress(self.policy.tenant, device), command)

    def _wants(self, record: CommandRecord) -> bool:
        return (
            self.address.device in ("", record.device)
            and self.query.state in ("", record.state)
            and record.accepted_ms >= self.query.since_ms
            and self.may_read(record.device, record.name)
        )
