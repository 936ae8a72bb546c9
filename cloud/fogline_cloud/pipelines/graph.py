"""The tables of a pipeline, and what each reads, as values. Pure."""

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from fogline.errors import Misconfigured

OURS = ("events", "raw", "readings")
"""Names of Fogline's tables as sources."""


class DatasetKind(StrEnum):
    """What a dataset is."""

    STREAM = "streaming table"
    VIEW = "view"
    MATERIALIZED = "materialized view"
    SINK = "sink"


class DatasetRead(msgspec.Struct, frozen=True, order=True):
    """One thing that a dataset reads: another dataset, or a source.

    `watermark`: the query sets a watermark on it.
    """

    name: str
    streaming: bool = False
    watermark: bool = False


class Dataset(msgspec.Struct, frozen=True):
    """A table or a view.

    `keeps_rows`: a streaming table that is never emptied (Spark's table property `pipelines.reset.allowed` is false).
    """

    name: str
    kind: DatasetKind
    reads: tuple[DatasetRead, ...] = ()
    keeps_rows: bool = False

    @property
    def is_stored(self) -> bool:
        """True if a run writes rows of it into a table."""
        return self.kind in (DatasetKind.STREAM, DatasetKind.MATERIALIZED)


class Graph(msgspec.Struct, frozen=True):
    """The datasets of a pipeline. Names that they read and that are no dataset are sources.

    A source is one of Fogline's tables, or a path: relative to the pipeline's folder if it is within it.
    """

    datasets: tuple[Dataset, ...]

    def find(self, name: str) -> Dataset | None:
        """Return a dataset, `None` for a source."""
        return next((each for each in self.datasets if each.name == name), None)

    @property
    def sources(self) -> tuple[str, ...]:
        """Names of the sources."""
        own = {each.name for each in self.datasets}
        return tuple(sorted({read.name for each in self.datasets for read in each.reads} - own))

    @property
    def tables(self) -> tuple[Dataset, ...]:
        """The datasets whose rows are stored."""
        return tuple(each for each in self.datasets if each.is_stored)

    def roots(self, name: str) -> set[str]:
        """Return the sources that lead to this dataset; of a source, itself."""
        found, seen, ahead = set(), {name}, [name]
        while ahead:
            dataset = self.find(current := ahead.pop())
            if dataset is None:
                found.add(current)
                continue
            new = {read.name for read in dataset.reads} - seen
            seen |= new
            ahead += new
        return found

    def streamed_sources(self, name: str) -> set[str]:
        """Return the sources whose rows a streaming table reads once, as they come: through views and other streams too.

        Not through tables that keep their rows, because what is removed from a source stays in these.
        """
        found, seen, ahead = set(), {name}, [name]
        while ahead:
            dataset = self.find(current := ahead.pop())
            if dataset is None:
                found.add(current)
            elif dataset.kind is not DatasetKind.MATERIALIZED and not (dataset.keeps_rows and current != name):
                new = {read.name for read in dataset.reads if read.streaming} - seen
                seen |= new
                ahead += new
        return found

    def streams_after(self, names: Iterable[str]) -> set[str]:
        """Return these streaming tables, and those that read them as streams: they must be refreshed together."""
        found = {name for name in names if (each := self.find(name)) is not None and each.kind is DatasetKind.STREAM}
        kept = {each.name for each in self.datasets if each.keeps_rows}
        reached, grows = set(found), True
        while grows:
            more = {
                each.name
                for each in self.datasets
                if each.name not in reached | kept and any(read.streaming and read.name in reached for read in each.reads)
            }
            reached |= more
            grows = bool(more)
        return {name for name in reached if (each := self.find(name)) is not None and each.kind is DatasetKind.STREAM}


def require_no_watermark(graph: Graph) -> None:
    """Raise `Misconfigured` if a query sets a watermark on Fogline's tables, or on what leads from them."""
    for each in graph.datasets:
        for read in each.reads:
            if read.watermark and (ours := graph.roots(read.name) & {*OURS}):
                raise watermark_refused(each.name, " and ".join(sorted(ours)))


def watermark_refused(name: str, source: str) -> Misconfigured:
    """Return the error for a watermark. `name`: of the dataset."""
    return Misconfigured(
        f"{name}: a watermark on {source} drops the events of a gateway that was offline for longer: make it a materialized "
        "view, or read a table that frames.windows keeps (docs/pipelines.md)"
    )
