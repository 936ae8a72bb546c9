"""Each setting that names a file or a folder counts from the folder of the settings file, as the user has named it.

Kubernetes mounts settings and secrets as links to a folder whose name changes with each update: neither the settings file nor
a file that they name may be followed to the place behind its link.
"""

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

import fogline_cloud.settings
import fogline_edge.settings
from docs import settings_page

CLOUD, EDGE = fogline_cloud.settings, fogline_edge.settings
ROOTS = {"cloud": (CLOUD.load, CLOUD.CloudSettings), "edge": (EDGE.load, EDGE.EdgeSettings)}
FILES = ("File ", "Folder ", "Password file ")
OTHERS = {"tenant": "acme", "gateway": "gw-1", "name": "one", "profile": "zigbee2mqtt", "url": "postgresql://db/lab"}
"""Values of required keys that name no files."""


def file_keys(kind: type[msgspec.Struct]) -> list[str]:
    rows = settings_page.rows(kind)
    return [row.key for row in rows if row.meaning.startswith(FILES) and "text" in row.values]


def written(root: type[msgspec.Struct]) -> tuple[dict[str, Any], list[tuple[str, ...]]]:
    """Return settings in which every file is named `files/KEY`, and the way to each."""
    settings: dict[str, Any] = {}
    ways = []
    for name, kind in settings_page.tables("", root):
        keys = file_keys(kind)
        if not keys and name:
            continue
        inner = settings
        *above, last = name.strip("[]").split(".") if name else ("",)
        for each in above:
            inner = inner.setdefault(each, {})
            inner = inner[0] if isinstance(inner, list) else inner
        table: dict[str, Any] = {row.key: OTHERS[row.key] for row in settings_page.rows(kind) if is_other(row)}
        table |= {key: f"files/{key}" for key in keys}
        if not name:
            settings |= table
        elif name.startswith("[["):
            inner[last] = [table]
        else:
            inner.setdefault(last, {}).update(table)
        ways += [(*above, *([last] if name else []), key) for key in keys]
    return settings, ways


def toml(value: Any) -> str:
    """Return a value in TOML, on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml(each)}" for key, each in value.items()) + "}"
    return f"[{', '.join(map(toml, value))}]" if isinstance(value, list) else json.dumps(value)


def is_other(row: settings_page.Row) -> bool:
    return row.default == "required" and not row.meaning.startswith(FILES)


@pytest.mark.parametrize("side", ROOTS)
def test_files_of_settings_that_are_a_link_are_beside_the_link_and_links_themselves_are_kept(side, tmp_path, monkeypatch):
    load, root = ROOTS[side]
    settings, ways = written(root)
    if side == "cloud":
        settings["kafka"] = {"bootstrap.servers": "kafka:9092", "ssl.ca.location": "files/kafka"}
    real, named = tmp_path / "..2026_11_28", tmp_path / "named"
    for each in (real / "files", named):
        each.mkdir(parents=True)
    (real / "settings.toml").write_text("".join(f"{key} = {toml(value)}\n" for key, value in settings.items()))
    (named / "settings.toml").symlink_to(real / "settings.toml")
    (named / "files").symlink_to(real / "files")
    monkeypatch.chdir(tmp_path)
    for path in (named / "settings.toml", Path("named/settings.toml")):
        found = msgspec.to_builtins(load(path))
        if side == "cloud":
            assert found["kafka"]["ssl.ca.location"] == str(named / "files" / "kafka")
        for way in ways:
            value: Any = found
            for step in way:
                value = value[0] if isinstance(value, list) else value
                value = value[step]
            assert os.path.normpath(Path(value).absolute()) == str(named / "files" / way[-1]), ".".join(way)
    assert len(ways) > 10
