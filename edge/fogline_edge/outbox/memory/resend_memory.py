"""Remembers the last message of each packet id of each client, to recognise marked retransmissions.

A packet id (MQTT) or message id (CoAP) belongs to the client, whatever device its message names. The memory is a log in the
file, loaded at the start. An event's row holds the entry of its message until `save` appends it to the log, so that an event
alone changes one page of the file. The oldest rows of the log are dropped; the entries in them that are still valid are
appended again. Used on the writer's thread, within a transaction.
"""

import hashlib
import sqlite3
import struct
from collections import OrderedDict, deque
from functools import lru_cache

from fogline.events.event import Arrival
from fogline.events.identity import AckDelivery, Retransmission
from fogline_edge.outbox.file.queries import SQL

ENTRY = struct.Struct(">8sH8sI")
"""Client, id, digest of the message, and the gateway's age at its arrival plus 1; 0 if the id is free."""
_SLOT = struct.Struct(">8sI")
_LOGGED = struct.Struct(f">8sH{_SLOT.size}s")
"""An entry, with digest and age as the bytes of its slot."""
_A_PAGE = 32
_EMPTY = bytes(_A_PAGE * _SLOT.size)
_FREE = bytes(_SLOT.size)
MAX_PAGES = 8192
SHARE = 0.05  # of the file, for the log
LEAST_ENTRIES = 4096  # below, the log is not cleaned
MAX_IDS = 4096  # newest messages whose event ids are kept, in memory only

PageKey = tuple[bytes, int]
"""A client and 32 of its ids."""


class ResendMemory:
    """Call `committed` after each commit and `rolled_back` after each rollback.

    `started_s`: the gateway's age at its start. `max_bytes`: the limit of the file. `due`: the open transaction must `save`.
    """

    def __init__(self, connection: sqlite3.Connection, max_bytes: int, started_s: int = 0) -> None:
        self._connection = connection
        self._started_s = started_s
        self._max_pages = min(MAX_PAGES, max(64, int(max_bytes * SHARE) // (2 * _A_PAGE * ENTRY.size)))
        self._least_entries = min(LEAST_ENTRIES, int(max_bytes * SHARE) // (2 * ENTRY.size))
        self._ids: OrderedDict[tuple[bytes, int], tuple[bytes, str]] = OrderedDict()
        self._pages: OrderedDict[PageKey, bytearray] = OrderedDict()
        self._entries = 0
        self._log: deque[tuple[int, int]] = deque()
        self._logged = 0
        self._pending: list[bytes] = []
        self._undo: list[tuple[PageKey, int, bytes]] = []
        self._kept_pending = self._noted = 0
        self.due = False
        self._before_save: tuple[list[bytes], list[tuple[int, int]]] | None = None
        for number, blob in connection.execute(SQL["read_resends"]):
            self._log.append((number, len(blob) // ENTRY.size))
            self._logged += len(blob) // ENTRY.size
            self._read(blob)

    def load(self, messages: list[bytes]) -> None:
        """Add the values that `note` returned for events which are not in the log yet."""
        entries = [each[: ENTRY.size] for each in sorted(messages, key=lambda each: each[ENTRY.size :])]
        for each in entries:
            client, number, payload, then_s = ENTRY.unpack(each)
            self._set(client, number, _SLOT.pack(payload, then_s))
        self._pending += entries
        self.committed()

    def repeats(self, arrival: Arrival, sent: Retransmission, age_s: int) -> bool:
        """Return True if this marked message repeats the last one of its id within the protocol's retransmission window.

        `age_s`: the gateway's age. If the acknowledgement of the last message was or may have been delivered, only a message
        from an earlier run of the gateway counts as repeated.
        """
        client = client_key(sent.slot)
        then_s = self._age(client, sent.number, fingerprint(arrival, sent))
        if not then_s or age_s + 1 - then_s > sent.window_s:
            return False
        if sent.ack_delivery is AckDelivery.UNPROVEN:
            return True
        return then_s - 1 <= self._started_s and (client, sent.number) not in self._ids

    def repeated_id(self, arrival: Arrival, sent: Retransmission) -> str | None:
        """Return the id of the last event under this id if the message is the same and the event's id is still in memory."""
        known, event_id = self._ids.get((client_key(sent.slot), sent.number), (b"", None))
        return event_id if known == fingerprint(arrival, sent) else None

    def note(self, arrival: Arrival, sent: Retransmission, age_s: int, event_id: str = "") -> bytes:
        """Note this message, stored as event `event_id`, as the last one of its id. Returns the value for the event's row."""
        client, number, payload = client_key(sent.slot), sent.number, fingerprint(arrival, sent)
        entry = ENTRY.pack(client, number, payload, age_s + 1)
        self._set(client, number, entry[-_SLOT.size :])
        self._pending.append(entry)
        key, ids = (client, number), self._ids
        if key in ids:
            ids.move_to_end(key)
        elif len(ids) >= MAX_IDS:
            ids.popitem(last=False)
        ids[key] = payload, event_id
        self._noted += 1
        return entry + self._noted.to_bytes(4)

    def forget(self, slot: bytes, number: int) -> None:
        """Free an id: its next message is new. The transaction must `save` it."""
        self.due, client = True, client_key(slot)
        self._ids.pop((client, number), None)
        if (client, number // _A_PAGE) in self._pages:
            self._set(client, number, _FREE)
            self._pending.append(ENTRY.pack(client, number, bytes(8), 0))

    def save(self) -> None:
        """Append the new entries to the log in the open transaction, and drop its oldest rows while half of it is outdated."""
        self._before_save = self._before_save or (self._pending, list(self._log))
        while self._log and self._logged + len(self._pending) > max(self._least_entries, 2 * self._entries):
            number, entries = self._log.popleft()
            self._logged -= entries
            ((blob,),) = self._connection.execute(SQL["drop_resends"], (number,)).fetchall()
            self._pending += [ENTRY.pack(*each) for each in ENTRY.iter_unpack(blob) if self._holds(*each)]
        if self._pending:
            ((number,),) = self._connection.execute(SQL["add_resends"], (b"".join(self._pending),)).fetchall()
            self._log.append((number, len(self._pending)))
            self._logged += len(self._pending)
            self._pending = []

    def committed(self) -> None:
        """Keep the changes of the transaction."""
        self._undo.clear()
        self.due = False
        self._kept_pending, self._before_save = len(self._pending), None

    def rolled_back(self) -> None:
        """Undo the changes of the transaction."""
        for key, at, former in reversed(self._undo):
            if (page := self._pages.get(key)) is not None:
                self._entries += (former != _FREE) - (page[at : at + _SLOT.size] != _FREE)
                page[at : at + _SLOT.size] = former
        if self._before_save is not None:
            self._pending, log = self._before_save
            self._log, self._logged = deque(log), sum(entries for _, entries in log)
        del self._pending[self._kept_pending :]
        self._ids.clear()
        self.committed()

    def _age(self, client: bytes, number: int, payload: bytes) -> int:
        """Return the age, plus 1, of the last message of an id if it had this digest, else 0."""
        page = self._pages.get((client, number // _A_PAGE))
        if page is None:
            return 0
        known, then_s = _SLOT.unpack_from(page, number % _A_PAGE * _SLOT.size)
        return then_s if known == payload else 0

    def _holds(self, client: bytes, number: int, payload: bytes, then_s: int) -> bool:
        return bool(then_s) and self._age(client, number, payload) == then_s

    def _read(self, blob: bytes) -> None:
        """Add the entries of a row of the log. The start reads up to half a million, so this notes nothing to undo."""
        found, page = (b"", -1), bytearray()
        for client, number, slot in _LOGGED.iter_unpack(blob):
            key, at = (client, number // _A_PAGE), number % _A_PAGE * _SLOT.size
            if key != found:
                found, page = key, self._page(key)
            former = page[at : at + _SLOT.size]
            if former != slot:
                self._entries += (slot != _FREE) - (former != _FREE)
                page[at : at + _SLOT.size] = slot

    def _set(self, client: bytes, number: int, slot: bytes) -> None:
        key, at = (client, number // _A_PAGE), number % _A_PAGE * _SLOT.size
        page = self._page(key)
        former = bytes(page[at : at + _SLOT.size])
        self._undo.append((key, at, former))
        self._entries += (slot != _FREE) - (former != _FREE)
        page[at : at + _SLOT.size] = slot

    def _page(self, key: PageKey) -> bytearray:
        """Return a page as the one that was used last. A new one may displace the one that was used first."""
        page = self._pages.get(key)
        if page is not None:
            self._pages.move_to_end(key)
            return page
        page = self._pages[key] = bytearray(_EMPTY)
        if len(self._pages) > self._max_pages:
            _, oldest = self._pages.popitem(last=False)
            self._entries -= sum(1 for _, each_s in _SLOT.iter_unpack(oldest) if each_s)
        return page


@lru_cache(maxsize=4096)
def client_key(slot: bytes) -> bytes:
    """Return the 8-byte key of a client's ids."""
    return hashlib.blake2b(slot, digest_size=8).digest()


@lru_cache(maxsize=4096)
def _frame(device: str, channel: str, token: bytes) -> bytes:
    return b"".join([len(each).to_bytes(4, "big") + each for each in (device.encode(), channel.encode(), token)])


def fingerprint(arrival: Arrival, sent: Retransmission) -> bytes:
    """Return the 8-byte digest of a message: its device, channel, token and payload."""
    frame = _frame(arrival.device, arrival.channel, sent.token)
    return hashlib.blake2b(frame + (arrival.body_digest or arrival.data), digest_size=8).digest()
