"""Unpacks wheels on this machine, each into a folder that is named by its digest. Workers of a machine share them."""

import os
import stat
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from shutil import rmtree

import pyarrow.fs as pafs

from fogline_cloud.flows.deployed.wheel import digest_of, is_whole, unpack
from fogline_cloud.flows.tables.files import TableFolder


class WrongFile(Exception):
    """The file of a deployed parser is missing, or is not the one that was deployed."""


def checked_file(data: bytes | None, digest: str, place: str) -> bytes:
    """Return a file's content. Raises `WrongFile` if there is none, or another one than was deployed."""
    if data is None:
        raise WrongFile(f"{place} is missing")
    if digest_of(data) != digest:
        raise WrongFile(f"{place} is not the file that was deployed: its SHA-256 is {digest_of(data)}")
    return data


def file_name(digest: str) -> str:
    """Return the name of a file below the folder of deployed parsers."""
    return f"files/{digest}.whl"


def read_file(folder: TableFolder, digest: str) -> bytes:
    """Read a file in a worker. Raises `WrongFile`, and `OSError` if the store is away."""
    system, name = folder.file_system(), file_name(digest)
    found = system.get_file_info(name).type is pafs.FileType.File
    data = None
    if found:
        with system.open_input_file(name) as file:
            data = file.read()
    return checked_file(data, digest, f"{folder.path}/{name}")


def unpacked(data: bytes, digest: str) -> Path:
    """Return a folder with the files of a checked wheel. What was changed there since is not used."""
    folder = _base() / digest
    if is_whole(data, folder):
        return folder
    made = Path(tempfile.mkdtemp(prefix=f"{digest}.", dir=_base()))
    unpack(data, made)
    with suppress(OSError):  # another worker was faster, or a damaged folder is in the way, which others may use
        made.rename(folder)
        return folder
    if is_whole(data, folder):
        rmtree(made, ignore_errors=True)
        return folder
    return made


@cache
def _base() -> Path:
    """Return a folder that no other user of this machine may write to."""
    folder = Path(tempfile.gettempdir()) / f"fogline-parsers-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077:
        return folder
    return Path(tempfile.mkdtemp(prefix="fogline-parsers-"))
