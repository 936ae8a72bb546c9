"""Registers what the files of a pipeline declare with Spark, its expectations included."""

import io
import re
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import msgspec
from google.protobuf.message import Message
from pyspark.errors import PySparkException
from pyspark.pipelines.cli import register_definitions
from pyspark.pipelines.flow import Flow
from pyspark.pipelines.output import MaterializedView, Output, StreamingTable, Table, TemporaryView
from pyspark.pipelines.spark_connect_graph_element_registry import SparkConnectGraphElementRegistry
from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph
from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark uses

from fogline.errors import FoglineError, Misconfigured
from fogline_cloud.pipelines.expectations import (
    REASONS,
    REJECTED,
    Expectation,
    accepted,
    expectations_of,
    query_of,
    reasons,
    rejected,
)
from fogline_cloud.pipelines.graph import watermark_refused
from fogline_cloud.pipelines.pipeline import CATALOG, Pipeline
from fogline_cloud.pipelines.sources import reading_from
from fogline_cloud.settings import CloudSettings
from fogline_cloud.store.failure import first_line

_PROGRESS = re.compile(r"[-\d]+ [:\d]+: (Loading definitions|Found \d+ files|Importing|Registering SQL file)")


class Declared(msgspec.Struct, frozen=True):
    """A pipeline that Spark knows. `graph_id`: Spark's name of it. `expectations`: by the table that they are about."""

    graph_id: str
    expectations: dict[str, tuple[Expectation, ...]]


def declare(pipeline: Pipeline, spark: Any, settings: CloudSettings) -> Declared:
    """Register a pipeline in a session of Spark Connect. Raises `Misconfigured`."""
    spec = pipeline.spec
    try:
        graph_id = create_dataflow_graph(
            spark, default_catalog=CATALOG, default_database=pipeline.database, sql_conf=spec.configuration
        )
        registry = _Registry(spark, graph_id)
        with reading_from(spark, settings), redirect_stdout(_WithoutProgress()):
            register_definitions(pipeline.file, registry, spec, spark, graph_id)
    except FoglineError:
        raise
    except Exception as error:  # the pipeline's own files may raise anything
        raise Misconfigured(f"{pipeline.file.parent}{_place(error, pipeline.file.parent)}: {_one_line(error)}") from error
    return Declared(graph_id, registry.expectations)


class _WithoutProgress(io.TextIOBase):
    """Passes what the pipeline's files print on to stderr, without Spark's own lines."""

    def write(self, text: str) -> int:
        """See `TextIOBase`."""
        if not _PROGRESS.match(text) and text != "\n":
            sys.stderr.write(text)
        return len(text)


class _Registry(SparkConnectGraphElementRegistry):  # type: ignore[misc]  # PySpark leaves this class untyped
    """Splits the query of a table with expectations into the rows that are accepted and those that are rejected."""

    def __init__(self, spark: Any, graph_id: str) -> None:
        super().__init__(spark, graph_id)
        self.expectations: dict[str, tuple[Expectation, ...]] = {}
        self._outputs: dict[str, Output] = {}

    def register_output(self, output: Output) -> None:
        """See `GraphElementRegistry`."""
        self._outputs[output.name] = output
        super().register_output(output)

    def register_flow(self, flow: Flow) -> None:
        """See `GraphElementRegistry`."""
        expectations = expectations_of(flow.func)
        if not expectations:
            self._define(flow, flow.func)
            return
        if isinstance(self._outputs.get(flow.target), TemporaryView):
            raise Misconfigured(f"{flow.target}: expectations belong to a table, not to a view")
        query, kept, dropped = query_of(flow.func), accepted(expectations), rejected(expectations)
        self._define(flow, query if kept is None else lambda: query().where(F.expr(kept)))
        if dropped is not None:
            self._define_rejected(
                flow, lambda: query().where(F.expr(dropped)).withColumn(REASONS, F.expr(reasons(expectations)))
            )
        self.expectations[flow.target] = (*self.expectations.get(flow.target, ()), *expectations)

    def _define_rejected(self, flow: Flow, query: Any) -> None:
        target = f"{flow.target}{REJECTED}"
        if target not in self._outputs:
            kind: type[Table] = (
                MaterializedView if isinstance(self._outputs.get(flow.target), MaterializedView) else StreamingTable
            )
            self.register_output(
                kind(
                    name=target,
                    comment=f"rows that are not in {flow.target}, because they break an expectation",
                    source_code_location=flow.source_code_location,
                    table_properties={},
                    partition_cols=None,
                    cluster_by=None,
                    schema=None,
                    format=None,
                )
            )
        name = f"{flow.name}{REJECTED}"
        self._define(Flow(name, target, flow.spark_conf, flow.source_code_location, query), query)

    def _define(self, flow: Flow, query: Any) -> None:
        try:
            super().register_flow(Flow(flow.name, flow.target, flow.spark_conf, flow.source_code_location, query))
        except PySparkException as error:
            # Spark resolves the input of a watermark at once, and knows no table of the pipeline yet.
            if "TABLE_OR_VIEW_NOT_FOUND" in str(error) and _has_watermark(query()._plan.to_proto(self._client)):  # noqa: SLF001
                raise watermark_refused(flow.target, "a table of the pipeline") from None
            raise


def _has_watermark(message: Message) -> bool:
    for field, value in message.ListFields():
        if field.name == "with_watermark":
            return True
        if field.message_type is None:
            continue
        if any(_has_watermark(each) for each in _messages(value)):
            return True
    return False


def _messages(value: Any) -> list[Message]:
    if isinstance(value, Message):
        return [value]
    values = value.values() if hasattr(value, "values") else value
    return [each for each in values if isinstance(each, Message)]


def _place(error: Exception, folder: Path) -> str:
    """Return the last file and line of the pipeline in the traceback."""
    found, trace = "", error.__traceback__
    while trace is not None:
        file = Path(trace.tb_frame.f_code.co_filename)
        if file.is_relative_to(folder):
            found = f"/{file.relative_to(folder)}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found


def _one_line(error: Exception) -> str:
    text = first_line(error)
    return text if isinstance(error, PySparkException) else f"{type(error).__name__}: {text}"
