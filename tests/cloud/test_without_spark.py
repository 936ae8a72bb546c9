"""The commands of `fogline` where Spark is not installed, and the settings beside a Debian package."""

import subprocess
import sys
from pathlib import Path

import pytest

from fogline import installed
from fogline_cloud.cli.common import settings_folder
from fogline_cloud.cli.main import main

WITHOUT_SPARK = """
import sys
for name in ("pyspark", "py4j", "py4j.protocol"):
    sys.modules[name] = None
from fogline_cloud.cli.main import main
sys.exit(main())
"""


def test_a_command_that_needs_spark_names_the_package(folder):
    (folder / "cloud.toml").write_text('tenant = "t"\n[kafka]\n"bootstrap.servers" = "127.0.0.1:1"\n')
    command = [sys.executable, "-c", WITHOUT_SPARK, "flow", "run", "--config", str(folder / "cloud.toml")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert "install the package fogline-flow" in ran.stderr


@pytest.mark.parametrize("module", ["yaml", "grpc", "grpc_status"])
def test_a_pipeline_without_spark_connect_names_the_extra(module, folder, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, module, None)
    assert main(["pipeline", "test", str(folder)]) == 2
    assert "fogline-cloud[pipelines]" in capsys.readouterr().err


def test_another_missing_module_is_not_taken_for_spark(monkeypatch):
    def missing(*_):
        raise ModuleNotFoundError(name="acme_parser")

    monkeypatch.setattr("fogline_cloud.cli.main.command_line.main", missing)
    with pytest.raises(ModuleNotFoundError):
        main(["flow", "status"])


def test_the_settings_here_come_before_those_of_the_package(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(installed, "SETTINGS", folder / "etc")
    assert settings_folder("cloud.toml", "cloud") == Path()
    (folder / "etc" / "cloud").mkdir(parents=True)
    assert settings_folder("cloud.toml", "cloud") == folder / "etc" / "cloud"
    (folder / "cloud.toml").touch()
    assert settings_folder("cloud.toml", "cloud") == Path()


def test_settings_that_only_others_may_read_are_named(folder, monkeypatch):
    """Users who may not look into /etc/fogline read its name in the error."""

    def refuse(_):
        raise PermissionError

    monkeypatch.chdir(folder)
    monkeypatch.setattr(Path, "is_dir", refuse)
    assert settings_folder("cloud.toml", "cloud") == installed.SETTINGS / "cloud"
