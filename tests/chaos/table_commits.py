"""Commits to a table as flow, replay and maintenance make them, while what follows the table is killed."""

import random
import threading
import time
from datetime import timedelta

from fogline_lab.flow_table import DAY, FlowTable, RowOf

LIMIT_S = 300.0


class TableCommits(threading.Thread):
    """Commits to a table until `end`: micro-batches, replays of a day, forgotten devices, compactions.

    `row`: columns of the row with a number, as far as they differ from the usual ones. `pause_s`: longest time between two.
    """

    def __init__(self, table: FlowTable, rng: random.Random, row: RowOf = lambda _: {}, pause_s: float = 0.1) -> None:
        super().__init__(name="commits", daemon=True)
        self.table = table
        self.replays = 0
        self.failure: Exception | None = None
        self._rng = rng
        self._row = row
        self._pause_s = pause_s
        self._end = threading.Event()

    def run(self) -> None:
        try:
            while not self._end.is_set():
                self._commit(DAY + timedelta(days=self._rng.randrange(3)))
                time.sleep(self._rng.uniform(0, self._pause_s))  # the pace of a flow
        except Exception as failure:  # noqa: BLE001 - the test raises it
            self.failure = failure

    def _commit(self, day) -> None:
        kind = self._rng.random()
        if kind < 0.08:
            self.replays += 1
            self.table.replace_day(lambda number: {**self._row(number), "value": float(number + self.replays)}, day)
        elif kind < 0.14:
            self.table.delete(f"day = '{day}' AND sequence % 97 = {self._rng.randrange(97)}")
        elif kind < 0.2:
            self.table.compact()
        else:
            self.table.append(self._rng.randrange(1, 400), day, self._row)

    def end(self) -> None:
        self._end.set()
        self.join(LIMIT_S)
        if self.failure is not None:
            raise self.failure
