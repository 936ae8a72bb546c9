"""Files whose content is on the disk when a function returns. All functions raise `OSError`."""

import os
from pathlib import Path


def write_new(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write a file that does not exist yet. By default only its owner may read it."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def replace_file(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write a file in one step: a reader sees the former content or the new one, never a part."""
    beside = path.with_name(f"{path.name}.new")
    beside.unlink(missing_ok=True)  # of a run that was interrupted
    write_new(beside, data, mode)
    beside.replace(path)


def sync_path(path: Path) -> None:
    """Have the disk keep a file's content, or a folder's names."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
