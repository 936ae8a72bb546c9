"""What a pipeline remembers between two runs: one JSON file in its storage."""

import msgspec
import pyarrow.fs as pafs

from fogline_cloud.flows.tables.files import TableFolder

_FILE = "fogline.json"
_ROOM_BYTES = 1 << 16  # a larger buffer than most notes: delta-rs refuses the object that Arrow passes without one


class Notes(msgspec.Struct, frozen=True):
    """Notes of the last run that completed each table.

    `read`: by streaming table, the version of each source up to which all its changes are in the table.
    `broken`: by table, the number of its rows that break an expectation, by the expectation's name.
    """

    read: dict[str, dict[str, int]] = {}
    broken: dict[str, dict[str, int]] = {}


def read_notes(storage: TableFolder) -> Notes:
    """Read the notes; none before the first run, and none if they were cut off."""
    system = storage.file_system()
    if system.get_file_info(_FILE).type is not pafs.FileType.File:
        return Notes()
    with system.open_input_file(_FILE) as file:
        content = file.read()
    try:
        return msgspec.json.decode(content, type=Notes)
    except msgspec.MsgspecError:  # cut off: without notes, all streaming tables are refreshed
        return Notes()


def write_notes(storage: TableFolder, notes: Notes) -> None:
    """Write the notes."""
    with storage.file_system().open_output_stream(_FILE, buffer_size=_ROOM_BYTES) as out:
        out.write(msgspec.json.encode(notes))
