"""Decides if an arrival with a device identity is new, a duplicate, or an unchanged report, and remembers it.

It combines the protocol's view (`resend_memory`), the device's own identity (`recognition`, table `memory`) and the last-seen
times of advertisers (`last_seen`).
"""

import sqlite3
from functools import partial

import msgspec
from msgspec.structs import replace

from fogline.events.event import POSSIBLE_DUPLICATE, Arrival
from fogline.events.identity import Retransmission, digest
from fogline.events.report_on_change import Reported, ReportPolicy, is_news
from fogline_edge.outbox.file.queries import SQL
from fogline_edge.outbox.memory.last_seen import LastSeen
from fogline_edge.outbox.memory.recognition import RENEW_S, KnownEvent, NewEvent, recognise, report_key
from fogline_edge.outbox.memory.resend_memory import ResendMemory
from fogline_edge.outbox.rows.group import Group
from fogline_edge.outbox.rows.memory_entry import MemoryEntry

_entry = msgspec.msgpack.Decoder(MemoryEntry)
_pack = msgspec.msgpack.Encoder().encode


def naming(arrival: Arrival, relation: str, event_id: str) -> Arrival:
    """Return the arrival with a property that names another event."""
    named = f"{relation}={event_id}"
    return replace(arrival, properties=f"{arrival.properties}&{named}" if arrival.properties else named)


class DuplicateFilter:
    """Used on the writer's thread, within a transaction; after a rollback, use a new one.

    `resends`: the last message of each packet id.
    """

    def __init__(self, connection: sqlite3.Connection, tenant: str, resends: ResendMemory) -> None:
        self.resends = resends
        self._connection = connection
        self._tenant = tenant
        self._last_seen = LastSeen()
        self._new_entries = 0

    def growth(self) -> int:
        """Return how many rows `memory` has gained since the last call."""
        grown, self._new_entries = self._new_entries, 0
        return grown

    def with_possible_original(self, arrival: Arrival, sent: Retransmission) -> Arrival:
        """Return the arrival with a property that names the event which it may repeat, if that event's id is known."""
        original = self.resends.repeated_id(arrival, sent)
        return naming(arrival, POSSIBLE_DUPLICATE, original) if original else arrival

    def is_news(self, group: Group, arrival: Arrival, report: ReportPolicy) -> bool:
        """Return True if the arrival differs enough from the last stored report of its channel."""
        key = report_key(arrival)
        last = self._recall(group, key)
        if last is not None and group.age_s - last.age_s > RENEW_S:
            group.memory[key] = (arrival.device, replace(last, age_s=group.age_s))
        reported = Reported(last.first, self._last_seen.repeated_ms(arrival)) if last is not None else None
        changed = last is None or last.digest != digest(arrival.channel, arrival.data)
        return is_news(report, reported, group.age_ms, changed=changed)

    def judge(self, group: Group, arrival: Arrival, payload: bytes) -> NewEvent | KnownEvent:
        """Decide by the protocol's rules of retransmission, then by the identity that the device gave.

        `payload`: digest of the payload, with the protocol's token if there is one.
        """
        sent = arrival.retransmission
        if sent is not None and sent.again and self.resends.repeats(arrival, sent, group.age_s):
            return KnownEvent()
        recall, nonce = partial(self._recall, group), group.incarnation()
        if arrival.report is not None and not self._is_due(group, arrival, arrival.report):
            recall = partial(self._recall_seen, group, arrival)
        return recognise(arrival, payload, tenant=self._tenant, recall=recall, age_s=group.age_s, nonce=nonce)

    def note_unchanged(self, group: Group, arrival: Arrival, payload: bytes) -> None:
        """Note, in memory only, that a device repeated its last report."""
        self._last_seen.note(arrival, payload, group.age_ms)

    def note_reported(self, group: Group, arrival: Arrival) -> None:
        """Remember the stored arrival as the last report of its channel."""
        entry = MemoryEntry(digest(arrival.channel, arrival.data), group.age_s, group.age_ms)
        group.memory[report_key(arrival)] = (arrival.device, entry)

    def write(self, group: Group) -> None:
        """Write the group's changes of memory in the open transaction."""
        if group.memory:
            entries = [(key, device, group.age_s, _pack(entry)) for key, (device, entry) in group.memory.items()]
            self._connection.executemany(SQL["remember"], entries)

    def _is_due(self, group: Group, arrival: Arrival, report: ReportPolicy) -> bool:
        """Return True if an unchanged report becomes an event because `max_interval_s` has passed."""
        last = self._recall(group, report_key(arrival))
        return report.on_change and last is not None and last.digest == digest(arrival.channel, arrival.data)

    def _recall(self, group: Group, key: bytes) -> MemoryEntry | None:
        if (pending := group.memory.get(key)) is not None:
            return pending[1]
        row = self._connection.execute(SQL["recall"], (key,)).fetchone()
        if row is None:
            self._new_entries += 1  # a key that is not found is written with this arrival
            return None
        return _entry.decode(row[0])

    def _recall_seen(self, group: Group, arrival: Arrival, key: bytes) -> MemoryEntry | None:
        entry = self._recall(group, key)
        return self._last_seen.renew(entry, arrival, group.age_s) if entry is not None else None
