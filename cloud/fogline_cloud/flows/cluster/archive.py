"""The environment of a cluster's executors as a zip file, which `spark.archives` unpacks in the folder of each executor.

The same packages make the same bytes: entries are sorted, and have no time and no owner.
"""

import hashlib
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import msgspec

from fogline.errors import Misconfigured
from fogline_cloud.flows.cluster.packages import Package

_EPOCH = (1980, 1, 1, 0, 0, 0)  # the first time that a zip file can hold
_MODE = 0o100644 << 16


class Archive(msgspec.Struct, frozen=True):
    """A written archive. `unpacked_bytes`: what it takes on the disk of an executor."""

    path: str
    bytes: int
    unpacked_bytes: int
    sha256: str
    packages: dict[str, str]


def write_archive(packages: Sequence[Package], path: Path, on_package: Callable[[Package], None]) -> Archive:
    """Write the packages' files to a zip file, which replaces `path` when it is whole. Raises `Misconfigured`.

    `on_package` is called before each package.
    """
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    unpacked = 0
    try:
        with ZipFile(unfinished, "w", ZIP_DEFLATED, compresslevel=6) as archive:
            for each in packages:
                on_package(each)
                for name, source in sorted(each.files.items()):
                    unpacked += _add(archive, name, source)
        digest = _digest(unfinished)
        size = unfinished.stat().st_size
        unfinished.replace(path)
    except OSError as error:
        raise Misconfigured(f"{path}: the archive cannot be written: {error.filename}: {error.strerror}") from None
    finally:
        unfinished.unlink(missing_ok=True)
    return Archive(str(path), size, unpacked, digest, {each.name: each.version for each in packages})


def _add(archive: ZipFile, name: str, source: Path) -> int:
    entry = ZipInfo(name, _EPOCH)
    entry.compress_type = ZIP_DEFLATED
    entry.external_attr = _MODE
    entry.file_size = source.stat().st_size  # so that a file of more than 2 GiB gets the fields that it needs
    with source.open("rb") as file, archive.open(entry, "w") as out:
        shutil.copyfileobj(file, out, 1 << 20)
    return entry.file_size


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
