"""Fogline's tables within a pipeline: those of the settings that it runs with, or those of its test."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import msgspec

from fogline.errors import Misconfigured
from fogline_cloud.settings import CloudSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Sources(msgspec.Struct, frozen=True):
    """What the functions of this module read from."""

    spark: Any
    settings: CloudSettings


_active: ContextVar[Sources | None] = ContextVar("fogline_pipeline_sources", default=None)


@contextmanager
def reading_from(spark: "SparkSession", settings: CloudSettings) -> Iterator[None]:
    """Let queries that are declared within the block read the tables of these settings."""
    token = _active.set(Sources(spark, settings))
    try:
        yield
    finally:
        _active.reset(token)


def readings(*, streaming: bool = False, changes: bool = False, **options: Any) -> "DataFrame":
    """Return table `readings` as `fogline_cloud.frames.readings` does, of the settings that the pipeline runs with."""
    from fogline_cloud.frames import readings as frame  # noqa: PLC0415 - the graph and its tests need no Spark

    run = _run("readings")
    return frame(run.spark, run.settings, streaming=streaming, changes=changes, **options)


def events(*, streaming: bool = False, changes: bool = False, **options: Any) -> "DataFrame":
    """Return table `events` as `fogline_cloud.frames.events` does, of the settings that the pipeline runs with."""
    from fogline_cloud.frames import events as frame  # noqa: PLC0415 - as above

    run = _run("events")
    return frame(run.spark, run.settings, streaming=streaming, changes=changes, **options)


def raw(*, streaming: bool = False) -> "DataFrame":
    """Return table `raw` as `fogline_cloud.frames.raw` does, of the settings that the pipeline runs with."""
    from fogline_cloud.frames import raw as frame  # noqa: PLC0415 - as above

    run = _run("raw")
    return frame(run.spark, run.settings, streaming=streaming)


def _run(name: str) -> Sources:
    run = _active.get()
    if run is None:
        raise Misconfigured(
            f"{name}(): only the queries of a pipeline can call this, and `fogline pipeline run` runs them. "
            f"Elsewhere use fogline_cloud.frames.{name}"
        )
    return run
