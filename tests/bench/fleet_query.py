"""Asks DuckDB over table `events`: python tests/bench/fleet_query.py FOLDER QUERY. Prints the events that it counted."""

import json
import sys

import duckdb
from deltalake import DeltaTable


def main() -> None:
    """Run the query, whose rows have a column `events`."""
    folder, query = sys.argv[1:]
    files = [each.removeprefix("file://") for each in DeltaTable(folder).file_uris()]
    select, by, grouped = query.partition(" GROUP BY")
    rows = duckdb.sql(f"{select} FROM read_parquet({files!r}){by}{grouped}").to_arrow_table()
    print(json.dumps({"rows": len(rows), "events": sum(rows.column("events").to_pylist())}), flush=True)


if __name__ == "__main__":
    main()
