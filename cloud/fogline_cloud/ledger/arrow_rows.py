"""Rows of a table as Arrow columns: tenant, streams, contiguous sequences, and a fingerprint of readings. Pure."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from fogline_cloud.flows.tables.schema import RETENTION, EventOutcome
from fogline_cloud.shard.admission import StreamKey

KafkaPosition = tuple[str, int, int]
"""Topic, partition and offset."""
_TEXT = pa.dictionary(pa.int32(), pa.string())
TYPES: dict[str, pa.DataType] = {
    **dict.fromkeys(("tenant", "topic", "gateway", "stream", "lane", "outcome"), _TEXT),
    **dict.fromkeys(("reason", "detail", "source", "id", "dedup", "timequality"), pa.string()),
    **dict.fromkeys(("partition", "offset", "first_sequence", "sequence", "values", "ordinal", "recordedtime"), pa.int64()),
    "again": pa.bool_(),
}
"""Type of each column that the ledger reads. `values`: number of readings of an event."""
_SHIFT = 1 << 32
_ODD = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)  # the constants of splitmix64


class Run(NamedTuple):
    """Contiguous sequences of one stream. `row`: the first row of the run."""

    stream: int
    first: int
    last: int
    row: int


def conformed(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return these columns, each as one chunk with the type in `TYPES`; a missing column is null."""
    known = set(rows.column_names)
    columns = [_one(rows.column(name), TYPES[name]) if name in known else pa.nulls(len(rows), TYPES[name]) for name in names]
    return pa.table(columns, names=list(names))


def _one(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(wanted) and not pa.types.is_dictionary(column.type):
        column = column.cast(pa.string()).dictionary_encode()
    column = column if column.type == wanted else column.cast(wanted)
    return column.unify_dictionaries().combine_chunks()


def equals(column: pa.ChunkedArray, value: str) -> pa.Array:
    """Return a mask of the rows with this value in a column of texts; null where the column is null."""
    array = column.combine_chunks()
    return pc.equal(array.dictionary, value).take(array.indices)


def is_of_tenant(rows: pa.Table, tenant: str) -> pa.Array:
    """Return a mask of the rows of `events` that belong to the tenant. A row without a tenant does."""
    return equals(rows.column("tenant"), tenant).fill_null(True)


def stream_rows(rows: pa.Table, tenant: str) -> pa.Table:
    """Return those rows of `events` that belong to a stream of the tenant."""
    return rows.filter(pc.and_(is_of_tenant(rows, tenant), rows.column("stream").is_valid()))


def retention_gaps(rows: pa.Table, tenant: str) -> dict[KafkaPosition, str]:
    """Return the gaps by retention among rows of `events`, by topic, partition and last offset. They stand for no sequences."""
    gaps = pc.and_(equals(rows.column("outcome"), EventOutcome.GAP.value), pc.equal(rows.column("reason"), RETENTION))
    found = pc.and_(pc.fill_null(gaps, False), pc.is_null(rows.column("stream")))
    return {
        (row["topic"], row["partition"], row["offset"]): row["detail"] or ""
        for row in rows.filter(pc.and_(is_of_tenant(rows, tenant), found)).to_pylist()
    }


def streams_of(rows: pa.Table) -> tuple[pa.Array, list[StreamKey]]:
    """Return the number of each row's stream, and the streams by their numbers. Every row has a stream."""
    gateways, streams = (rows.column(name).combine_chunks() for name in ("gateway", "stream"))
    pairs = pc.add(pc.multiply(gateways.indices.cast(pa.int64()), _SHIFT), streams.indices.cast(pa.int64())).dictionary_encode()
    gateway_names, stream_names = gateways.dictionary.to_pylist(), streams.dictionary.to_pylist()
    keys = [(gateway_names[pair // _SHIFT], stream_names[pair % _SHIFT]) for pair in pairs.dictionary.to_pylist()]
    return pairs.indices, keys


def runs(streams: pa.Array, first: pa.Array, last: pa.Array) -> Iterator[Run]:
    """Yield the rows' sequences by stream and sequence, contiguous ones together. A sequence that comes twice begins a run."""
    if not len(streams):
        return
    order = pc.sort_indices(
        pa.table([streams, first, last], names=["stream", "first", "last"]),
        sort_keys=[("stream", "ascending"), ("first", "ascending"), ("last", "ascending")],
    )
    streams, first, last = (each.take(order) for each in (streams, first, last))
    goes_on = pc.and_(
        pc.equal(streams.slice(1), streams.slice(0, len(streams) - 1)),
        pc.equal(first.slice(1), pc.add(last.slice(0, len(last) - 1), 1)),
    )
    begins = pc.indices_nonzero(pa.concat_arrays([pa.array([True]), pc.invert(goes_on)]))
    ends = pc.subtract(pa.concat_arrays([begins.slice(1), pa.array([len(streams)], begins.type)]), pa.scalar(1, begins.type))
    columns = (streams.take(begins), first.take(begins), last.take(ends), order.take(begins))
    for cells in zip(*(each.to_pylist() for each in columns), strict=True):
        yield Run(*cells)


def fingerprints(sequences: pa.Array, ordinals: pa.Array) -> pa.Array:
    """Return a number of 64 bits for each reading. The sums of two sets of readings are equal only if the sets are."""
    mixed = pc.add(
        pc.multiply(sequences.cast(pa.uint64()), pa.scalar(_ODD[0], pa.uint64())),
        pc.multiply(ordinals.cast(pa.int64()).view(pa.uint64()), pa.scalar(_ODD[1], pa.uint64())),
    )
    for bits, odd in ((30, _ODD[1]), (27, _ODD[2]), (31, 1)):
        mixed = pc.bit_wise_xor(mixed, pc.shift_right(mixed, pa.scalar(bits, pa.uint64())))
        mixed = pc.multiply(mixed, pa.scalar(odd, pa.uint64()))
    return mixed
