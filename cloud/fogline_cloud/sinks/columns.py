"""Which columns of a table a sink writes, and which of them identify a row. Pure."""

from collections.abc import Sequence

from fogline.errors import Misconfigured
from fogline_cloud.flows.tables.schema import TABLES, Column

IDENTITY = {
    "events": ("ingested", "topic", "partition", "offset", "run"),
    "readings": ("ingested", "source", "id", "ordinal", "stream", "sequence"),
    "raw": ("ingested", "topic_id", "partition", "offset", "run"),
}
"""Columns that tell each row of a table from every other one. `ingested` first: rows come in its order, so that a database
finds a row without an index of ids, which are random.

A topic that is created again repeats offsets, and two gateways may deliver one event: hence more than the keys of `schema`.
"""
NEVER_NULL = {
    "events": ("ingested", "topic", "partition", "offset"),
    "readings": ("ingested", "source", "id", "ordinal"),
    "raw": ("ingested", "topic_id", "partition", "offset"),
}
"""Columns of the identity that are never null."""


def written_columns(source: str, wanted: Sequence[str] | None) -> list[Column]:
    """Return the columns that a sink writes: the wanted ones (all by default) and the identity, in the table's order.

    Raises `Misconfigured` if the table has no such column.
    """
    known = TABLES[source]
    names = {column.name for column in known}
    if unknown := [name for name in wanted or () if name not in names]:
        raise Misconfigured(f"columns: table {source} has no column {unknown[0]}: docs/reference/columns.md lists them")
    chosen = names if wanted is None else {*wanted, *IDENTITY[source]}
    return [column for column in known if column.name in chosen]
