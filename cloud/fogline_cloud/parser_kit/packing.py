"""Packs the folder of a parser as a wheel, without a build tool: Python files, the files beside them, and sample events.

The same files make the same bytes, so a second deployment of the same folder is none.
"""

import base64
import csv
import hashlib
import io
import re
import tomllib
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from fogline.errors import Misconfigured
from fogline.process.files.user_file import read_text
from fogline_cloud.flows.deployed.wheel import EVENTS
from fogline_cloud.flows.parsers import GROUP

_LEFT_OUT = ("test_*", "*_test.py", "conftest.py", "tests", "test", "build", "dist", "*.egg-info", "__pycache__", ".*", "venv")
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the first time that a zip file can hold
_MODE = 0o100644 << 16
_WHEEL = "Wheel-Version: 1.0\nGenerator: fogline\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def wheel_of(path: Path) -> bytes:
    """Return the wheel in a file, or the wheel of a folder with `pyproject.toml`. Raises `Misconfigured`."""
    if path.is_dir():
        return _packed(path)
    try:
        return path.read_bytes()
    except OSError as error:
        raise Misconfigured(f"{path}: {error.strerror}") from None


def _packed(folder: Path) -> bytes:
    project = _project(folder)
    name = re.sub(r"[-_.]+", "_", str(project["name"])).lower()
    info = f"{name}-{project['version']}.dist-info"
    root = folder / "src" if (folder / "src").is_dir() else folder
    files = {file.relative_to(root).as_posix(): file.read_bytes() for file in _files(root)}
    if not any(each.endswith(".py") for each in files):
        raise Misconfigured(f"{folder}: there is no Python file in it")
    files |= {f"{info}/{each.name}": each.read_bytes() for each in sorted(folder.glob(f"*{EVENTS}"))}
    files |= {f"{info}/METADATA": _metadata(project), f"{info}/WHEEL": _WHEEL.encode()}
    points = "".join(f"{key} = {target}\n" for key, target in sorted(project["entry-points"][GROUP].items()))
    files[f"{info}/entry_points.txt"] = f"[{GROUP}]\n{points}".encode()
    files[f"{info}/RECORD"] = _record(files, f"{info}/RECORD")
    return _zipped(files)


def _project(folder: Path) -> dict[str, Any]:
    path = folder / "pyproject.toml"
    try:
        project: dict[str, Any] = tomllib.loads(read_text(path, "the folder of a parser")).get("project", {})
    except tomllib.TOMLDecodeError as error:
        raise Misconfigured(f"{path}: {error}") from None
    for key in ("name", "version"):
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+!-]*", str(project.get(key, ""))):
            raise Misconfigured(f"{path}: project.{key} is missing, or not one of a package")
    if not project.get("entry-points", {}).get(GROUP):
        raise Misconfigured(f'{path}: there is no [project.entry-points."{GROUP}"]')
    return project


def _files(root: Path) -> Iterator[Path]:
    """Yield the modules of a folder, and everything in its packages."""
    for path in sorted(root.iterdir()):
        if any(fnmatch(path.name, pattern) for pattern in _LEFT_OUT):
            continue
        if path.is_file() and path.suffix == ".py":
            yield path
        elif path.is_dir() and (path / "__init__.py").is_file():
            yield from _within(path)


def _within(package: Path) -> Iterator[Path]:
    for path in sorted(package.iterdir()):
        if any(fnmatch(path.name, pattern) for pattern in _LEFT_OUT):
            continue
        if path.is_dir():
            yield from _within(path)
        elif path.is_file() and path.suffix != ".pyc":
            yield path


def _metadata(project: Mapping[str, Any]) -> bytes:
    lines = ["Metadata-Version: 2.1", f"Name: {project['name']}", f"Version: {project['version']}"]
    lines += [f"Requires-Dist: {each}" for each in project.get("dependencies", ())]
    return ("\n".join(lines) + "\n").encode()


def _record(files: Mapping[str, bytes], own: str) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        writer.writerow([name, f"sha256={digest}", len(data)])
    writer.writerow([own, "", ""])
    return out.getvalue().encode()


def _zipped(files: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with ZipFile(out, "w", ZIP_DEFLATED) as archive:
        for name, data in sorted(files.items()):
            entry = ZipInfo(name, _EPOCH)
            entry.compress_type = ZIP_DEFLATED
            entry.external_attr = _MODE
            archive.writestr(entry, data)
    return out.getvalue()
