"""The files of a new pipeline: a spec, an example that runs, and its test."""

import json
import re
from pathlib import Path
from string import Template

from fogline.errors import Misconfigured

_NAME = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*")

_SPEC = """\
name: $name
storage: storage  # tables, checkpoints and notes: a folder beside this file
libraries:
  - glob:
      include: transformations/**
configuration:
  spark.sql.session.timeZone: UTC
"""

_QUERIES = '''\
"""Temperatures as they come, and their means by hour."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from fogline_cloud.pipelines import expect_or_drop, readings

spark = SparkSession.active()


@dp.table
@expect_or_drop("plausible", "value BETWEEN -60 AND 60")
def temperatures() -> DataFrame:
    """A streaming table reads each row once. Rows that are not plausible are in `temperatures_rejected`."""
    found = readings(streaming=True).where("metric = 'temperature' AND NOT coalesce(again, false)")
    return found.select("device", F.coalesce("time", "ingested").alias("time"), "value")


@dp.materialized_view
def hourly() -> DataFrame:
    """A materialized view is computed anew in each run, so late events are in their hours."""
    hours = F.window("time", "1 hour").start.alias("start")
    return spark.read.table("temperatures").groupBy("device", hours).agg(F.avg("value").alias("mean"), F.count("*").alias("n"))
'''


def _event(device: str, temperature: float, recordedtime: str) -> str:
    body = json.dumps({"temperature": temperature})
    event = {"device": device, "content_type": "application/json", "body": body, "recordedtime": recordedtime}
    return f"{json.dumps(event)}\n"


_LIVE = (
    _event("oven-1", 20, "2026-01-04T10:05:00Z"),
    _event("oven-1", 22, "2026-01-04T10:35:00Z"),
    _event("oven-1", 999, "2026-01-04T10:40:00Z"),
)
_LATE = _event("oven-2", 18, "2026-01-01T10:15:00Z")
_HOURLY = """\
{"device": "oven-1", "start": "2026-01-04T10:00:00Z", "mean": 21, "n": 2}
{"device": "oven-2", "start": "2026-01-01T10:00:00Z", "mean": 18, "n": 1}
"""
_REJECTED = """\
{"device": "oven-1", "value": 999, "reasons": ["plausible"]}
"""

_FILES = {
    "spark-pipeline.yml": _SPEC,
    "transformations/temperatures.py": _QUERIES,
    "test/1-live.jsonl": "".join(_LIVE),
    "test/2-three-days-late.jsonl": _LATE,
    "test/expected/hourly.jsonl": _HOURLY,
    "test/expected/temperatures_rejected.jsonl": _REJECTED,
    ".gitignore": "/storage/\n",
}


def write_skeleton(folder: Path) -> list[Path]:
    """Write the files into a new folder. Returns their paths. Raises `Misconfigured`."""
    name = folder.absolute().name
    if not _NAME.fullmatch(name):
        raise Misconfigured(f"pipeline {name!r}: a name is words of a-z and 0-9 with hyphens between them, such as cold-chain")
    written = []
    try:
        folder.mkdir(parents=True)
        for file, text in _FILES.items():
            path = folder / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(Template(text).safe_substitute(name=name), "utf-8")
            written.append(path)
    except FileExistsError:
        raise Misconfigured(f"{folder} exists already: remove it, or choose another name") from None
    except OSError as error:
        raise Misconfigured(f"{folder} cannot be written: {error.strerror}") from None
    return written
