"""The file `devices.types`: for each type of device the commands that it takes, with the JSON Schemas of their arguments.

Table `[lamp.switch]` is the schema of command `switch` of type `lamp`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from fogline.documents.document_error import TOML, explained
from fogline.errors import Misconfigured, Poison
from fogline.process.files.settings_file import load_toml
from fogline_cloud.devices.edits import checked_commands
from fogline_cloud.devices.record import commands_text


def read_types(path: str) -> Mapping[str, str]:
    """Return for each type the text of its commands (`DeviceRecord.commands`). Raises `Misconfigured`, which names the key."""
    return {kind: read_commands_table(path, table, kind) for kind, table in load_toml(Path(path), "devices.types").items()}


def read_commands_table(path: str, table: Any, where: str) -> str:
    """Return the text of a TOML table of commands. Raises `Misconfigured`."""
    if not isinstance(table, dict):
        raise Misconfigured(f"{path}: key {where}: expected a table of commands, for example [{where}.switch]")
    try:
        return commands_text(checked_commands(table))
    except (Poison, TypeError, msgspec.MsgspecError) as error:
        raise Misconfigured(f"{path}: [{where}]: {explained(error, dict, TOML)}") from None
