"""What the set-up put on this machine beside Python: Java, and the jars that run on it."""

import os
import shutil
from pathlib import Path

from fogline.errors import Misconfigured


def find_java() -> str:
    """The Java to run. Raises `Misconfigured` if there is none."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None or not Path(java).exists():
        raise Misconfigured("there is no Java: install openjdk-17-jre-headless, or set JAVA_HOME")
    return java


def find_jars(name: str) -> list[Path]:
    """The jars of `kafka`, `spark` or `amqp` as the set-up left them: in $FOGLINE_JARS, or .fogline/jars of the checkout."""
    root = Path(os.environ.get("FOGLINE_JARS") or Path(__file__).parents[2] / ".fogline" / "jars")
    jars = sorted((root / name).glob("*.jar"))
    if not jars:
        raise Misconfigured(f"there are no jars in {root / name}: run deploy/setup/setup.sh, or set FOGLINE_JARS")
    return jars
