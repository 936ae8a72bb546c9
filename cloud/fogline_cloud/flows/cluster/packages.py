"""The installed packages that a worker imports: ours, what they stand on, and the user's parsers with what those need."""

import re
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution, entry_points
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from fogline.errors import Misconfigured
from fogline_cloud.flows.parsers import GROUP

OURS = ("fogline", "fogline-cloud")
"""Their code is in the environment. Most of what they require is not: a worker has no bridge, no API and no console."""
WORKER = ("cbor2", "confluent-kafka", "cryptography", "deltalake", "msgspec", "numpy", "pyarrow", "zstandard")
"""Packages that modules of workers and our parsers import."""
OPTIONAL = ("govee-ble", "home-assistant-bluetooth", "xiaomi-ble")
"""Packages that parsers of ours use where they are installed."""
_OF_SPARK = ("pyspark", "py4j")
"""Executors have them already."""
_UNUSED = re.compile(
    r"(^|/)(__pycache__|tests?)/|\.(pth|pyc|pyi|pxd|pyx|h|hpp|cc)$|^__editable__|^pyarrow/(src|include)/|^pyarrow/.*(flight)"
)
"""Files of packages that no worker reads: tests, headers, and Arrow's network server."""
_REQUIREMENT = re.compile(r"\s*(?P<name>[A-Za-z0-9._-]+)\s*(\[(?P<extras>[^]]*)\])?(?P<rest>[^;]*)(;(?P<marker>.*))?")
_EXTRA = re.compile(r"""extra\s*==\s*["'](?P<extra>[^"']+)["']""")


class Package(msgspec.Struct, frozen=True, order=True):
    """One package: its name and version, and its files by their names in the environment."""

    name: str
    version: str
    files: dict[str, Path]


class Requirement(msgspec.Struct, frozen=True):
    """A package that another one requires, with some of its extras."""

    name: str
    extras: frozenset[str] = frozenset()


def worker_packages() -> list[Package]:
    """Return the packages of a worker's environment, by name. Raises `Misconfigured` if the files of one are not found."""
    parsers = {each.dist.name for each in entry_points(group=GROUP) if each.dist is not None}
    wanted = [Requirement(name) for name in sorted({*OURS, *WORKER, *OPTIONAL, *parsers})]
    found: dict[str, Distribution] = {}
    seen: set[Requirement] = set()
    while wanted:
        each = wanted.pop()
        if each in seen or each.name in _OF_SPARK:
            continue
        seen.add(each)
        try:
            installed = found.setdefault(each.name, distribution(each.name))
        except PackageNotFoundError:  # of a marker for another Python or system
            continue
        if each.name not in OURS:
            wanted += requirements(installed.requires or (), each.extras)
    return sorted(Package(name, each.version, files_of(name, each)) for name, each in found.items())


def requirements(lines: Iterable[str], extras: frozenset[str]) -> Iterator[Requirement]:
    """Yield what the lines `Requires-Dist` of a package ask for, with these extras of it. Pure. Other markers hold."""
    for line in lines:
        match = _REQUIREMENT.match(line)
        asked = {each["extra"] for each in _EXTRA.finditer(match["marker"] or "")} if match else set()
        if match and (not asked or asked & extras):
            of_it = frozenset(each.strip() for each in (match["extras"] or "").split(",") if each.strip())
            yield Requirement(_normal(match["name"]), of_it)


def files_of(name: str, installed: Distribution) -> dict[str, Path]:
    """Return the files of an installed package, an editable one too. Raises `Misconfigured` if it seems to have none."""
    project = _editable_project(installed)
    listed = {str(each): Path(str(each.locate())) for each in installed.files or () if ".." not in each.parts}
    found = {each: path for each, path in listed.items() if ".dist-info/" not in each and path.is_file()}
    if project is not None or not found:
        found = {}
        for module in sorted(_module_names(name, installed)):
            found |= _files_of_module(module, project)
    if not found:
        raise Misconfigured(f"{name}: its modules are not found; install it in the usual way, not as editable")
    return {name: path for name, path in found.items() if not _UNUSED.search(name)} | _metadata(name, installed)


def _metadata(name: str, installed: Distribution) -> dict[str, Path]:
    """Return what tells a worker the version and the entry points. The rest names paths of this machine."""
    folder = f"{_normal(name).replace('-', '_')}-{installed.version}.dist-info"
    paths = {each: Path(str(installed.locate_file(folder))) / each for each in ("METADATA", "entry_points.txt")}
    return {f"{folder}/{each}": path for each, path in paths.items() if path.exists()}


def _editable_project(installed: Distribution) -> Path | None:
    """Return the folder of a project that is installed as editable (PEP 610, PEP 660)."""
    text = installed.read_text("direct_url.json")
    direct = msgspec.json.decode(text) if text else {}
    if not direct.get("dir_info", {}).get("editable"):
        return None
    return Path(unquote(urlsplit(direct["url"]).path))


def _module_names(name: str, installed: Distribution) -> set[str]:
    """Return the names that the package's top-level modules may have."""
    of_entry_points = {each.module.partition(".")[0] for each in installed.entry_points}
    return {*of_entry_points, *(installed.read_text("top_level.txt") or "").split(), _normal(name).replace("-", "_")}


def _files_of_module(module: str, project: Path | None) -> dict[str, Path]:
    """Return the files of a top-level module, if it is found and belongs to the project."""
    spec = find_spec(module)
    if spec is None:
        return {}
    folders = [Path(each) for each in spec.submodule_search_locations or ()]
    if not folders and spec.origin is not None and Path(spec.origin).is_file():
        folders = [Path(spec.origin)]
    found: dict[str, Path] = {}
    for folder in folders:
        if project is None or folder.resolve().is_relative_to(project.resolve()):
            paths = [folder] if folder.is_file() else [path for path in folder.rglob("*") if path.is_file()]
            found |= {str(path.relative_to(folder.parent)): path for path in paths}
    return found


def _normal(name: str) -> str:
    """Return a package's normalised name (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()
