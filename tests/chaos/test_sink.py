"""A sink that is killed again and again, beside a PostgreSQL that is, while flow, replay and maintenance commit."""

import random
import time
from datetime import timedelta

import pytest

from chaos.table_commits import LIMIT_S, TableCommits
from fogline_cloud.flows.tables.files import TableFolder
from fogline_lab.flow_table import DAY, FlowTable
from fogline_lab.postgres import Postgres
from fogline_lab.supervisor import ChildProcess, find_script

KILLS = 20
SERVER_KILLS = 4
LONGEST_LIFE_S = 0.4
"""Time from the first transaction of a sink to its kill, at most."""
COLUMNS = ("source", "id", "ordinal", "device", "metric", "value", "stream", "sequence", "batch")


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.fault("K22")
def test_a_killed_sink_and_a_killed_database_leave_no_row_out_and_none_twice(folder):
    seed = random.randrange(10**6)
    rng = random.Random(seed)
    table = FlowTable("readings", TableFolder(str(folder / "tables" / "readings")))
    for number in range(10):
        table.append(500, DAY + timedelta(days=number % 3))
    with Postgres() as server:
        config = folder / "cloud.toml"
        config.write_text(
            f'tenant = "t"\n[flow]\ntables = "tables"\n[sinks.lab]\nurl = "{server.url}"\ntransaction_rows = 700\n'
        )
        command = [find_script("fogline"), "sink", "run", "lab", "--json", "--config", config]
        sink = ChildProcess("sink", command, folder / "sink.log")
        commits = TableCommits(table, rng)
        commits.start()
        transactions = 0
        server_kills = set(rng.sample(range(KILLS), SERVER_KILLS))
        for number in range(KILLS):
            sink.start()
            transactions += "inserted" in sink.next_line(LIMIT_S)
            if number in server_kills:
                server.kill()
                server.start()
            time.sleep(rng.uniform(0, LONGEST_LIFE_S))  # to be killed at any point of a transaction
            sink.kill()
            sink.join()
        commits.end()
        last = ChildProcess("sink", [*command, "--once"], folder / "last.log")
        last.start()
        transactions += sum("inserted" in line for line in last.lines(LIMIT_S))
        assert last.wait(LIMIT_S) == 0
        text = ", ".join(COLUMNS)
        found = sorted(server.sql(f"SELECT {text} FROM readings"), key=repr)
    print(f"seed {seed}: {KILLS} kills, {commits.replays} replays, version {table.version}, {len(found)} rows")
    assert commits.replays > 0
    assert found == table.rows(COLUMNS), f"seed {seed}"
