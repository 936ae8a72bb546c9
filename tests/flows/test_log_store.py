"""Spark's commits to tables in an object store: put-if-absent, so that no commit of another program is overwritten."""

import json
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier

import obstore
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from obstore.exceptions import AlreadyExistsError
from obstore.store import S3Store
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from fogline_lab.http_line import HttpLine
from fogline_lab.object_store import BUCKET
from fogline_lab.supervisor import ChildProcess

APPENDING = """
import json, sys
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
url, options = sys.argv[1], json.loads(sys.argv[2])
print(json.dumps({"ready": True}), flush=True)
committed = 0
for line in sys.stdin:
    write_deltalake(url, pa.table({"number": [committed]}), mode="append", storage_options=options)
    committed += 1
    print(json.dumps({"committed": committed}), flush=True)
"""


class LogStore:
    """Our class, called as Delta calls it. `endpoint`: another way to the store."""

    def __init__(self, spark: SparkSession, endpoint: str | None = None) -> None:
        self._jvm = spark._jvm
        self.configuration = self._jvm.org.apache.hadoop.conf.Configuration(spark._jsc.hadoopConfiguration())
        if endpoint is not None:
            self.configuration.set("fs.s3a.endpoint", endpoint)
            self.configuration.set("fs.s3a.impl.disable.cache", "true")
            self.configuration.set("fs.s3a.attempts.maximum", "1")
            self.configuration.set("fs.s3a.retry.limit", "1")
        self._store = self._jvm.fogline.PutIfAbsentLogStore(self.configuration)

    def write(self, url: str, *lines: str, overwrite: bool = False) -> None:
        given = self._jvm.java.util.ArrayList()
        for each in lines:
            given.add(each)
        self._store.write(self._jvm.org.apache.hadoop.fs.Path(url), given.iterator(), overwrite, self.configuration)

    def try_to_write(self, url: str, *lines: str) -> bool:
        """Return False if the file exists."""
        with suppress(Py4JJavaError):
            self.write(url, *lines)
            return True
        return False

    def read(self, url: str) -> list[str]:
        found = self._store.read(self._jvm.org.apache.hadoop.fs.Path(url), self.configuration)
        lines = []
        while found.hasNext():
            lines.append(found.next())
        found.close()
        return lines


@pytest.fixture
def commit(tenant) -> str:
    """The URL of a commit that does not exist."""
    return f"s3a://{BUCKET}/{tenant}/{uuid.uuid4()}/_delta_log/00000000000000000000.json"


@pytest.fixture
def line(object_store, folder):
    with HttpLine(object_store.port, folder / "line.log") as made:
        yield made


def test_a_commit_that_exists_is_not_overwritten(spark, commit):
    store = LogStore(spark)
    store.write(commit, "ours")
    with pytest.raises(Py4JJavaError, match="FileAlreadyExistsException"):
        store.write(commit, "theirs")
    assert store.read(commit) == ["ours"]


def test_a_file_that_is_to_be_overwritten_is(spark, commit):
    store = LogStore(spark)
    for content in ("1", "2"):
        store.write(commit, content, overwrite=True)
    assert store.read(commit) == ["2"]


@pytest.mark.parametrize("answers", [1, 100], ids=["one answer", "every answer"])
def test_a_commit_whose_answer_is_lost_is_a_commit(spark, commit, line, answers):
    line.lose_answers("_delta_log", limit=answers)
    LogStore(spark, line.endpoint).write(commit, "ours", "twice")
    assert line.lost
    assert LogStore(spark).read(commit) == ["ours", "twice"]


def test_a_commit_of_another_program_is_not_taken_for_ours_when_an_answer_is_lost(spark, commit, line):
    LogStore(spark).write(commit, "theirs")
    line.lose_answers("_delta_log")
    with pytest.raises(Py4JJavaError, match="FileAlreadyExistsException"):
        LogStore(spark, line.endpoint).write(commit, "ours")
    assert LogStore(spark).read(commit) == ["theirs"]


@pytest.mark.fault("K25")
def test_of_two_programs_that_write_a_commit_at_the_same_time_one_succeeds(spark, object_store, commit, line, folder):
    """Each delay lets the other program write at another moment between Spark's first request and its last one."""
    secret = object_store.options()["aws_secret_access_key"]
    with HttpLine(object_store.port, folder / "other.log") as other, ThreadPoolExecutor(1) as pool:
        line.delay(0.1)
        client = S3Store(
            *(BUCKET,),
            endpoint=other.endpoint,
            region="us-east-1",
            access_key_id=object_store.key_id,
            secret_access_key=secret,
            client_options={"allow_http": True},
        )
        store = LogStore(spark, line.endpoint)
        for number in range(10):
            url, start = f"{commit}.{number}", Barrier(2)
            other.delay(0.05 * number)

            def theirs(path: str = url.partition(f"{BUCKET}/")[2], start: Barrier = start) -> bool:
                start.wait()
                try:
                    obstore.put(client, path, b"theirs\n", mode="create")
                except AlreadyExistsError:
                    return False
                return True

            found = pool.submit(theirs)
            start.wait()
            ours = store.try_to_write(url, "ours")
            assert (ours, found.result()) in {(True, False), (False, True)}
            assert store.read(url) == ["ours" if ours else "theirs"]


@pytest.mark.fault("K25")
def test_commits_of_spark_and_of_delta_rs_at_the_same_time_are_all_there(spark, object_store, tenant, folder):
    url, options, count, each_time = f"s3a://{BUCKET}/{tenant}/raced", object_store.options(), 3, 2
    write_deltalake(url, pa.table({"number": [-1]}), storage_options=options)
    beside = ChildProcess("delta-rs", [sys.executable, "-c", APPENDING, url, json.dumps(options)], folder / "beside.log")
    beside.start()
    beside.next_line()
    for number in range(count):
        for _ in range(each_time):
            beside.tell()
        _commit(spark, url, f"spark-{number}.parquet")
    for _ in range(each_time * count):
        committed = beside.next_line()["committed"]
    beside.kill()
    beside.join()
    found = pa.table(DeltaTable(url, storage_options=options).get_add_actions(flatten=True)).column("path").to_pylist()
    assert sorted(each for each in found if each.startswith("spark-")) == sorted(f"spark-{n}.parquet" for n in range(count))
    assert len(found) == 1 + count + committed


def _commit(spark, url, path):
    """Commit a file by Spark's transaction, as a replay does."""
    jvm = spark._jvm
    package = getattr(jvm, "org.apache.spark.sql.delta")
    add = {"path": path, "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
    transaction = package.DeltaLog.forTable(spark._jsparkSession, url).startTransaction()
    operation = getattr(getattr(package, "DeltaOperations$ManualUpdate$"), "MODULE$")
    transaction.commit(jvm.PythonUtils.toSeq([package.actions.Action.fromJson(json.dumps({"add": add}))]), operation)
