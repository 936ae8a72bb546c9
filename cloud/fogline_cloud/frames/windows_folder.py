"""The folder in which windows are kept: their Delta table, the query's checkpoint, their definition, and one owner. No Spark.

| name in the folder | content |
|---|---|
| `_delta_log` and files | the table |
| `_checkpoint` | the checkpoint of the query that follows `readings` |
| `_checkpoint.lock` | the lease of the process that keeps the windows, on a local disk |
| `_windows.json` | the definition of the table's windows. Without it, the table is not one of windows |

The definition is written before table and checkpoint are changed, as incomplete, and once more after it. So a checkpoint is
used only with the windows that it belongs to, whatever was killed in between.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pyarrow.fs as pafs
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import CommitFailedError

from fogline.errors import Misconfigured, Unreachable
from fogline_cloud.flows.start.checkpoint_files import CheckpointFiles
from fogline_cloud.flows.start.lease import held
from fogline_cloud.flows.tables.files import TableFolder, delete_below

APPLICATION = "fogline/windows"
"""Delta transaction application of each commit to the table. Its version is the owner's epoch and the commit's number in it."""
_COMMITS_IN_EPOCH = 1 << 32
_CHECKPOINT = "_checkpoint"
_DEFINITION = "_windows.json"
_BUFFER_BYTES = 1 << 16  # larger than the file: delta-rs refuses the object that Arrow passes without one
_ATTEMPTS = 8
_HOOK = PostCommitHookProperties(cleanup_expired_logs=False)


class Definition(msgspec.Struct, frozen=True):
    """What the windows of a table are. `text`: all that decides about their rows. `is_whole`: the table has all of them."""

    text: str
    is_whole: bool


class WindowsFolder:
    """One folder. `path`: absolute, or a URL. Not thread-safe."""

    def __init__(self, path: str, storage: dict[str, str]) -> None:
        self.path = path
        self.checkpoint = f"{path}/{_CHECKPOINT}"
        self._folder = TableFolder(path, storage)
        self._epoch = 0

    @property
    def is_claimed(self) -> bool:
        """True after `claim`."""
        return self._epoch > 0

    @contextmanager
    def leased(self) -> Iterator[None]:
        """Be the only process on this machine that keeps the folder. Raises `Misconfigured` if another one does."""
        with held(self.checkpoint, f"windows in {self.path}", "process", "Stop that one first, or use another folder"):
            yield

    def open(self, text: str) -> str:
        """Become the owner of the table, if it is there. Returns why all windows must be computed, "" if that is not so.

        `text`: the definition. Raises `Misconfigured` if there is a table of another kind.
        """
        if not DeltaTable.is_deltatable(self._folder.uri, self._folder.storage):
            return "there are none"
        found = self._definition()
        if found is None:
            raise Misconfigured(
                f"windows: {self.path} has a Delta table that is not one of windows, or its {_DEFINITION} is gone: use another "
                "folder, or delete this one"
            )
        self.claim()
        if found.text != text:
            return "they had another definition, or were of another table"
        state = CheckpointFiles(self.checkpoint, self._folder.storage).state()
        if not found.is_whole or state is None or state.done < 0:  # deletions since a first planned micro-batch would be missed
            return "their first computation did not end"
        return ""

    def claim(self) -> None:
        """Become the owner of the table: no other process commits to it from now on. Raises `Unreachable`."""
        for _ in range(_ATTEMPTS):
            table = self._table()
            epoch = (table.transaction_version(APPLICATION) or 0) // _COMMITS_IN_EPOCH + 1
            now_ms = int(time.time() * 1000)
            mark = Transaction(APPLICATION, epoch * _COMMITS_IN_EPOCH, now_ms)
            try:
                table.create_write_transaction(
                    [],
                    mode="append",
                    schema=table.schema(),
                    commit_properties=CommitProperties(app_transactions=[mark]),
                    post_commithook_properties=_HOOK,
                )
            except CommitFailedError:
                continue
            self._epoch = epoch
            return
        raise Unreachable(f"windows in {self.path}: other programs' commits came first {_ATTEMPTS} times: try again later")

    def mark(self, number: int) -> int:
        """Return the version of `APPLICATION` for this owner's commit with a number, 0 or more.

        Delta does nothing in a commit whose version is not above the table's, which a newer owner has raised.
        """
        return self._epoch * _COMMITS_IN_EPOCH + 1 + number

    def require_committed(self, mark: int) -> None:
        """Raise `Misconfigured` if the table does not have this mark as its newest one: another process is the owner."""
        if self._table().transaction_version(APPLICATION) != mark:
            raise Misconfigured(f"windows in {self.path}: another process keeps this folder now, and this one ends")

    def begin(self, text: str) -> None:
        """Note that the table is about to be computed, and forget how far `readings` were read."""
        self._note(Definition(text, is_whole=False))
        delete_below(self._folder, _CHECKPOINT)

    def complete(self, text: str) -> None:
        """Note that the table has all windows."""
        self._note(Definition(text, is_whole=True))

    def _definition(self) -> Definition | None:
        system = self._folder.file_system()
        if system.get_file_info(_DEFINITION).type is not pafs.FileType.File:
            return None
        with system.open_input_file(_DEFINITION) as file:
            try:
                return msgspec.json.decode(file.read(), type=Definition)
            except msgspec.MsgspecError:  # cut off by a kill, before the table was changed
                return Definition("", is_whole=False)

    def _note(self, definition: Definition) -> None:
        with self._folder.file_system().open_output_stream(_DEFINITION, buffer_size=_BUFFER_BYTES) as out:
            out.write(msgspec.json.encode(definition))

    def _table(self) -> DeltaTable:
        return DeltaTable(self._folder.uri, storage_options=self._folder.storage)
