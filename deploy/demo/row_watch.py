"""Watch on a table: notes when delta-rs first sees each file, and the commits."""

import threading
import time
from pathlib import Path

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

LOOK_S = 0.05


class RowWatch:
    """Follows the table in `folder` in a thread of its own. `seen_s`: when each file was seen first, on the monotonic clock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seen_s: dict[str, float] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="row-watch", daemon=True)

    @property
    def commits_s(self) -> list[float]:
        """Times of the commits that added rows, as they were seen, in order."""
        return sorted(set(self.seen_s.values()))

    def start(self) -> None:
        """Start to watch. The table may be created later."""
        self._thread.start()

    def stop(self) -> None:
        """Look once more, and stop the thread."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        table: DeltaTable | None = None
        stopping = False
        while not stopping:
            stopping = self._stopping.wait(LOOK_S)
            table = self._look(table)

    def _look(self, table: DeltaTable | None) -> DeltaTable | None:
        try:
            if table is None:
                if not (self.folder / "_delta_log").is_dir():
                    return None
                table = DeltaTable(str(self.folder))
            elif not self._log(table.version() + 1).exists():
                return table
            table.update_incremental()
            now = time.monotonic()
            for path in table.file_uris():
                self.seen_s.setdefault(path, now)
        except (DeltaError, OSError):
            return table  # the table is being created
        return table

    def _log(self, version: int) -> Path:
        return self.folder / "_delta_log" / f"{version:020}.json"
