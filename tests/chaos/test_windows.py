"""A process that keeps windows is killed again and again, while late rows, replays and deletions come."""

import random
import sys
import time
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from chaos.table_commits import LIMIT_S, TableCommits
from fogline_cloud.flows.tables.files import TableFolder
from fogline_lab.flow_table import DAY, FlowTable
from fogline_lab.supervisor import ChildProcess

KILLS = 20
LONGEST_S = 3.0
"""Time from a commit of windows, or from the start of Spark, to a kill at any point, at most."""
PAUSE_S = 1.0
KEEPER = Path(__file__).parent / "windows_keeper.py"
MIDNIGHT = datetime(DAY.year, DAY.month, DAY.day, tzinfo=UTC)


def spread(number):
    """Return a time of the row: one row in ten is three days late, one in thirteen has none."""
    late = timedelta(days=3) if number % 10 == 0 else timedelta()
    return {"time": None if number % 13 == 0 else MIDNIGHT + timedelta(minutes=number * 7919 % 4320) - late}


def one_query(table):
    """Return the windows of all rows: by start and device, the sum of the values and their number."""
    found = defaultdict(lambda: [0.0, 0])
    for device, moment, ingested, value in table.rows(("device", "time", "ingested", "value")):
        window = found[(moment or ingested).astimezone(UTC).replace(minute=0, second=0, microsecond=0), device]
        window[0] += value
        window[1] += 1
    return {key: tuple(each) for key, each in found.items()}


def kept(into):
    rows = DeltaTable(into).to_pyarrow_table().to_pylist()
    found = {(row["start"].astimezone(UTC), row["device"]): (row["sum"], row["n"]) for row in rows}
    assert len(found) == len(rows), "a window is there twice"
    return found


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.fault("K27")
def test_windows_that_are_killed_again_and_again_equal_one_query(folder):
    seed = random.randrange(10**6)
    rng = random.Random(seed)
    table = FlowTable("readings", TableFolder(str(folder / "tables" / "readings")))
    table.append(2000, DAY, spread)
    config, into = folder / "cloud.toml", folder / "hourly"
    config.write_text(
        'tenant = "t"\n[flow]\ntables = "tables"\ncheckpoint = "checkpoint"\n[kafka]\n"bootstrap.servers" = "127.0.0.1:1"\n'
    )
    commits = TableCommits(table, rng, spread, PAUSE_S)
    commits.start()
    merged = 0
    for number in range(KILLS):
        merges = rng.randrange(1, 3) + (number == 0) if number % 2 == 0 else 0
        keeper = ChildProcess("keeper", [sys.executable, KEEPER, config, into, merges], folder / "keeper.log", folder=folder)
        keeper.start()
        assert keeper.next_line(LIMIT_S)
        if merges:
            merged += max(line["merges"] for line in keeper.lines(LIMIT_S))
        else:
            for _ in range(rng.randrange(3)):
                merged += keeper.next_line(LIMIT_S)["merges"] > 0
            time.sleep(rng.uniform(0, LONGEST_S))  # to be killed at any point
        keeper.kill()
        keeper.join()
    commits.end()
    last = ChildProcess("keeper", [sys.executable, KEEPER, config, into, -1], folder / "last.log", folder=folder)
    last.start()
    assert last.next_line(LIMIT_S)
    merged += max((line["merges"] for line in last.lines(LIMIT_S)), default=0)
    assert last.wait(LIMIT_S) == 0
    print(f"seed {seed}: {KILLS} kills, {merged} merges, {commits.replays} replays, {table.count} rows")
    assert commits.replays > 0
    assert kept(into) == one_query(table), f"seed {seed}"
