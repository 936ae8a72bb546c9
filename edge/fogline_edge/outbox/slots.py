"""What the last message of each slot was, so that a marked resend is recognised: 64 slots a row of the file.

A protocol's slots are numbered (MQTT packet ids, CoAP message ids) and used one after the other, so that a whole group
of messages touches a row or two. A slot holds 8 bytes of the payload's digest and when it came, in the gateway's own
age. Used on the writer's thread, within a transaction.
"""

import hashlib
import sqlite3
import struct
from collections import OrderedDict
from functools import lru_cache

from fogline.identity import AckDelivery, Retransmission
from fogline_edge.outbox.queries import SQL

_A_PAGE = 64
_SLOT = struct.Struct(">8sI")
PAGE_OF_SLOTS_BYTES = _A_PAGE * _SLOT.size
_EMPTY = bytes(PAGE_OF_SLOTS_BYTES)
_CACHED = 4096
MAX_IDS = 4096
"""How many of the newest messages are remembered with the id of their event, in memory only."""

Place = tuple[bytes, int]
"""A row: whose, and which 64 of its slots."""


class Slots:
    """Reads through a cache, writes with `write`. After a rollback it is made anew. `new_pages`: rows that were not there.

    `started_s`: the age of the gateway when this run of it began.
    """

    def __init__(self, connection: sqlite3.Connection, started_s: int = 0) -> None:
        self.new_pages = 0
        self._connection = connection
        self._started_s = started_s
        self._ids: OrderedDict[tuple[bytes, int], tuple[bytes, str]] = OrderedDict()
        self._pages: OrderedDict[Place, bytearray] = OrderedDict()
        self._dirty: dict[Place, str] = {}

    def repeats(self, device: str, sent: Retransmission, payload: bytes, age_s: int) -> bool:
        """Return True if this marked message repeats the slot's last one, within the sender's window.

        If the acknowledgement of the last message was delivered, or may have been, only a message of an earlier run of the
        gateway is repeated.
        """
        owner = _owner(device, sent.slot)
        known, then_s = _SLOT.unpack_from(self._page((owner, sent.number // _A_PAGE)), sent.number % _A_PAGE * _SLOT.size)
        if known != payload[:8] or not then_s or age_s + 1 - then_s > sent.window_s:
            return False
        if sent.ack_delivery is AckDelivery.UNPROVEN:
            return True
        return then_s - 1 <= self._started_s and (owner, sent.number) not in self._ids

    def repeated_id(self, device: str, sent: Retransmission, payload: bytes) -> str | None:
        """The id of the slot's last event if its payload was the same, as far as it is in memory."""
        known, event_id = self._ids.get((_owner(device, sent.slot), sent.number), (b"", None))
        return event_id if known == payload[:8] else None

    def note(self, device: str, sent: Retransmission, payload: bytes, age_s: int, event_id: str = "") -> None:
        """The slot's last message is this one, stored as event `event_id`."""
        owner, digest = _owner(device, sent.slot), payload[:8]
        place = (owner, sent.number // _A_PAGE)
        _SLOT.pack_into(self._page(place), sent.number % _A_PAGE * _SLOT.size, digest, age_s + 1)
        self._dirty[place] = device
        key, ids = (owner, sent.number), self._ids
        ids[key] = digest, event_id
        ids.move_to_end(key)
        if len(ids) > MAX_IDS:
            ids.popitem(last=False)

    def forget(self, device: str, slot: bytes, number: int) -> None:
        """The slot's next message is a new one, whatever it is."""
        owner = _owner(device, slot)
        place = (owner, number // _A_PAGE)
        self._ids.pop((owner, number), None)
        _SLOT.pack_into(self._page(place), number % _A_PAGE * _SLOT.size, bytes(8), 0)
        self._dirty[place] = device

    def write(self, age_s: int) -> None:
        """What changed, into the transaction that is open."""
        if self._dirty:
            pages = self._pages
            rows = [(*place, device, age_s, bytes(pages[place])) for place, device in self._dirty.items()]
            self._connection.executemany(SQL["remember_slots"], rows)
            self._dirty.clear()
            while len(pages) > _CACHED:
                pages.popitem(last=False)

    def _page(self, place: Place) -> bytearray:
        page = self._pages.get(place)
        if page is None:
            row = self._connection.execute(SQL["recall_slots"], place).fetchone()
            self.new_pages += row is None
            page = self._pages[place] = bytearray(row[0] if row else _EMPTY)
        else:
            self._pages.move_to_end(place)
        return page


@lru_cache(maxsize=4096)
def _owner(device: str, slot: bytes) -> bytes:
    """16 bytes for a device and a family of slots."""
    name = device.encode()
    return hashlib.blake2b(len(name).to_bytes(2, "big") + name + slot, digest_size=16).digest()
