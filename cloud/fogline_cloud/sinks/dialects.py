"""SQL of PostgreSQL, DuckDB and SQLite: what a sink needs of it. Pure."""

from collections.abc import Mapping, Sequence

import msgspec

from fogline_cloud.flows.tables.schema import Column
from fogline_cloud.sinks import position
from fogline_cloud.sinks.place import Kind

DELETED = "fogline_deleted"
"""Temporary table with the identities of rows to delete."""
STAGED = "fogline_staged"
"""Temporary table with rows to insert, where the driver takes columns by their place and not by their name."""


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """What differs between databases.

    `nested`: type of lists, maps and structs, which are written as JSON text. `empty`: the statement that deletes every row.
    `inserts_by_name`: the driver finds a row's columns by their names. `has_nul`: text may contain the character U+0000.
    """

    types: Mapping[str, str]
    nested: str
    empty: str
    inserts_by_name: bool
    has_nul: bool

    def type_of(self, column: Column) -> str:
        """Return the type of a column."""
        return self.types.get(column.type, self.nested)


_STANDARD = {"INT": "integer", "BIGINT": "bigint", "BOOLEAN": "boolean", "DOUBLE": "double precision", "DATE": "date"}
DIALECTS = {
    Kind.POSTGRESQL: Dialect(
        types={**_STANDARD, "STRING": "text", "TIMESTAMP": "timestamptz", "BINARY": "bytea"},
        nested="text",
        empty="TRUNCATE TABLE",
        inserts_by_name=True,
        has_nul=False,
    ),
    Kind.DUCKDB: Dialect(
        types={**_STANDARD, "STRING": "varchar", "TIMESTAMP": "timestamptz", "BINARY": "blob"},
        nested="varchar",
        empty="DELETE FROM",
        inserts_by_name=False,
        has_nul=True,
    ),
    Kind.SQLITE: Dialect(  # times and days are text in the form that its date functions read
        types={**_STANDARD, "DOUBLE": "real", "STRING": "text", "TIMESTAMP": "text", "DATE": "text", "BINARY": "blob"},
        nested="text",
        empty="DELETE FROM",
        inserts_by_name=True,
        has_nul=True,
    ),
}


def quoted(name: str) -> str:
    """Return the name of a table or column as SQL has it; `schema.table` is two names."""
    return ".".join('"' + each.replace('"', '""') + '"' for each in name.split("."))


def listed(names: Sequence[str], table: str = "") -> str:
    """Return names as a list of columns, of a table if one is given."""
    prefix = f"{table}." if table else ""
    return ", ".join(f"{prefix}{quoted(each)}" for each in names)


def list_columns(kind: Kind, table: str) -> tuple[str, ...]:
    """Return the query of a table's columns, and its parameters. Without such a table it has no rows."""
    if kind is Kind.SQLITE:
        return "SELECT name FROM pragma_table_info($1)", table
    if kind is Kind.POSTGRESQL:
        where = "attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped"
        return f"SELECT attname::text FROM pg_attribute WHERE {where} ORDER BY attnum", quoted(table)
    schema, _, name = table.rpartition(".")
    where = "table_name = $1 AND schema_name = coalesce(nullif($2, ''), current_schema())"
    return f"SELECT column_name FROM duckdb_columns() WHERE {where} ORDER BY column_index", name, schema


def create_target(
    kind: Kind, table: str, columns: Sequence[Column], never_null: Sequence[str], *, hypertable: bool
) -> list[str]:
    """Return the statements that create a sink's table.

    `hypertable`: of TimescaleDB, in chunks by `ingested`. Else PostgreSQL gets an index of ranges of `ingested`, which costs
    nothing for rows that come in this order; DuckDB keeps such an index of every column by itself.
    """
    dialect = DIALECTS[kind]
    lines = (f"{quoted(each.name)} {dialect.type_of(each)}{' NOT NULL' if each.name in never_null else ''}" for each in columns)
    made = [f"CREATE TABLE {quoted(table)} ({', '.join(lines)})"]
    index = quoted(f"{table.replace('.', '_')}_ingested")
    if kind is Kind.SQLITE:
        made.append(f"CREATE INDEX {index} ON {quoted(table)} ({listed(never_null)})")
    elif kind is Kind.POSTGRESQL and hypertable:
        literal = quoted(table).replace("'", "''")
        made.append(f"SELECT create_hypertable('{literal}', 'ingested')")
    elif kind is Kind.POSTGRESQL:
        made.append(f"CREATE INDEX {index} ON {quoted(table)} USING brin ({quoted('ingested')})")
    return made


def create_positions() -> str:
    """Return the statement that creates the table of positions."""
    return (
        f"CREATE TABLE {position.TABLE} (name varchar(64) PRIMARY KEY, target varchar(200) NOT NULL, "
        "table_id varchar(64) NOT NULL, version bigint NOT NULL, files bigint NOT NULL, entry varchar(64) NOT NULL)"
    )


def insert_position() -> str:
    """Return the statement that adds a position unless there is one. Parameters: name, and those of `COLUMNS`."""
    places = ", ".join(f"${number}" for number in range(1, len(position.COLUMNS) + 2))
    return f"INSERT INTO {position.TABLE} (name, {', '.join(position.COLUMNS)}) VALUES ({places}) ON CONFLICT DO NOTHING"


def update_position() -> str:
    """Return the statement that sets a position. Parameters: those of `COLUMNS`, name."""
    places = ", ".join(f"{name} = ${number}" for number, name in enumerate(position.COLUMNS, 1))
    return f"UPDATE {position.TABLE} SET {places} WHERE name = ${len(position.COLUMNS) + 1}"


def lock_position(kind: Kind) -> str:
    """Return the statement after which no other sink can write the position until the transaction ends. Parameter: name."""
    if kind is Kind.POSTGRESQL:
        return f"SELECT name FROM {position.TABLE} WHERE name = $1 FOR UPDATE"
    return f"UPDATE {position.TABLE} SET name = name WHERE name = $1"


def read_positions(*, one: bool) -> str:
    """Return the query of positions. `one`: of the sink whose name is the parameter."""
    where = " WHERE name = $1" if one else " ORDER BY name"
    return f"SELECT name, {', '.join(position.COLUMNS)} FROM {position.TABLE}{where}"


def delete_rows(kind: Kind, table: str, identity: Sequence[str], never_null: Sequence[str]) -> list[str]:
    """Return the statements that delete the rows whose identities are in the table `DELETED`.

    The bounds of `ingested` let the database look into a part of the table only.
    """
    target = quoted(table)
    matches = " AND ".join(
        f"d.{quoted(each)} {'=' if each in never_null else 'IS NOT DISTINCT FROM'} t.{quoted(each)}" for each in identity
    )
    if kind is Kind.SQLITE:  # which reads the target's index for each identity
        return [f"DELETE FROM {target} WHERE rowid IN (SELECT t.rowid FROM {DELETED} d CROSS JOIN {target} t WHERE {matches})"]
    ingested = quoted("ingested")
    bounds = f"t.{ingested} BETWEEN (SELECT min({ingested}) FROM {DELETED}) AND (SELECT max({ingested}) FROM {DELETED})"
    return [f"DELETE FROM {target} AS t WHERE {bounds} AND EXISTS (SELECT 1 FROM {DELETED} d WHERE {matches})"]
