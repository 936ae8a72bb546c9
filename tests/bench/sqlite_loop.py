"""A bare loop of SQLite: one insert per event, groups as one transaction, WAL, `synchronous=FULL`, and nothing else.

    python tests/bench/sqlite_loop.py FILE EVENTS GROUP ROW_BYTES RATE

RATE: events per second, in groups at equal distances; 0: as fast as it can. Prints one JSON line when it is ready, waits for a
line on stdin, inserts, and prints the seconds. Ends with stdin.
"""

import contextlib
import json
import sqlite3
import sys
import time


def main() -> None:
    """Insert everything, print how long it took, checkpoint."""
    file, (events, group, size), rate = sys.argv[1], map(int, sys.argv[2:5]), float(sys.argv[5])
    row = b"x" * size
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("CREATE TABLE event (sequence INTEGER PRIMARY KEY, body BLOB)")
        print(json.dumps({"ready": events}), flush=True)
        sys.stdin.readline()
        began = time.perf_counter()
        for first in range(0, events, group):
            if rate:
                time.sleep(max(0, began + first / rate - time.perf_counter()))
            connection.execute("BEGIN")
            connection.executemany(
                "INSERT INTO event VALUES (?, ?)", [(n, row) for n in range(first, min(first + group, events))]
            )
            connection.execute("COMMIT")
        print(json.dumps({"seconds": time.perf_counter() - began}), flush=True)
        sys.stdin.readline()


if __name__ == "__main__":
    main()
