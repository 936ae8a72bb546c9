"""The file of a deployed parser: a wheel of Python files only (PyPA, "Binary distribution format"). Checks its form.

Nothing in it is run here. What it requires must be installed where the flow runs; the wheel brings no other packages.
"""

import hashlib
import io
import os
import stat
import sys
import zlib
from collections.abc import Iterator
from email.parser import Parser
from importlib.metadata import Distribution, distributions, packages_distributions
from pathlib import Path, PurePosixPath
from zipfile import BadZipFile, ZipFile, ZipInfo

import msgspec

from fogline.errors import Poison
from fogline_cloud.flows.parsers import GROUP

MAX_WHEEL_BYTES = 4 << 20
"""Size of a wheel. A parser is a few files of code and tables."""
MAX_UNPACKED_BYTES = 32 << 20
MAX_FILES = 2000
EVENTS = "events.jsonl"
"""End of the names of files with sample events, on which `fogline parser deploy` runs the parser."""
_NATIVE = (".so", ".pyd", ".dylib", ".dll")
_OURS = {"fogline-cloud", "fogline"}
_OUR_MODULES = {"fogline", "fogline_cloud", "fogline_edge"}


class Wheel(msgspec.Struct, frozen=True):
    """A checked wheel. `parsers`: entry points of the group by name. `modules`: its top-level modules."""

    digest: str
    distribution: str
    version: str
    parsers: dict[str, str]
    modules: frozenset[str]
    events: tuple[str, ...]  # names of files with sample events
    requires: tuple[str, ...]  # distributions that it needs


def digest_of(data: bytes) -> str:
    """Return the SHA-256 of a file, by which it is stored and named."""
    return hashlib.sha256(data).hexdigest()


def read_wheel(data: bytes) -> Wheel:
    """Return what the wheel says. Raises `Poison` (`wheel`), whose text names the file that is wrong."""
    if len(data) > MAX_WHEEL_BYTES:
        raise Poison("wheel", f"a wheel may have {MAX_WHEEL_BYTES >> 20} MiB, this one has {len(data):,} bytes")
    try:
        with ZipFile(io.BytesIO(data)) as archive:
            names = [each.filename for each in _checked(archive)]
            info = _info_folder(names)
            metadata = _Metadata(archive, info)
            about = Parser().parsestr(metadata.read_text("WHEEL") or "")
            parsers = {each.name: each.value for each in metadata.entry_points if each.group == GROUP}
            name, version, requires = metadata.name, metadata.version, tuple(metadata.requires or ())
    except (BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError, ValueError, TypeError) as error:
        raise Poison("wheel", f"this is no wheel: {error}") from None
    if about.get("Root-Is-Purelib", "").strip().lower() != "true":
        raise Poison("wheel", "only wheels of Python files can be deployed (Root-Is-Purelib: true in WHEEL)")
    if not parsers:
        raise Poison("wheel", f"it has no entry point of group {GROUP}")
    modules = frozenset(_modules(names, info))
    _check_modules(modules)
    events = tuple(sorted(name for name in names if name.endswith(EVENTS)))
    return Wheel(digest_of(data), name, version, parsers, modules, events, requires)


def unpack(data: bytes, into: Path) -> None:
    """Write the files of a checked wheel into a folder."""
    with ZipFile(io.BytesIO(data)) as archive:
        for each in _checked(archive):
            path = into / each.filename
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(archive.read(each))


def is_whole(data: bytes, folder: Path) -> bool:
    """Return True if a folder has every file of a checked wheel, unchanged."""
    with ZipFile(io.BytesIO(data)) as archive:
        return all(_is_same(folder / each.filename, each) for each in _checked(archive))


def _is_same(path: Path, entry: ZipInfo) -> bool:
    return path.is_file() and path.stat().st_size == entry.file_size and zlib.crc32(path.read_bytes()) == entry.CRC


def _checked(archive: ZipFile) -> list[ZipInfo]:
    """Return the files. Raises `Poison` unless each is a plain file within the folder, and all are small."""
    files = [each for each in archive.infolist() if not each.is_dir()]
    if len(files) > MAX_FILES or sum(each.file_size for each in files) > MAX_UNPACKED_BYTES:
        raise Poison("wheel", f"a wheel may have {MAX_FILES:,} files of {MAX_UNPACKED_BYTES >> 20} MiB in all")
    if len({each.filename for each in files}) < len(files):
        raise Poison("wheel", "two files of the wheel have one name")
    for each in files:
        path, mode = PurePosixPath(each.filename), each.external_attr >> 16
        outside = path.is_absolute() or ".." in path.parts or "\\" in each.filename or "\0" in each.filename
        if outside or (stat.S_IFMT(mode) and not stat.S_ISREG(mode)):
            raise Poison("wheel", f"{each.filename!a} is no file within the wheel")
        if path.suffix in _NATIVE or path.suffix == ".pth" or path.parts[0].endswith(".data"):
            raise Poison("wheel", f"{each.filename!a}: only Python files and their data can be deployed")
    return files


def _info_folder(names: list[str]) -> str:
    found = {PurePosixPath(name).parts[0] for name in names if PurePosixPath(name).parts[0].endswith(".dist-info")}
    if len(found) != 1:
        raise Poison("wheel", "this is no wheel: expected one folder NAME-VERSION.dist-info")
    return found.pop()


class _Metadata(Distribution):
    """The metadata of a wheel, read as that of an installed distribution."""

    def __init__(self, archive: ZipFile, folder: str) -> None:
        self._archive = archive
        self._folder = folder

    def read_text(self, filename: str) -> str | None:
        """Return a file of the metadata, `None` if there is none."""
        try:
            return self._archive.read(f"{self._folder}/{filename}").decode()
        except KeyError:
            return None

    def locate_file(self, path: str | os.PathLike[str]) -> Path:
        """Return a name, because nothing is installed."""
        return Path(path)


def _modules(names: list[str], info: str) -> Iterator[str]:
    for name in names:
        first, *rest = PurePosixPath(name).parts
        if first != info and (rest or first.endswith(".py")):
            yield first.removesuffix(".py")


def _check_modules(modules: frozenset[str]) -> None:
    """Raise `Poison` for a module that other code would get instead of its own: of Python, of Fogline, of a library."""
    provided = packages_distributions()
    plugins = {each.name for each in distributions() if any(entry.group == GROUP for entry in each.entry_points)} - _OURS
    for name in sorted(modules):
        others = [f"distribution {each}" for each in provided.get(name, ()) if each not in plugins]
        owner = "Python" if name in sys.stdlib_module_names else "Fogline" if name in _OUR_MODULES else next(iter(others), "")
        if owner:
            raise Poison("wheel", f"module {name} is one of {owner}: give yours another name")
