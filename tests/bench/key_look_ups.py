"""Look-ups of ids in key files of 150 million rows on a real S3 server: fetched each time, and with copies on this disk."""

import time
from pathlib import Path

import numpy as np
from processes import Bench

from fogline_cloud.flows.driver.key_cache import KeyCache
from fogline_cloud.flows.tables.files import TableFolder
from fogline_cloud.flows.tables.id_keys import IdIndex, Keys, encoded, key_path
from fogline_lab.object_store import BUCKET, ObjectStore

TIMES = 3750
"""Rows of the table, as a multiple of the events of the gateway's row."""
FILE_ROWS = 1_000_000
WANTED = 1000
ENOUGH = 1 << 40


def measure(bench: Bench) -> dict[str, float]:
    """Make the key files, then look ids up that no file has."""
    with ObjectStore(bench.folder / "store") as store:
        table = TableFolder(f"s3://{BUCKET}/keys-{bench.number}", store.options())
        random = np.random.default_rng(1)
        files = {f"part-{number}": FILE_ROWS for number in range(max(1, TIMES * bench.events // FILE_ROWS))}
        for path in files:
            write(table, path, np.cumsum(random.integers(1, (1 << 64) // FILE_ROWS, FILE_ROWS, np.uint64)))  # sorted
        wanted = np.unique(random.integers(0, 1 << 64, WANTED, np.uint64))
        copies = bench.folder / "copies"
        fetching = index(table, copies, 0)
        seconds(fetching, files, wanted)  # what has room in memory is there now
        fetched = seconds(fetching, files, wanted)
        kept = index(table, copies, ENOUGH)
        first, later = (seconds(kept, files, wanted) for _ in range(2))
        restarted = seconds(index(table, copies, ENOUGH), files, wanted)
    found = {"fetched": fetched, "first": first, "next": later, "restarted": restarted, "ratio": later / fetched}
    return {f"keys.{name}": value for name, value in found.items()}


def write(table: TableFolder, path: str, keys: Keys) -> None:
    """Write a key file as maintenance does."""
    content = encoded(keys)
    with table.file_system().open_output_stream(key_path(path), buffer_size=len(content) + 1) as out:
        out.write(content)


def index(table: TableFolder, copies: Path, most_bytes: int) -> IdIndex:
    """Return the index of a flow that has just started."""
    return IdIndex(table, KeyCache(table, copies, most_bytes))


def seconds(index: IdIndex, files: dict[str, int], wanted: Keys) -> float:
    """Return the time of one look-up."""
    began = time.perf_counter()
    index.holding(files, wanted)
    return time.perf_counter() - began
