"""The tables' columns as Arrow has them. No Spark is needed."""

from collections.abc import Iterable

import pyarrow as pa

from fogline_cloud.flows.schema import READINGS_TYPE, Column

_TIMESTAMP = pa.timestamp("us", tz="UTC")
READING = pa.struct(
    [
        ("ordinal", pa.int32()),
        ("metric", pa.string()),
        ("value", pa.float64()),
        ("text", pa.string()),
        ("unit", pa.string()),
        ("time", _TIMESTAMP),
    ]
)
"""An element of column `readings`."""
ARROW = {
    "STRING": pa.string(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "BOOLEAN": pa.bool_(),
    "DOUBLE": pa.float64(),
    "TIMESTAMP": _TIMESTAMP,
    "BINARY": pa.binary(),
    READINGS_TYPE: pa.list_(READING),
}
"""Spark SQL type to Arrow type."""


def arrow_schema(columns: Iterable[Column]) -> pa.Schema:
    """Columns as an Arrow schema."""
    return pa.schema([(column.name, ARROW[column.type]) for column in columns])


def conformed(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows with exactly these columns, whoever wrote them.

    Names of list elements and time zones differ between writers; a column that came later is null in older files.
    """
    return pa.table([_column(rows, field) for field in schema], schema=schema)


def _column(rows: pa.Table, field: pa.Field) -> pa.Array:
    return rows.column(field.name).cast(field.type) if field.name in rows.column_names else pa.nulls(rows.num_rows, field.type)
