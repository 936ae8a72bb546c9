"""Tables on a real S3 server, with everything at once that users and a store do to them: no event is lost, none is there twice.

`make chaos ARGS="-k store"` runs it.
"""

import json
import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from fogline.errors import Unreachable
from fogline_cloud.cli.main import main
from fogline_cloud.flows.tables.batch import MicroBatch
from fogline_cloud.flows.tables.delta_log import DeltaLog
from fogline_cloud.flows.tables.files import FileWriter, TableFolder
from fogline_cloud.flows.tables.owner import Owner
from fogline_cloud.flows.tables.schema import EVENTS, MEASURED, arrow_schema, in_file
from fogline_lab.http_line import Absence
from fogline_lab.object_store import BUCKET

COMMITS = 500
"""Commits of each of the two flows."""
AWAY_S = 60.0
LIMIT_S = 900.0
SCHEMA = arrow_schema(in_file(EVENTS))


class Writer:
    """A flow that commits one event a micro-batch, and repeats one that it does not know the end of, as a query does."""

    def __init__(self, name: str, folder: TableFolder) -> None:
        self.owner = Owner("t", name, f"run-{name}", 1, (name,))
        self.folder = folder
        self.waits = 0
        self.log = self._opened()
        self.log.take_over(self.owner, {})

    def commit(self, number: int) -> None:
        row = {"stream": self.owner.flow, "sequence": number, "run": self.owner.run, "batch": number, "ingested": 0}
        deadline = time.monotonic() + LIMIT_S
        while True:
            try:
                with FileWriter(self.folder, MEASURED["events"]) as writer:
                    writer.add(pa.RecordBatch.from_pylist([{name: row.get(name) for name in SCHEMA.names}], SCHEMA))
                    self.log.append(writer.close(), MicroBatch(self.owner.flow, self.owner.run, number), self.owner)
            except (Unreachable, DeltaError, OSError):
                assert time.monotonic() < deadline, "the store did not come back"
                self.waits += 1
                with suppress(Unreachable, DeltaError, OSError):
                    self.log = self._opened()
            else:
                return

    def _opened(self) -> DeltaLog:
        return DeltaLog("events", self.folder)


def made(folder: TableFolder) -> TableFolder:
    fields = SCHEMA.append(pa.field("day", pa.date32()))
    DeltaTable.create(folder.uri, fields, partition_by=["day"], storage_options=folder.storage)
    return folder


def counts(folder: TableFolder) -> Counter[tuple[str, int]]:
    rows = DeltaTable(folder.uri, storage_options=folder.storage).to_pyarrow_table(columns=["stream", "sequence"]).to_pylist()
    return Counter((row["stream"], row["sequence"]) for row in rows)


@contextmanager
def beside(*works: Callable[[], None]) -> Iterator[list[int]]:
    """Repeat each work on a thread of its own until the end of the block. Yields how often each succeeded."""
    stop, done = threading.Event(), [0] * len(works)

    def go(at: int) -> None:
        while not stop.is_set():
            with suppress(PySparkException, Py4JError):  # a conflict, or the store is away: Spark leaves it to the user
                works[at]()
                done[at] += 1

    with ThreadPoolExecutor(len(works)) as pool:
        running = [pool.submit(go, at) for at in range(len(works))]
        try:
            yield done
        finally:
            stop.set()
            for each in running:
                each.result(LIMIT_S)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.fault("K12")
def test_1000_commits_of_two_flows_are_there_once_beside_users_and_an_unreliable_store(spark, object_store, store_line, tenant):
    place = f"s3a://{BUCKET}/{tenant}/events"
    folder = made(TableFolder(place, object_store.options(store_line.endpoint)))
    table = f"delta.`{place}`"
    statements = in_turn(
        f"OPTIMIZE {table}",
        f"DELETE FROM {table} WHERE sequence < 0",
        f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.logRetentionDuration' = 'interval {{}} days')",
        f"VACUUM {table}",
    )
    writers = [Writer(name, folder) for name in ("one", "two")]
    store_line.lose_answers("_delta_log/[0-9]*.json", every=7)

    def write(writer: Writer) -> None:
        for number in range(COMMITS):
            writer.commit(number)

    with beside(lambda: spark.sql(next(statements).format(random.randint(30, 90)))) as done, ThreadPoolExecutor(2) as pool:
        writing = [pool.submit(write, each) for each in writers]
        while not any(each.done() for each in writing) and done[0] < 3:
            threading.Event().wait(0.1)
        with store_line.away(Absence.RESETS):
            threading.Event().wait(AWAY_S)
        for each in writing:
            each.result(LIMIT_S)

    found = counts(folder)
    assert found == Counter({(each.owner.flow, number): 1 for each in writers for number in range(COMMITS)})
    assert len(store_line.lost) > 10
    assert sum(each.waits for each in writers), "the store was away"
    print(f"users' statements: {done[0]}, answers lost: {len(store_line.lost)}, waits: {[each.waits for each in writers]}")


def in_turn(*statements: str) -> Iterator[str]:
    while True:
        yield from statements


@pytest.mark.slow
@pytest.mark.fault("K12")
def test_commits_that_sparks_default_log_store_overwrites_are_noticed_and_repeated(
    spark, object_store, store_line, tenant, caplog
):
    """Delta's own class for S3 looks whether an entry exists, and then writes it. The flow commits at any moment of that."""
    place = f"s3a://{BUCKET}/{tenant}/events"
    folder = made(TableFolder(place, object_store.options()))
    writer = Writer("one", folder)
    configuration = spark._jvm.org.apache.hadoop.conf.Configuration(spark._jsc.hadoopConfiguration())
    foreign = spark._jvm.io.delta.storage.S3SingleDriverLogStore(configuration)
    store_line.delay(0.05)
    entry = json.dumps({"commitInfo": {"timestamp": 0, "operation": "OPTIMIZE", "operationParameters": {}}})

    def optimize(version: int) -> None:
        lines = spark._jvm.java.util.ArrayList()
        lines.add(entry)
        path = spark._jvm.org.apache.hadoop.fs.Path(f"{place}/_delta_log/{version:020}.json")
        with suppress(Py4JError):  # it exists already
            foreign.write(path, lines.iterator(), False, configuration)

    def noticed() -> list[str]:
        return [each.getMessage() for each in caplog.records if "has overwritten version" in each.getMessage()]

    number, deadline = 0, time.monotonic() + LIMIT_S
    with caplog.at_level(logging.ERROR), ThreadPoolExecutor(1) as pool:
        while len(noticed()) < 3:
            writing = pool.submit(optimize, DeltaTable(folder.uri, storage_options=folder.storage).version() + 1)
            threading.Event().wait(0.03 * (number % 20))
            writer.commit(number)
            writing.result(LIMIT_S)
            number += 1
            assert time.monotonic() < deadline, f"{number} commits, and none was overwritten"
        writer.commit(number)  # notices what was overwritten last

    assert counts(folder) == Counter({("one", each): 1 for each in range(number + 1)})
    assert all("batch" in each and "log store" in each for each in noticed())
    print(f"{number + 1} commits, {len(noticed())} overwritten and repeated")


@pytest.mark.slow
def test_the_ledger_of_a_flow_on_an_unreliable_store_balances(stored_flow, store_line, make_event, spark, folder, capsys):
    table = f"delta.`{stored_flow.settings.flow.tables}/events`"
    store_line.lose_answers("_delta_log/[0-9]*.json", every=3)
    for _ in range(5):
        stored_flow.land([make_event() for _ in range(50)])
        stored_flow.run()
        spark.sql(f"OPTIMIZE {table}")
        spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.logRetentionDuration' = 'interval 40 days')")
    assert store_line.lost
    config = folder / "cloud.toml"
    settings = stored_flow.settings
    config.write_text(
        f'tenant = "{settings.tenant}"\nshards = {settings.shards}\n'
        f'[kafka]\n"bootstrap.servers" = "{settings.kafka["bootstrap.servers"]}"\n'
        f'[flow]\ntables = "{settings.flow.tables}"\ncheckpoint = "{settings.flow.checkpoint}"\nraw_days = 0\n'
        f'[store]\nendpoint = "{settings.store.endpoint}"\nkey_file = "{Path(str(settings.store.key_file))}"\n'
    )

    main(["ledger", "verify", "--config", str(config), "--silent", "3650d", "--json"])

    report = json.loads(capsys.readouterr().out)
    (stream,) = report["streams"]
    assert (stream["kafka"], stream["table"], stream["losses"], stream["gaps"]) == (250, 250, [], [])
    assert report["balances"], report["findings"]
