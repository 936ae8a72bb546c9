"""The number of this copy of the outbox, in `copy.json` in the data folder (see `copy` in `fogline.gateway.hello.Hello`).

The number is not in the outbox's file, so that a gateway which is restored from a backup has none, and gets a new one from the
bridge. A copy that was replaced stays so; without the file it counts as the newest copy.
"""

import asyncio
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from fogline.process.files.durable_file import replace_file

FILE = "copy.json"


class CopyRecord(msgspec.Struct, frozen=True):
    """The content of the file. `number`: 0 if the bridge has not given one yet. `restored`: time of the backup, "" for none.

    `replaced`: a copy that was restored later serves the devices.
    """

    number: int = 0
    restored: str = ""
    replaced: bool = False


OLDEST = 1
"""The number of a gateway that had none when it was backed up."""


def read_copy(folder: Path) -> CopyRecord:
    """Return the record of the copy in a data folder. A file that cannot be read counts as missing."""
    try:
        return msgspec.json.decode((folder / FILE).read_bytes(), type=CopyRecord)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return CopyRecord()


def change_copy(folder: Path, change: Callable[[CopyRecord], CopyRecord]) -> None:
    """Change the record durably, one process at a time. Raises `OSError`."""
    directory = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        known = read_copy(folder)
        if (changed := change(known)) != known:
            replace_file(folder / FILE, msgspec.json.encode(changed) + b"\n", 0o640)
            os.fsync(directory)
    finally:
        os.close(directory)


class CopyFile:
    """The file of a running gateway. `replaced` is set when a bridge has said so."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.replaced = asyncio.Event()
        if read_copy(folder).replaced:
            self.replaced.set()

    async def number(self) -> int:
        """Return the number, 0 for none. It is read again each time, because `fogline-edge backup` may write it."""
        return (await asyncio.to_thread(read_copy, self._folder)).number

    async def learn(self, number: int, *, replaced: bool) -> None:
        """Keep what the bridge said. Raises `OSError`."""

        def learnt(known: CopyRecord) -> CopyRecord:
            return msgspec.structs.replace(known, number=known.number or number, replaced=known.replaced or replaced)

        await asyncio.to_thread(change_copy, self._folder, learnt)
        if replaced:
            self.replaced.set()
