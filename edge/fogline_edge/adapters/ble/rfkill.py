"""The kernel's switch for radios (Linux, Documentation/ABI/stable/sysfs-class-rfkill).

BlueZ before 5.68 does not say that an adapter is blocked: switching it on fails with `Failed`, and nothing else.
"""

from contextlib import suppress
from pathlib import Path

FOLDER = Path("/sys/class/rfkill")


def blocked(adapter: str, folder: Path = FOLDER) -> str | None:
    """Returns `hard` if a hardware switch blocks an adapter (`hci0`), `soft` if the system does, `None` if nothing does."""
    with suppress(OSError):
        for each in sorted(folder.iterdir()):
            with suppress(OSError):
                if _read(each / "name") == adapter:
                    return next((kind for kind in ("hard", "soft") if _read(each / kind) == "1"), None)
    return None


def _read(file: Path) -> str:
    return file.read_text(errors="replace").strip()
