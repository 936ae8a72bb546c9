"""Rows as a database takes them. Pure."""

from base64 import b64encode
from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from fogline_cloud.flows.tables.schema import ARROW, Column

_NUL, _REPLACEMENT = "\0", "\ufffd"


def read_schema(columns: Sequence[Column]) -> pa.Schema:
    """Return the types of these columns in the table."""
    return pa.schema([(each.name, pa.date32() if each.type == "DATE" else ARROW[each.type]) for each in columns])


def written_schema(read: pa.Schema) -> pa.Schema:
    """Return the types of these columns as a database gets them: lists, maps and structs are JSON text."""
    return pa.schema([(each.name, pa.string() if pa.types.is_nested(each.type) else each.type) for each in read])


def as_written(rows: pa.RecordBatch, *, has_nul: bool) -> pa.RecordBatch:
    """Return rows as a database gets them.

    `has_nul`: the database's text may contain the character U+0000; else U+FFFD replaces it.
    """
    arrays = [_written(each, has_nul=has_nul) for each in rows.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=written_schema(rows.schema))


def _written(values: pa.Array, *, has_nul: bool) -> pa.Array:
    if pa.types.is_nested(values.type):
        return _json(values, values.type)
    if pa.types.is_string(values.type) and not has_nul and pc.any(pc.match_substring(values, _NUL)).as_py():
        return pc.replace_substring(values, _NUL, _REPLACEMENT)
    return values


def _json(values: pa.Array, kind: pa.DataType) -> pa.Array:
    texts = [None if each is None else msgspec.json.encode(_plain(each, kind)).decode() for each in values.to_pylist()]
    return pa.array(texts, pa.string())


def _plain(value: Any, kind: pa.DataType) -> Any:
    """Return a nested value as JSON has it."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return {key: _plain(each, kind.item_type) for key, each in value}
    if pa.types.is_list(kind):
        return [_plain(each, kind.value_type) for each in value]
    if pa.types.is_struct(kind):
        return {field.name: _plain(value[field.name], field.type) for field in kind}
    return _text(value) if pa.types.is_binary(kind) else value


def _text(value: bytes) -> str | dict[str, str]:
    """Return bytes as text, or as an object with one member `base64` if they are none."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(value).decode()}
