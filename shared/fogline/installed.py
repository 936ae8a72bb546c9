"""Finds the software that the set-up installs beside Python: Java and its jars."""

import os
import shutil
from pathlib import Path

from fogline.errors import Misconfigured

_TESTS = ("amqp", "artemis", "californium", "hono", "mirror")
_SCRIPTS = {"s3": " s3"} | dict.fromkeys(_TESTS, " tests")  # arguments of the set-up
_PACKAGES = {"spark": ", install the package fogline-flow", "s3": ", install the package fogline-flow-s3"}


def find_java() -> str:
    """Return the path of Java. Raises `Misconfigured` if there is none."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None or not Path(java).exists():
        raise Misconfigured("there is no Java: install openjdk-17-jre-headless, or set JAVA_HOME")
    return java


def find_jars(name: str) -> list[Path]:
    """Return the jars of a list in deploy/setup, such as `spark` or `s3`. Raises `Misconfigured`.

    They are in $FOGLINE_JARS, else in the checkout.
    """
    root = Path(os.environ.get("FOGLINE_JARS") or Path(__file__).parents[2] / ".fogline" / "jars")
    jars = sorted((root / name).glob("*.jar"))
    if not jars:
        script = f"deploy/setup/setup.sh{_SCRIPTS.get(name, '')}"
        raise Misconfigured(f"there are no jars in {root / name}: run {script}{_PACKAGES.get(name, '')}, or set FOGLINE_JARS")
    return jars


SETTINGS, STATE = Path("/etc/fogline"), Path("/var/lib/fogline")
"""Folders of the settings and of the data on a machine where a Debian package has made them."""


def settings_folder(file: str, part: str = "") -> Path:
    """Return the folder of a settings file that is not named: this folder if it has the file or no package is installed.

    `part`: the package's part of the folder of settings.
    """
    if os.path.exists(file):  # noqa: PTH110 - no error where it may not look
        return Path()
    folder = SETTINGS / part
    try:
        return folder if folder.is_dir() else Path()
    except PermissionError:  # the package's, which only root and the user fogline read
        return folder


def credential(name: str) -> Path | None:
    """Return the file of a credential that systemd has given to this service (`LoadCredential=`), or None."""
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    found = Path(folder, name) if folder and "/" not in name else None
    return found if found is not None and found.is_file() else None
