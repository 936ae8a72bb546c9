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
from typing import Any, Protocol

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
"""Memory for keys that no key file on this machine holds. Further ones are read at each look-up."""
KEY_FILE_SUFFIX = ".keys1"
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
    return f"{FOLDER}/{path}{KEY_FILE_SUFFIX}"


def encoded(keys: Keys) -> bytes:
    """Return the content of a key file."""
    return _HEAD.pack(_MAGIC, zlib.crc32(keys.data), len(keys)) + keys.tobytes()


def write_key_file(folder: TableFolder, path: str) -> None:
    """Write the key file of one file. It appears as a whole or not at all."""
    content = encoded(keys_in(folder, path))
    system = folder.file_system()
    system.create_dir(f"{FOLDER}/{path}".rpartition("/")[0])
    # A larger buffer than the content: delta-rs refuses the object that Arrow passes without one.
    with system.open_output_stream(key_path(path), buffer_size=len(content) + 1) as out:
        out.write(content)


def read_key_file(folder: TableFolder, path: str) -> Keys | None:
    """Return the content of the key file of a file, `None` without one that is whole. A local one is mapped into memory."""
    local = None if "://" in folder.path else Path(folder.path)
    content = read_content(folder, path) if local is None else mapped(local / key_path(path))
    return None if content is None else decoded(content)


def read_content(folder: TableFolder, path: str) -> bytes | None:
    """Return the bytes of the key file of a file, `None` without one."""
    try:
        with folder.file_system().open_input_file(key_path(path)) as source:
            content: bytes = source.read()
    except (OSError, DeltaError):
        return None
    return content


def mapped(path: Path) -> npt.NDArray[np.uint8] | None:
    """Map a file into memory. Returns `None` if there is none, or it is empty."""
    try:
        return np.memmap(path, np.uint8, "r")
    except (OSError, ValueError):
        return None


def decoded(content: bytes | npt.NDArray[np.uint8]) -> Keys | None:
    """Return the keys in the content of a key file, `None` unless it is whole."""
    found: Any = content if isinstance(content, np.ndarray) else np.frombuffer(content, np.uint8)
    if len(found) < _HEAD.size:
        return None
    magic, checksum, count = _HEAD.unpack(found[: _HEAD.size].tobytes())
    keys: Keys = found[_HEAD.size :]
    if magic != _MAGIC or len(keys) != count * _KEY_BYTES or zlib.crc32(keys.data) != checksum:
        return None
    return keys.view("<u8")


def may_hold(keys: Keys, wanted: Keys) -> bool:
    """Return True if one of the wanted keys is among the keys."""
    if not len(keys):
        return False
    found = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return bool((keys[found] == wanted).any())


class KeyFiles(Protocol):
    """The key files of a table, as one process reads them."""

    def begin(self) -> None:
        """Begin a look-up."""

    def keys(self, path: str) -> Keys | None:
        """Return the keys of a file of the table, `None` if it has no key file that is whole."""

    def forget_all_but(self, files: Mapping[str, int]) -> None:
        """Forget the keys of files that the table does not have any more."""


class LocalKeyFiles:
    """Key files in a local folder, mapped into memory: the kernel keeps them, as far as there is memory."""

    def __init__(self, folder: TableFolder) -> None:
        self._folder = folder
        self._mapped: dict[str, Keys] = {}

    def begin(self) -> None:
        """See `KeyFiles`."""

    def keys(self, path: str) -> Keys | None:
        """See `KeyFiles`."""
        if path not in self._mapped and (keys := read_key_file(self._folder, path)) is not None:
            self._mapped[path] = keys
        return self._mapped.get(path)

    def forget_all_but(self, files: Mapping[str, int]) -> None:
        """See `KeyFiles`."""
        for path in self._mapped.keys() - files.keys():
            del self._mapped[path]


class IdIndex:
    """Looks up events in table `events`, for the driver. Remembers the keys of files, which never change."""

    def __init__(self, folder: TableFolder, key_files: KeyFiles) -> None:
        self._folder = folder
        self._key_files = key_files
        self._cached: dict[str, Keys] = {}  # those that the key files of this machine do not have

    def holding(self, files: Mapping[str, int], wanted: Keys) -> list[str]:
        """Return the paths of the files that may hold one of the wanted keys. `files`: path and size of each."""
        left = MAX_HASHED_BYTES
        found = []
        self._key_files.begin()
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
        self._key_files.forget_all_but(files)
        for path in self._cached.keys() - files.keys():
            del self._cached[path]

    def _known(self, path: str) -> Keys | None:
        keys = self._cached.get(path)
        if keys is None and (keys := self._key_files.keys(path)) is not None and not isinstance(keys, np.memmap):
            self._cache(path, keys)
        return keys

    def _cache(self, path: str, keys: Keys) -> None:
        if sum(each.nbytes for each in self._cached.values()) + keys.nbytes <= MAX_CACHED_BYTES:
            self._cached[path] = keys
