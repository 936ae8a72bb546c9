"""Keys of events: the files of `events` that may hold an event with a given `(source, id)`.

A key is 64 bits of a hash of `(source, id)`. Maintenance writes a key file for each file of the table: the sorted keys of its
rows. A key that is not there proves that the event is not in the file. A key that is there proves nothing, because two events
may have the same key: the file is then read. So a file without a key file, or a key file too much, costs time only.
"""

import hashlib
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from struct import Struct
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.exceptions import DeltaError

from fogline_cloud.flows.tables.files import TableFolder

Keys = npt.NDArray[np.uint64]
"""Sorted keys, each once."""
FOLDER = "_ids"
"""Folder of key files, within the table's folder. Delta ignores names that begin with `_`."""
MAX_HASHED_BYTES = 64 << 20
"""Size of the files without a key file whose keys one look-up computes. Further ones are read until they have a key file."""
MAX_CACHED_BYTES = 512 << 20
"""Memory for keys that no local key file holds. Further ones are read at each look-up."""
_SUFFIX = ".keys1"
_HEAD = Struct("<4sIQ")  # magic, CRC of the keys, number of keys
_MAGIC = b"FLk1"
_KEY_BYTES = 8
_ROWS = 64 * 1024


def keys_of(rows: pa.Table | pa.RecordBatch) -> Keys:
    """Return the keys of rows with columns `source` and `id`. A row without one of them has no key."""
    return np.unique(hashes_of(rows, ("source", "id")))


def hashes_of(rows: pa.Table | pa.RecordBatch, names: Sequence[str]) -> Keys:
    """Return a hash of 64 bits of these columns for each row, in their order. A row without one of them has no hash."""
    columns = (rows.column(name).cast(pa.binary()) for name in names)
    joined = pc.drop_null(pc.binary_join_element_wise(*columns, b"\n"))
    digest = hashlib.blake2b
    hashed = b"".join([digest(each, digest_size=_KEY_BYTES).digest() for each in joined.to_numpy(zero_copy_only=False)])
    return np.frombuffer(hashed, "<u8")


def keys_in(folder: TableFolder, path: str) -> Keys:
    """Return the keys of the rows of one file of the table."""
    with folder.file_system().open_input_file(path) as source:
        batches = pq.ParquetFile(source).iter_batches(_ROWS, columns=["source", "id"])
        return np.unique(np.concatenate([np.empty(0, np.uint64), *map(keys_of, batches)]))


def key_path(path: str) -> str:
    """Return the path of the key file of a file, both relative to the table's folder."""
    return f"{FOLDER}/{path}{_SUFFIX}"


def write_key_file(folder: TableFolder, path: str) -> None:
    """Write the key file of one file. It appears as a whole or not at all."""
    keys = keys_in(folder, path)
    content = _HEAD.pack(_MAGIC, zlib.crc32(keys.data), len(keys)) + keys.tobytes()
    system = folder.file_system()
    system.create_dir(f"{FOLDER}/{path}".rpartition("/")[0])
    # A larger buffer than the content: delta-rs refuses the object that Arrow passes without one.
    with system.open_output_stream(key_path(path), buffer_size=len(content) + 1) as out:
        out.write(content)


def read_key_file(folder: TableFolder, path: str) -> Keys | None:
    """Return the content of the key file of a file, `None` without one that is whole. A local one is mapped into memory."""
    content: Any
    try:
        if "://" in folder.path:
            with folder.file_system().open_input_file(key_path(path)) as source:
                content = np.frombuffer(source.read(), np.uint8)
        else:
            content = np.memmap(Path(folder.path) / key_path(path), np.uint8, "r")
    except (OSError, DeltaError, ValueError):  # ValueError: an empty file
        return None
    if len(content) < _HEAD.size:
        return None
    magic, checksum, count = _HEAD.unpack(content[: _HEAD.size].tobytes())
    keys: Keys = content[_HEAD.size :]
    if magic != _MAGIC or len(keys) != count * _KEY_BYTES or zlib.crc32(keys.data) != checksum:
        return None
    return keys.view("<u8")


def may_hold(keys: Keys, wanted: Keys) -> bool:
    """Return True if one of the wanted keys is among the keys."""
    if not len(keys):
        return False
    found = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return bool((keys[found] == wanted).any())


class IdIndex:
    """Looks up events in table `events`, for the driver. Remembers the keys of files, which never change."""

    def __init__(self, folder: TableFolder) -> None:
        self._folder = folder
        self._mapped: dict[str, Keys] = {}  # of local key files: the kernel keeps them, as far as there is memory
        self._cached: dict[str, Keys] = {}

    def holding(self, files: Mapping[str, int], wanted: Keys) -> list[str]:
        """Return the paths of the files that may hold one of the wanted keys. `files`: path and size of each."""
        left = MAX_HASHED_BYTES
        found = []
        for path, size in files.items():
            keys = self._known(path)
            if keys is None and size <= left:
                left -= size
                keys = keys_in(self._folder, path)
                self._cache(path, keys)
            if keys is None or may_hold(keys, wanted):
                found.append(path)
        return found

    def forget_all_but(self, files: Mapping[str, int]) -> None:
        """Forget the keys of files that the table does not have any more."""
        for known in (self._mapped, self._cached):
            for path in known.keys() - files.keys():
                del known[path]

    def _known(self, path: str) -> Keys | None:
        keys = self._mapped.get(path)
        keys = self._cached.get(path) if keys is None else keys
        if keys is None and (keys := read_key_file(self._folder, path)) is not None:
            if isinstance(keys, np.memmap):
                self._mapped[path] = keys
            else:
                self._cache(path, keys)
        return keys

    def _cache(self, path: str, keys: Keys) -> None:
        if sum(each.nbytes for each in self._cached.values()) + keys.nbytes <= MAX_CACHED_BYTES:
            self._cached[path] = keys
