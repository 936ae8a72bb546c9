"""Files of the operator's page: libraries as they are published, with their licences, and all of them in the wheel."""

import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from fogline_cloud.console import static_files
from fogline_cloud.console.static_files import address_of
from rules.source import ROOT

CONSOLE = ROOT / "cloud" / "fogline_cloud" / "console"
VENDOR = CONSOLE / "static" / "vendor"
PUBLISHED = Path(__file__).parent / "libraries" / "node_modules"
OF_PACKAGE = {
    "htmx.min.js": "htmx.org/dist/htmx.min.js",
    "htmx.LICENSE.txt": "htmx.org/LICENSE",
    "uPlot.iife.min.js": "uplot/dist/uPlot.iife.min.js",
    "uPlot.min.css": "uplot/dist/uPlot.min.css",
    "uPlot.LICENSE.txt": "uplot/LICENSE",
}


def test_libraries_are_the_files_of_the_locked_packages():
    """`npm ci` has compared the packages with the digests of the lock."""
    assert {each.name for each in VENDOR.iterdir()} == set(OF_PACKAGE)
    changed = [name for name, path in OF_PACKAGE.items() if (VENDOR / name).read_bytes() != (PUBLISHED / path).read_bytes()]
    assert changed == []


def test_wheel_has_templates_and_static_files(tmp_path):
    source = tmp_path / "cloud"
    shutil.copytree(ROOT / "cloud", source, ignore=shutil.ignore_patterns("__pycache__"))
    uv = ROOT / ".fogline" / "bootstrap" / "bin" / "uv"
    command = [uv, "build", "--quiet", "--offline", "--wheel", "--out-dir", tmp_path, source]
    environment = {**os.environ, "UV_CACHE_DIR": str(ROOT / ".fogline" / "uv-cache")}
    subprocess.run(command, check=True, timeout=300, env=environment)
    (wheel,) = tmp_path.glob("*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    wanted = [*CONSOLE.glob("templates/*"), *CONSOLE.glob("static/**/*.*")]
    assert wanted
    assert [str(each) for each in wanted if str(each.relative_to(ROOT / "cloud")) not in packed] == []


def test_address_of_a_file_changes_with_its_content(monkeypatch):
    before = address_of("console.css")
    monkeypatch.setattr(static_files, "_content_of", lambda _: b"other")
    assert static_files.address_of.__wrapped__("console.css") != before


@pytest.mark.parametrize("name", ["console.css", "console.js"])
def test_own_files_name_no_other_site(name):
    assert "//" not in (CONSOLE / "static" / name).read_text("utf-8").replace("// ", "")
