"""Copies of key files on the driver's disk, for a table whose folder is a URL: a key file never changes.

Several flows may use one folder at once. A copy appears as a whole or not at all, and one that another process deletes stays
readable while it is mapped. The folder has a bound in bytes: the copies that were used least recently are deleted first.
"""

import hashlib
import logging
import os
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from fogline_cloud.flows.tables.files import TableFolder
from fogline_cloud.flows.tables.id_keys import KEY_FILE_SUFFIX, KeyFiles, Keys, LocalKeyFiles, decoded, mapped, read_content
from fogline_cloud.settings import FlowSettings

FOLDER = "fogline-keys"
"""The default of `flow.key_cache`, in the working folder: Spark's log is there too if the checkpoint is a URL."""
_PART = ".part"
_ABANDONED_S = 3600.0  # a writer that takes longer was killed

log = logging.getLogger(__name__)


class KeyCache:
    """The key files of one table, read through a folder on this machine's disk. Not thread-safe.

    `below`: a folder for several tables. `most_bytes`: the bound on this table's copies, by all processes. A copy that a
    look-up has used is not deleted for another one of the same look-up (`begin`): those that find no room are read from the
    URL each time. Without a folder that can be written, all are.
    """

    def __init__(self, folder: TableFolder, below: Path, most_bytes: int) -> None:
        self._table = folder
        self._folder = below / _name(folder.uri)
        self._most_bytes = most_bytes
        self._maps: dict[str, Keys] = {}  # by the name of the copy: the kernel keeps them, as far as there is memory
        self._used: set[str] = set()
        self._free: int | None = None  # bytes, as far as this look-up knows
        self._works = most_bytes > 0

    def begin(self) -> None:
        """Begin a look-up."""
        self._used.clear()
        self._free = None  # other processes may have written copies

    def keys(self, path: str) -> Keys | None:
        """Return the keys of a file of the table, `None` if it has no key file that is whole."""
        name = f"{_name(path)}{KEY_FILE_SUFFIX}"
        if (keys := self._copied(name)) is not None:
            return keys
        content = read_content(self._table, path)
        keys = None if content is None else decoded(content)
        if content is not None and keys is not None and self._store(name, content):
            copied = self._copied(name)
            return keys if copied is None else copied
        return keys

    def forget_all_but(self, files: Mapping[str, int]) -> None:
        """Delete the copies for files that the table does not have any more."""
        needed = {f"{_name(path)}{KEY_FILE_SUFFIX}" for path in files}
        for name in {each.name for each in self._copies()} - needed:
            self._delete(name)

    def _copied(self, name: str) -> Keys | None:
        """Return the keys of a copy, and note that it was used. A damaged copy counts as none."""
        copy = self._folder / name
        try:
            os.utime(copy, ns=(time.time_ns(),) * 2)  # the kernel's own times are some milliseconds apart
        except OSError:  # another process may have deleted it
            self._maps.pop(name, None)
            return None
        if name not in self._maps:
            content = mapped(copy)
            keys = None if content is None else decoded(content)
            if keys is None:
                return None
            self._maps[name] = keys
        self._used.add(name)
        return self._maps[name]

    def _store(self, name: str, content: bytes) -> bool:
        """Write a copy, if there is room for it. Returns False if there is none."""
        if not self._works or not self._has_room(len(content)):
            return False
        part = self._folder / f"{uuid.uuid4()}{_PART}"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            part.write_bytes(content)
            part.replace(self._folder / name)
            self._free = (self._free or 0) - len(content)
        except OSError as error:
            with suppress(OSError):
                part.unlink()
            self._works = False
            log.warning("%s: key files are read from the object store each time: %s", self._folder, error.strerror)
            return False
        return True

    def _has_room(self, size: int) -> bool:
        """Delete copies until there is room for one more. Returns False if too much of the bound is in use."""
        if self._free is None or self._free < size:
            copies = self._copies()
            self._free = self._most_bytes - sum(each.stat.st_size for each in copies)
            for each in sorted(copies, key=lambda each: each.stat.st_mtime_ns):
                if self._free >= size:
                    break
                if each.name not in self._used:
                    self._delete(each.name)
                    self._free += each.stat.st_size
        return self._free >= size

    def _copies(self) -> list["_Copy"]:
        """Return the copies, and delete what killed writers have left."""
        found = []
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(self._folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # another process may delete it meanwhile
                    each = _Copy(entry.name, entry.stat())
                    if not entry.name.endswith(_PART):
                        found.append(each)
                    elif each.stat.st_mtime < time.time() - _ABANDONED_S:
                        self._delete(entry.name)
        return found

    def _delete(self, name: str) -> None:
        self._maps.pop(name, None)
        with suppress(OSError):
            (self._folder / name).unlink()


class _Copy:
    """A copy in the folder."""

    def __init__(self, name: str, stat: os.stat_result) -> None:
        self.name = name
        self.stat = stat


def key_files_of(flow: FlowSettings, events: TableFolder) -> KeyFiles:
    """Return the key files of table `events`: those in its folder, or copies on this machine if the folder is a URL."""
    if "://" not in events.path:
        return LocalKeyFiles(events)
    return KeyCache(events, Path(flow.key_cache or FOLDER).absolute(), flow.key_cache_mib << 20)


def _name(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
