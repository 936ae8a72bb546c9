"""Readers of a table's changes: each notes the version that it has read, and maintenance keeps what comes after it.

A note is a small file in the table's folder, beside the log: a commit for each note would make the log longer. Delta ignores
names that begin with `_`.
"""

import time
from contextlib import suppress
from urllib.parse import quote, unquote

import msgspec
import pyarrow.fs as pafs

from fogline_cloud.flows.tables.change_reader import ChangeReader
from fogline_cloud.flows.tables.files import TableFolder

FOLDER = "_readers"
_SUFFIX = ".json"
_ROOM_BYTES = 1 << 16  # a larger buffer than the note: delta-rs refuses the object that Arrow passes without one


def note_reader(folder: TableFolder, name: str, version: int) -> None:
    """Note that a reader has read a table up to a version. `name`: unique among the readers of the table."""
    reader = ChangeReader(name, version, int(time.time() * 1000))
    system = folder.file_system()
    system.create_dir(FOLDER)
    with system.open_output_stream(_path(name), buffer_size=_ROOM_BYTES) as out:
        out.write(msgspec.json.encode(reader))


def forget_reader(folder: TableFolder, name: str) -> bool:
    """Delete the note of a reader. Returns False if there is none."""
    try:
        folder.file_system().delete_file(_path(name))
    except FileNotFoundError:
        return False
    return True


def readers_of(folder: TableFolder) -> list[ChangeReader]:
    """Return the readers of a table, by name. A note that was cut off counts as none."""
    system = folder.file_system()
    found = []
    for each in system.get_file_info(pafs.FileSelector(FOLDER, allow_not_found=True)):
        if each.is_file and each.base_name.endswith(_SUFFIX):
            with suppress(FileNotFoundError, msgspec.MsgspecError), system.open_input_file(each.path) as file:
                reader = msgspec.json.decode(file.read(), type=ChangeReader)
                if reader.name == unquote(each.base_name.removesuffix(_SUFFIX)):
                    found.append(reader)
    return sorted(found, key=lambda reader: reader.name)


def _path(name: str) -> str:
    return f"{FOLDER}/{quote(name, safe='')}{_SUFFIX}"
