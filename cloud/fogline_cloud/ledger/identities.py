"""Compares the identities of a day's events: each has a `(source, id)` of its own. Pure.

An event that several gateways may receive (`dedup` is `shared`) has an id that returns when the device's counter wraps. So of
these, two rows of one gateway are two events only if the gateway stored them `SHARED_APART_US` apart, because within that
time it would have recognised the second one as a duplicate. Of events that nobody compares (`none`), several may have one id.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fogline.events.event import TimeQuality
from fogline.events.identity import Dedup
from fogline_cloud.flows.tables.id_keys import Keys, hashes_of
from fogline_cloud.flows.tables.schema import EventOutcome
from fogline_cloud.ledger.arrow_rows import stream_rows

COLUMNS = (
    *("tenant", "gateway", "stream", "sequence", "outcome", "source", "id", "dedup", "again", "recordedtime", "timequality"),
)
"""The columns that tell the identity of an event."""
SHARED_APART_US = 55_000_000
"""A little less than the 60 s within which a gateway takes an equal counter and payload as a duplicate."""
_NO_EVENTS = (EventOutcome.GAP, EventOutcome.STATEMENT, EventOutcome.DUPLICATE, EventOutcome.FORGOTTEN)


class RepeatedId(NamedTuple):
    """An event whose identity another event of the day has too."""

    gateway: str
    stream: str
    sequence: int


class _Hashed(NamedTuple):
    keys: Keys
    recorded_us: npt.NDArray[np.int64]  # 0 where no time tells two events apart
    rows: pa.Table


class IdentityCheck:
    """Finds identities that occur twice among the rows of a day. Memory: 16 bytes for each row."""

    def __init__(self, tenant: str) -> None:
        self._tenant = tenant
        self._keys: list[Keys] = []
        self._recorded_us: list[npt.NDArray[np.int64]] = []

    def take(self, rows: pa.Table) -> None:
        """Add rows of `events`, with the columns `COLUMNS`."""
        for each in _hashed(rows, self._tenant):
            self._keys.append(each.keys)
            self._recorded_us.append(each.recorded_us)

    def repeated(self) -> Keys:
        """Return the hashes of identities that occur twice."""
        if not self._keys:
            return np.empty(0, np.uint64)
        keys, recorded_us = np.concatenate(self._keys), np.concatenate(self._recorded_us)
        order = np.lexsort((recorded_us, keys))
        keys, recorded_us = keys[order], recorded_us[order]
        again = (keys[1:] == keys[:-1]) & (recorded_us[1:] - recorded_us[:-1] < SHARED_APART_US)
        return np.unique(keys[1:][again])


def events_with(rows: pa.Table, tenant: str, repeated: Keys) -> Iterator[RepeatedId]:
    """Yield the events among these rows that have one of the repeated identities."""
    for each in _hashed(rows, tenant):
        found = each.rows.filter(pa.array(np.isin(each.keys, repeated))).select(RepeatedId._fields)
        yield from (RepeatedId(**row) for row in found.to_pylist())


def _hashed(rows: pa.Table, tenant: str) -> Iterator[_Hashed]:
    """Yield the events with an identity: those of one gateway, then those that several gateways may receive."""
    rows = stream_rows(rows, tenant)
    is_none = pc.is_in(rows.column("outcome").cast(pa.string()), pa.array([each.value for each in _NO_EVENTS]))
    is_copy = pc.fill_null(rows.column("again"), False)
    is_common = pc.fill_null(pc.equal(rows.column("dedup").cast(pa.string()), Dedup.NONE.value), False)
    unwanted = pc.or_(pc.or_(is_none, is_copy), is_common)
    wanted = pc.and_(pc.invert(unwanted), rows.column("id").is_valid())
    rows = rows.filter(pc.and_(wanted, rows.column("source").is_valid()))
    rows = rows.set_column(rows.schema.get_field_index("gateway"), "gateway", rows.column("gateway").cast(pa.string()))
    shared = pc.fill_null(pc.equal(rows.column("dedup"), Dedup.SHARED.value), False)
    own, common = rows.filter(pc.invert(shared)), rows.filter(shared)
    yield _Hashed(hashes_of(own, ("source", "id")), np.zeros(len(own), np.int64), own)
    common = common.filter(pc.fill_null(pc.equal(common.column("timequality"), TimeQuality.SYNCED.value), False))
    recorded_us = pc.fill_null(common.column("recordedtime"), 0).to_numpy()
    yield _Hashed(hashes_of(common, ("source", "id", "gateway")), recorded_us, common)
