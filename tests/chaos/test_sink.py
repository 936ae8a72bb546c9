"""A sink that is killed again and again, beside a PostgreSQL that is, while flow, replay and maintenance commit."""

import random
import threading
import time
from datetime import timedelta

import pytest

from fogline_cloud.flows.tables.files import TableFolder
from fogline_lab.flow_table import DAY, FlowTable
from fogline_lab.postgres import Postgres
from fogline_lab.supervisor import ChildProcess, find_script

KILLS = 20
SERVER_KILLS = 4
LIMIT_S = 300.0
LONGEST_LIFE_S = 0.4
"""Time from the first transaction of a sink to its kill, at most."""
COLUMNS = ("source", "id", "ordinal", "device", "metric", "value", "stream", "sequence", "batch")


class Commits(threading.Thread):
    """Commits to a table until `end`: micro-batches, replays of a day, forgotten devices, compactions."""

    def __init__(self, table: FlowTable, rng: random.Random) -> None:
        super().__init__(name="commits", daemon=True)
        self.table = table
        self.replays = 0
        self.failure: Exception | None = None
        self._rng = rng
        self._end = threading.Event()

    def run(self) -> None:
        try:
            while not self._end.is_set():
                self._commit(DAY + timedelta(days=self._rng.randrange(3)))
                time.sleep(self._rng.uniform(0, 0.1))  # the pace of a flow
        except Exception as failure:  # noqa: BLE001 - the test raises it
            self.failure = failure

    def _commit(self, day) -> None:
        kind = self._rng.random()
        if kind < 0.08:
            self.replays += 1
            self.table.replace_day(lambda number: {"value": number + self.replays / 1000}, day)
        elif kind < 0.14:
            self.table.delete(f"day = '{day}' AND sequence % 97 = {self._rng.randrange(97)}")
        elif kind < 0.2:
            self.table.compact()
        else:
            self.table.append(self._rng.randrange(1, 400), day)

    def end(self) -> None:
        self._end.set()
        self.join(LIMIT_S)
        if self.failure is not None:
            raise self.failure


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
        commits = Commits(table, rng)
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
