"""The environment of a cluster's executors as a file."""

import json
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import Distribution
from pathlib import Path

import pytest

from fogline.errors import Misconfigured
from fogline_cloud.cli.main import main
from fogline_cloud.flows.cluster import packages
from fogline_cloud.flows.cluster.archive import write_archive
from fogline_cloud.flows.cluster.packages import Package, Requirement, files_of, requirements, worker_packages

PLUGIN = Path(__file__).parent / "plugin"
LOAD = """
import sys
sys.path[:0] = sys.argv[1:]
from fogline_cloud.flows.driver import parsed_sink, raw_sink
from fogline_cloud.flows.parsers import installed
from importlib.metadata import version
print(*sorted(installed()), version("fogline-cloud"))
"""
LIMIT_S = 120


@pytest.mark.parametrize(
    ("line", "extras", "found"),
    [
        ("numpy>=2", (), [Requirement("numpy")]),
        ("Home_Assistant.Bluetooth (>=1.9.2)", (), [Requirement("home-assistant-bluetooth")]),
        ('pandas ; extra == "pandas"', (), []),
        ('pandas ; extra == "pandas"', ("pandas",), [Requirement("pandas")]),
        ('a[b,c]>=1; python_version >= "3.11"', (), [Requirement("a", frozenset({"b", "c"}))]),
        ("x[y] ; (python_version < '4') and extra == 'z'", ("z",), [Requirement("x", frozenset({"y"}))]),
    ],
)
def test_a_line_requires_dist_names_a_package_and_its_extras(line, extras, found):
    assert list(requirements([line], frozenset(extras))) == found


def test_the_environment_holds_what_workers_import_and_neither_spark_nor_servers():
    found = {each.name for each in worker_packages()}
    assert {"fogline", "fogline-cloud", "msgspec", "pyarrow", "deltalake", "confluent-kafka", "numpy", "zstandard"} <= found
    assert not {"pyspark", "py4j", "starlette", "uvicorn", "rich", "pandas", "python-qpid-proton", "fogline-edge"} & found


def test_the_environment_holds_the_users_parsers(plugin):
    (parsers,) = [each for each in worker_packages() if each.name == "fogline-test-parsers"]
    assert {"fogline_test_parsers.py", "fogline_test_parsers-1.dist-info/entry_points.txt"} <= parsers.files.keys()


@pytest.mark.slow
def test_workers_modules_and_every_parser_load_from_the_archive_alone(plugin, folder):
    """Python starts without site-packages, and gets Spark's packages, as an executor does."""
    written = write_archive(worker_packages(), folder / "env.zip", lambda _: None)
    with zipfile.ZipFile(written.path) as archive:
        archive.extractall(folder / "env")
    site = Path(packages.find_spec("pyspark").origin).parents[1]
    (folder / "spark").mkdir()
    for each in ("pyspark", "py4j"):
        (folder / "spark" / each).symlink_to(site / each)
    command = [Path(sys.executable).resolve(), "-I", "-S", "-c", LOAD, folder / "env", folder / "spark"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    assert {"json", "cbor", "ble-advertisement", "test-endless"} <= set(done.stdout.split())


def package(folder: Path, name: str, text: str = "x = 1\n") -> Package:
    path = folder / f"{name}.py"
    path.write_text(text)
    return Package(name, "1", {f"{name}.py": path})


def test_the_same_packages_make_the_same_bytes(folder):
    """Neither the time of a file nor the order in which files are found counts."""
    some = [package(folder, "a"), package(folder, "b")]
    first = write_archive(some, folder / "1.zip", lambda _: None)
    shutil.copy(folder / "a.py", folder / "a2.py")
    again = [Package("a", "1", {"a.py": folder / "a2.py"}), some[1]]
    assert write_archive(again, folder / "2.zip", lambda _: None).sha256 == first.sha256
    assert (folder / "1.zip").read_bytes() == (folder / "2.zip").read_bytes()


def test_an_archive_that_cannot_be_written_leaves_the_former_one(folder):
    path = folder / "env.zip"
    write_archive([package(folder, "a")], path, lambda _: None)
    former = path.read_bytes()
    (gone := package(folder, "b")).files["b.py"].unlink()
    with pytest.raises(Misconfigured, match=r"b\.py: No such file"):
        write_archive([gone], path, lambda _: None)
    assert path.read_bytes() == former
    assert [each.name for each in folder.glob("env.zip*")] == ["env.zip"]


def installed_as_editable(folder: Path, module: str) -> Distribution:
    info = folder / "acme_parsers-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-parsers\nVersion: 1\n")
    (info / "RECORD").write_text("acme_parsers.pth,,\nacme_parsers-1.dist-info/METADATA,,\n")
    (info / "direct_url.json").write_text(json.dumps({"url": f"file://{folder}", "dir_info": {"editable": True}}))
    (info / "entry_points.txt").write_text(f"[fogline.parsers]\nacme = {module}:parse\n")
    return Distribution.at(info)


def test_an_editable_parser_is_in_the_environment_with_its_code(folder, monkeypatch):
    (folder / "acme" / "tests").mkdir(parents=True)
    for each in ("__init__.py", "inner.py", "tests/test_it.py"):
        (folder / "acme" / each).touch()
    monkeypatch.syspath_prepend(str(folder))
    found = files_of("acme-parsers", installed_as_editable(folder, "acme.inner"))
    assert set(found) == {
        "acme/__init__.py",
        "acme/inner.py",
        "acme_parsers-1.dist-info/METADATA",
        "acme_parsers-1.dist-info/entry_points.txt",
    }, "no file that tells a path of this machine"


def test_an_editable_package_whose_code_is_elsewhere_is_refused(folder):
    with pytest.raises(Misconfigured, match="acme-parsers: its modules are not found"):
        files_of("acme-parsers", installed_as_editable(folder, "json.decoder"))


def test_the_command_writes_the_archive_that_the_settings_name(folder, monkeypatch, capsys):
    monkeypatch.setattr(packages, "worker_packages", lambda: [package(folder, "a")])
    settings = '[flow]\narchive = "in/env.zip"\n'
    (folder / "cloud.toml").write_text(f'tenant = "t"\n[kafka]\n"bootstrap.servers" = "127.0.0.1:1"\n{settings}')
    (folder / "in").mkdir()
    assert main(["flow", "archive", "--config", str(folder / "cloud.toml"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["path"] == str(folder / "in" / "env.zip")
    assert told["bytes"] == (folder / "in" / "env.zip").stat().st_size
    assert told["packages"] == {"a": "1"}
    assert main(["flow", "archive", str(folder / "other.zip"), "--config", str(folder / "cloud.toml")]) == 0
    assert f'archive = "{folder / "other.zip"}"' in capsys.readouterr().out
