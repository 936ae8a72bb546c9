"""The files of a checkpoint folder, read without Spark. `checkpoint` opens the folder for the running flow."""

from typing import Any

import msgspec
import pyarrow.fs as pafs
from deltalake.exceptions import DeltaError, TableNotFoundError

from fogline.errors import FoglineError, Misconfigured, Unreachable
from fogline_cloud.flows.tables.files import TableFolder
from fogline_cloud.kafka.clients import Partition
from fogline_cloud.settings import FlowSettings
from fogline_cloud.store.failure import failure_of

_INITIAL = "sources/0/0"  # the offsets at which the first batch begins


def raw_checkpoint(flow: FlowSettings) -> str:
    """Return the checkpoint of the query that writes table `raw`."""
    return f"{flow.checkpoint.rstrip('/')}/raw"


class QueryCheckpoint(msgspec.Struct, frozen=True):
    """State of a checkpoint. `run`: its uuid. `planned`, `done`: its newest planned and finished batch, -1 for none."""

    run: str
    planned: int
    done: int

    def landed(self, decided: int) -> int:
        """Return the newest batch whose records are all in the tables, where `decided` is the newest one in `events`."""
        return min(self.planned, max(self.done, decided))


class CheckpointUnreadable(Misconfigured):
    """The checkpoint cannot be read without Spark."""


class CheckpointFiles:
    """The checkpoint in a folder, a path or a URL that delta-rs can read.

    Raises `CheckpointUnreadable` if it cannot, `Unreachable` if the store is away.
    """

    def __init__(self, folder: str, storage: dict[str, str]) -> None:
        self._folder = folder
        try:
            self._system: pafs.FileSystem | None = TableFolder(folder, storage).file_system()
        except TableNotFoundError:
            self._system = None
        except (DeltaError, OSError) as error:
            raise self._unreadable(error) from None

    def state(self) -> QueryCheckpoint | None:
        """Return the state, `None` if there is no checkpoint."""
        metadata = self._read("metadata")
        if metadata is None:
            return None
        try:
            run: str = msgspec.json.decode(metadata)["id"]
        except (msgspec.MsgspecError, KeyError, TypeError) as error:
            raise self._unreadable(error) from None
        return QueryCheckpoint(run, self._newest("offsets"), self._newest("commits"))

    def read_up_to(self, batch: int) -> dict[Partition, int]:
        """Return the offset after the last one of this batch of each partition; for batch -1, where the first batch begins."""
        text = self._read(_INITIAL if batch < 0 else f"offsets/{batch}")
        if text is None:
            return {}
        try:
            # Version, metadata, offsets of the source; without metadata in the file of the source.
            found = msgspec.json.decode(text.rstrip().rpartition(b"\n")[2], type=dict[str, dict[int, int]])
        except msgspec.MsgspecError as error:
            raise self._unreadable(error) from None
        return {(topic, number): offset for topic, each in found.items() for number, offset in each.items()}

    def _newest(self, name: str) -> int:
        found = self._call(lambda system: system.get_file_info(pafs.FileSelector(name, allow_not_found=True)))
        return max((int(each.base_name) for each in found if each.base_name.isdecimal()), default=-1)

    def _read(self, name: str) -> bytes | None:
        if self._system is None or self._call(lambda system: system.get_file_info(name)).type is not pafs.FileType.File:
            return None
        content: bytes = self._call(lambda system: system.open_input_file(name).read())
        return content

    def _call(self, ask: Any) -> Any:
        try:
            return ask(self._system)
        except (DeltaError, OSError) as error:
            raise self._unreadable(error) from None

    def _unreadable(self, error: Exception) -> FoglineError:
        found = failure_of(error, f"[flow] checkpoint = {self._folder}: it cannot be read")
        return found if isinstance(found, Unreachable) else CheckpointUnreadable(str(found))
