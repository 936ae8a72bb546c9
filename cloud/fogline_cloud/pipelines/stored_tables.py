"""The tables of a pipeline as they are stored: a folder each, whose name is the table's."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow.fs as pafs
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from pyspark.sql import SparkSession

from fogline.errors import Misconfigured
from fogline_cloud.flows.tables.files import TableFolder
from fogline_cloud.pipelines.expectations import REASONS, REJECTED, Expectation, Otherwise
from fogline_cloud.pipelines.pipeline import Pipeline
from fogline_cloud.store.failure import failure_of


class StoredTables:
    """Reads the tables by delta-rs, and names them in Spark's catalog, which is in memory. `options`: of delta-rs."""

    def __init__(self, pipeline: Pipeline, options: dict[str, str]) -> None:
        self._pipeline = pipeline
        self._options = options

    def version(self, name: str) -> int | None:
        """Return the newest version of a table, `None` if there is no such table."""
        table = self._open(name)
        return None if table is None else int(table.version())

    def rows(self, name: str) -> int:
        """Return the number of rows of a table, 0 if there is no such table."""
        table = self._open(name)
        return 0 if table is None else int(table.count())

    def columns(self, name: str) -> list[str]:
        """Return the names of a table's columns. Raises `Misconfigured` if there is no such table."""
        return [field.name for field in self._existing(name).schema().fields]

    def contents(self, name: str) -> list[dict[str, Any]]:
        """Return the rows of a small table. Raises `Misconfigured` if there is no such table."""
        folder = self._pipeline.table(name, self._options)
        rows: list[dict[str, Any]] = self._existing(name).to_pyarrow_table(filesystem=folder.for_scans()).to_pylist()
        return rows

    def make_database(self, spark: SparkSession) -> None:
        """Name the folder of the tables in Spark's catalog: a new table is a folder in it."""
        place = _escaped(self._pipeline.tables)
        spark.sql(f"CREATE DATABASE IF NOT EXISTS `{self._pipeline.database}` LOCATION '{place}'")

    def name_in_catalog(self, spark: SparkSession) -> None:
        """Name the tables of former runs in Spark's catalog: the folders are the truth, also after a move or a kill."""
        for name in self._names():
            place = _escaped(f"{self._pipeline.tables}/{name}")
            spark.sql(f"CREATE TABLE IF NOT EXISTS {self._quoted(name)} USING delta LOCATION '{place}'")

    def restore(self, spark: SparkSession, name: str, version: int) -> None:
        """Make the rows of a former version the table's rows again."""
        spark.sql(f"RESTORE TABLE {self._quoted(name)} TO VERSION AS OF {version}")

    def broken(self, spark: SparkSession, expectations: Mapping[str, Sequence[Expectation]]) -> dict[str, dict[str, int]]:
        """Return the number of rows that break each expectation, by table: of the table, or of that of its rejected rows."""
        return {name: self._broken(spark, name, found) for name, found in expectations.items()}

    def _broken(self, spark: SparkSession, name: str, expectations: Sequence[Expectation]) -> dict[str, int]:
        warned = [each for each in expectations if each.otherwise is Otherwise.WARN]
        counts = {each.name: 0 for each in expectations}
        if warned:
            columns = ", ".join(f"count_if(NOT {each.met})" for each in warned)
            (row,) = spark.sql(f"SELECT {columns} FROM {self._quoted(name)}").collect()  # noqa: S608 - the pipeline's own SQL
            counts |= dict(zip((each.name for each in warned), row, strict=True))
        if any(each.otherwise is Otherwise.DROP for each in expectations):
            rejected = self._quoted(f"{name}{REJECTED}")
            found = f"SELECT reason, count(*) FROM (SELECT explode({REASONS}) AS reason FROM {rejected}) GROUP BY reason"  # noqa: S608
            counts |= {row[0]: row[1] for row in spark.sql(found).collect()}
        return counts

    def _names(self) -> list[str]:
        system = TableFolder(self._pipeline.tables, self._options).file_system()
        found = system.get_file_info(pafs.FileSelector("", allow_not_found=True))
        folders = [each.base_name for each in found if each.type is pafs.FileType.Directory]
        return sorted(name for name in folders if self.version(name) is not None)

    def _existing(self, name: str) -> DeltaTable:
        table = self._open(name)
        if table is None:
            raise Misconfigured(f"there is no table {name} in this pipeline (tables: {', '.join(self._names())})")
        return table

    def _open(self, name: str) -> DeltaTable | None:
        folder = self._pipeline.table(name, self._options)
        try:
            return DeltaTable(folder.uri, storage_options=folder.storage)
        except TableNotFoundError:
            return None
        except (DeltaError, OSError) as error:
            raise failure_of(error, f"{folder.path} cannot be read") from None

    def _quoted(self, name: str) -> str:
        return f"`{self._pipeline.database}`.`{name}`"


def _escaped(path: str) -> str:
    return path.replace("\\", "\\\\").replace("'", "\\'")
