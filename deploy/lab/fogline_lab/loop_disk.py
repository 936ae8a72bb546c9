"""A file system of its own on a loop device, which tells what was written to the device. Needs root."""

import contextlib
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fogline.errors import Misconfigured

SECTOR_BYTES = 512
_SECTORS_WRITTEN = 6
"""The field of /sys/block/*/stat."""


@dataclass(frozen=True, slots=True)
class LoopDisk:
    """A mounted file system. `folder`: where."""

    folder: Path
    device: str

    def written_bytes(self) -> int:
        """Write back what is in memory, and return the bytes written to the device since it was made."""
        _run("sync", "--file-system", self.folder)
        stat = Path("/sys/block", Path(self.device).name, "stat").read_text().split()
        return int(stat[_SECTORS_WRITTEN]) * SECTOR_BYTES


@contextlib.contextmanager
def loop_disk(image: Path, folder: Path, size_bytes: int) -> Iterator[LoopDisk]:
    """Mount a new ext4 in the file `image` at `folder`, for the length of the block. Raises `Misconfigured`."""
    with image.open("wb") as file:
        file.truncate(size_bytes)
    # Lazy initialisation would write in the background, and its bytes would be counted.
    _run("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", image)
    device = _run("losetup", "--find", "--show", image)
    try:
        _run("mount", device, folder)
        try:
            yield LoopDisk(folder, device)
        finally:
            _run("umount", folder)
    finally:
        _run("losetup", "--detach", device)
        image.unlink()


def _run(*command: object) -> str:
    try:
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise Misconfigured(f"{command[0]} is missing") from None
    if done.returncode:
        raise Misconfigured(f"{command[0]}: {done.stderr.strip()} (a loop device needs root)")
    return done.stdout.strip()
