"""Features of a Delta table that the flow's writers would break. Pure.

Workers write files and delta-rs commits them, so nobody checks constraints, computes columns or numbers rows; and workers read
files as they are, so rows that a deletion vector hides would come back. See the Delta protocol, "Table Features".
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from fogline_cloud.flows.tables.schema import READINGS_TYPE, Column

_HARMLESS = frozenset(
    {
        *("appendOnly", "changeDataFeed", "checkConstraints", "columnMapping", "deletionVectors"),
        *("generatedColumns", "identityColumns", "invariants", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"),
    }
)
"""Features that do no harm by themselves. Some do as soon as a property or a column uses them."""
_TYPES = {
    "STRING": "string",
    "INT": "integer",
    "BIGINT": "long",
    "BOOLEAN": "boolean",
    "DOUBLE": "double",
    "TIMESTAMP": "timestamp",
    "BINARY": "binary",
    "DATE": "date",
}
_COMPUTED = {
    "delta.generationExpression": "is generated",
    "delta.identity.start": "is an identity column",
    "delta.invariants": "has an invariant",
}
_PROPERTIES = {
    "rowTracking": "delta.enableRowTracking",
    "typeWidening": "delta.enableTypeWidening",
    "inCommitTimestamp": "delta.enableInCommitTimestamps",
}

_HISTORY = {"checkpointProtection": " TRUNCATE HISTORY"}  # needs the log's old versions to be gone


class TableState(msgspec.Struct, frozen=True, kw_only=True):
    """A table's protocol and metadata. `fields`: its columns as in the log. `hides_rows`: a file has a deletion vector."""

    path: str
    features: Collection[str] = ()
    properties: Mapping[str, str] = {}
    fields: Sequence[Mapping[str, Any]] = ()
    partitioned_by: Sequence[str] = ("day",)
    hides_rows: bool = False


def problems(table: TableState, columns: Sequence[Column]) -> list[str]:
    """Return why a flow that writes `columns` must not use the table: one sentence each, with the remedy in SQL."""
    alter = f"ALTER TABLE delta.`{table.path}`"
    found = [*_features(table, alter), *_constraints(table, alter), *_columns(table, alter, columns)]
    if list(table.partitioned_by) != ["day"]:
        found.append(f"it is partitioned by {', '.join(table.partitioned_by) or 'nothing'} instead of day: use another folder")
    return [*reader_problems(table), *(f"{table.path}: {each}" for each in found)]


def reader_problems(table: TableState) -> list[str]:
    """Return why the files of the table cannot be read as they are."""
    alter = f"ALTER TABLE delta.`{table.path}`"
    found = []
    properties = {name.lower(): value.lower() for name, value in table.properties.items()}
    if properties.get("delta.enabledeletionvectors") == "true" or table.hides_rows:
        found.append(
            "deletion vectors are on, and Fogline would read rows that they hide: "
            f"{alter} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'false'); "
            f"REORG TABLE delta.`{table.path}` APPLY (PURGE)"
        )
    if properties.get("delta.columnmapping.mode", "none") != "none":
        found.append(
            "column mapping is on, and Fogline names columns as they are: "
            f"{alter} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'none')"
        )
    return [f"{table.path}: {each}" for each in found]


def _features(table: TableState, alter: str) -> list[str]:
    found = []
    # `domainMetadata` comes last, because other features need it while they are on.
    for feature in sorted(set(table.features) - _HARMLESS, key=lambda each: (each == "domainMetadata", each)):
        off = f"{alter} SET TBLPROPERTIES ('{_PROPERTIES[feature]}' = 'false'); " if feature in _PROPERTIES else ""
        drop = f"{alter} DROP FEATURE {feature}{_HISTORY.get(feature, '')}"
        found.append(f"the flow cannot write to a table with the feature {feature}: {off}{drop}")
    return found


def _constraints(table: TableState, alter: str) -> list[str]:
    names = [name.removeprefix("delta.constraints.") for name in table.properties if name.startswith("delta.constraints.")]
    return [f"the flow does not check the constraint {name}: {alter} DROP CONSTRAINT {name}" for name in sorted(names)]


def _columns(table: TableState, alter: str, columns: Sequence[Column]) -> list[str]:
    there = {field["name"]: field for field in table.fields}
    wanted = {column.name: column.type for column in columns}
    if missing := [name for name in wanted if name not in there]:
        return [f"its columns are not those of this version: {', '.join(missing)} missing; use another folder"]
    found = []
    for name, field in there.items():
        known = _TYPES.get(wanted.get(name, READINGS_TYPE))
        if known is not None and field["type"] != known:
            found.append(f"column {name} has the type {field['type']} instead of {known}: use another folder")
        for key, what in _COMPUTED.items():
            if key in (field.get("metadata") or {}):
                found.append(f"column {name} {what}, and the flow would not compute or check it: {alter} DROP COLUMN {name}")
        if not field.get("nullable", True):
            found.append(
                f"column {name} must not be null, which the flow does not check: {alter} ALTER COLUMN {name} DROP NOT NULL"
            )
    return found
