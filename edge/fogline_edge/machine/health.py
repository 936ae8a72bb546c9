"""Reads the health of the machine from the kernel's files: the disk of the outbox and its wear, temperature, supply voltage."""

import contextlib
import os
import re
from pathlib import Path

from fogline.gateway.gateway_statistics import MachineNumbers

SECTOR_BYTES = 512
"""The kernel counts in sectors of this size, whatever the disk's own are (Documentation/block/stat)."""
_WRITTEN_SECTORS = 6
_THROTTLED = "devices/platform/soc/soc:firmware/get_throttled"
"""The state of a Raspberry Pi's supply, from the driver raspberrypi-hwmon; `vcgencmd get_throttled` shows the same bits."""
_UNDERVOLTAGE, _SLOWED = 0x1, 0x2 | 0x4 | 0x8


def read_machine(folder: Path, *, sys: Path = Path("/sys"), proc: Path = Path("/proc")) -> MachineNumbers:
    """Return the numbers of this machine. `folder`: that of the outbox. What the kernel does not tell is None."""
    disk = _disk(folder, sys)
    fields = (_text(disk / "stat") or "").split() if disk else []
    written = int(fields[_WRITTEN_SECTORS]) * SECTOR_BYTES if len(fields) > _WRITTEN_SECTORS else None
    sectors = _number(_text(disk / "size")) if disk else None
    bits = _number(_text(sys / _THROTTLED), 16)
    return MachineNumbers(
        disk_size_bytes=None if sectors is None else sectors * SECTOR_BYTES,
        disk_free_bytes=free_bytes(folder),
        disk_written_bytes=written,
        disk_life_used=_life_used(_text(disk / "device/life_time") if disk else None),
        written_bytes=_own_writes(_text(proc / "self/io")),
        temperature_c=_temperature(sys),
        undervoltage=None if bits is None else bool(bits & _UNDERVOLTAGE),
        throttled=None if bits is None else bool(bits & _SLOWED),
    )


def free_bytes(folder: Path) -> int | None:
    """Return the bytes of the folder's file system that this user may still take, quotas aside. None if they are unknown."""
    try:
        free = os.statvfs(folder)
    except OSError:
        return None
    return free.f_bavail * free.f_frsize


def _text(path: Path) -> str | None:
    try:
        return path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None


def _number(text: str | None, base: int = 10) -> int | None:
    with contextlib.suppress(ValueError):
        return None if text is None else int(text, base)
    return None


def _disk(folder: Path, sys: Path) -> Path | None:
    """Return the folder of the disk (not of the partition) that holds a folder; None for overlays, networks and memory."""
    try:
        device = folder.stat().st_dev
        link = sys / "dev/block" / f"{os.major(device)}:{os.minor(device)}"
        found = link.resolve(strict=True)
    except OSError:
        return None
    return found.parent if (found / "partition").exists() else found


def _life_used(text: str | None) -> float | None:
    """Return the larger of an eMMC's two estimates, in steps of a tenth (JEDEC eMMC 5.0, DEVICE_LIFE_TIME_EST)."""
    estimates = [int(each, 16) for each in re.findall(r"0x[0-9a-fA-F]{1,2}\b", text or "")]
    return max(estimates) / 10 if any(estimates) else None


def _own_writes(text: str | None) -> int | None:
    found = re.search(r"^write_bytes: (\d+)$", text or "", re.MULTILINE)
    return int(found[1]) if found else None


def _temperature(sys: Path) -> float | None:
    """Return the temperature of the hottest zone of the processor, or of any zone if none is named after it."""
    zones = sorted((sys / "class/thermal").glob("thermal_zone*"))
    known = [(_text(each / "type") or "", value) for each in zones if (value := _number(_text(each / "temp"))) is not None]
    processors = [value for name, value in known if re.search(r"cpu|x86_pkg|soc", name)]
    hottest = max(processors or [value for _, value in known], default=None)
    return None if hottest is None or not -273_000 <= hottest <= 1_000_000 else hottest / 1000
