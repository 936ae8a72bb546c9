"""A pipeline's folder: its spec (`spark-pipeline.yml`), and where its tables are."""

import re
from pathlib import Path
from typing import Any

import msgspec
from pyspark.errors import PySparkException
from pyspark.pipelines.cli import PIPELINE_SPEC_FILE_NAMES, PipelineSpec, load_pipeline_spec
from yaml import YAMLError

from fogline.errors import Misconfigured
from fogline_cloud.flows.tables.files import TableFolder
from fogline_cloud.store.failure import first_line

CATALOG = "spark_catalog"
_DEFAULT = "default"


class Pipeline(msgspec.Struct, frozen=True):
    """A pipeline. `storage`: the folder of its tables, checkpoints and notes, an absolute path or a URL."""

    file: Path
    spec: Any  # PySpark's PipelineSpec
    storage: str
    database: str

    @property
    def name(self) -> str:
        """The name in the spec."""
        name: str = self.spec.name
        return name

    @property
    def tables(self) -> str:
        """The folder of the tables; each is in a folder of its name."""
        return f"{self.storage}/tables"

    @property
    def uri(self) -> str:
        """`storage` as a URL, which Spark asks for."""
        return self.storage if "://" in self.storage else Path(self.storage).as_uri()

    def table(self, name: str, options: dict[str, str]) -> TableFolder:
        """Return the folder of a table. `options`: of delta-rs."""
        return TableFolder(f"{self.tables}/{name}", options)

    def checkpoint(self, table: str, flow: str) -> str:
        """Return Spark's folder of the checkpoints of a flow into a streaming table."""
        return f"{self.storage}/_checkpoints/{CATALOG}/{self.database}/{table}/{flow}"

    def stored_in(self, storage: Path, database: str) -> "Pipeline":
        """Return the same pipeline with tables in another folder, under another database. It keeps what this one has there."""
        moved = msgspec.structs.replace(self, storage=str(storage.absolute()), database=database)
        former = Path(moved.storage, "_checkpoints", CATALOG, self.database)
        if former.exists():
            former.rename(former.with_name(database))
        return moved


def read_pipeline(place: Path) -> Pipeline:
    """Read the spec in a folder, or this spec. Raises `Misconfigured`."""
    file = _spec_file(place)
    try:
        spec: PipelineSpec = load_pipeline_spec(file)
    except (PySparkException, YAMLError, OSError, TypeError, KeyError, AttributeError) as error:
        raise Misconfigured(f"{file}: {first_line(error)}") from None
    if spec.catalog not in (None, CATALOG):
        raise Misconfigured(f"{file}: catalog {spec.catalog}: a pipeline's tables are in its storage, leave `catalog` out")
    database = spec.database if spec.database not in (None, _DEFAULT) else re.sub(r"\W", "_", spec.name.lower())
    return Pipeline(file, spec, _storage(file.parent, spec.storage), database)


def _spec_file(place: Path) -> Path:
    if place.is_file():
        return place.absolute()
    files: list[Path] = [(place / name).absolute() for name in PIPELINE_SPEC_FILE_NAMES if (place / name).is_file()]
    if files:
        return files[0]
    raise Misconfigured(
        f"{place} has no spark-pipeline.yml: name the folder of a pipeline, or make one with `fogline pipeline init`"
    )


def _storage(folder: Path, storage: str) -> str:
    place = storage.removeprefix("file://").rstrip("/")
    return place if "://" in place else str((folder / place).absolute())
