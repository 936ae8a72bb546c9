"""The archive of Spark's classes. The slow test writes one with the real Java."""

import subprocess
import sys
from pathlib import Path

import pytest

from fogline.errors import Misconfigured
from fogline.installed import find_jars, find_java
from fogline_cloud.cli.main import main
from fogline_cloud.flows.driver.class_archive import write_class_archive
from fogline_cloud.flows.driver.session import class_archive, configuration
from fogline_cloud.settings import CloudSettings, FlowSettings
from fogline_lab.supervisor import find_script

OPTIONS = "spark.driver.extraJavaOptions"
LEAST_CLASSES = 5000


def options(master: str | None = None) -> str:
    return configuration(CloudSettings(tenant="t", flow=FlowSettings(master=master)))[OPTIONS]


@pytest.fixture
def jars(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    jars = folder / "jars"
    (jars / "spark").mkdir(parents=True)
    for each in find_jars("spark"):
        (jars / "spark" / each.name).symlink_to(each)
    monkeypatch.setenv("FOGLINE_JARS", str(jars))
    return jars


def test_a_flow_uses_an_archive_if_there_is_one(jars: Path) -> None:
    assert class_archive() == jars / "spark.jsa"
    assert "SharedArchiveFile" not in options()
    class_archive().touch()
    assert f'-XX:SharedArchiveFile="{jars}/spark.jsa"' in options()
    assert "SharedArchiveFile" not in options("yarn"), "its driver may be on another machine"


def test_jars_are_on_the_class_path_where_java_maps_classes() -> None:
    jars = [str(each) for each in find_jars("spark")]
    local = configuration(CloudSettings(tenant="t"))
    assert local["spark.driver.extraClassPath"] == ":".join(jars)
    assert "spark.jars" not in local
    more = FlowSettings(spark={"spark.driver.extraClassPath": "/opt/s3.jar"})
    assert configuration(CloudSettings(tenant="t", flow=more))["spark.driver.extraClassPath"] == ":".join(
        [*jars, "/opt/s3.jar"]
    )
    cluster = configuration(CloudSettings(tenant="t", flow=FlowSettings(master="yarn")))
    assert cluster["spark.jars"] == ",".join(jars)
    assert "spark.driver.extraClassPath" not in cluster


def test_a_java_that_does_not_fit_an_archive_starts_without_it_and_is_silent(jars: Path) -> None:
    class_archive().write_bytes(b"of another version")
    given = [each.replace('"', "") for each in options().split() if each.startswith("-X")]
    assert len(given) == 3
    done = subprocess.run([find_java(), *given, "-version"], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == ""
    assert "archive" not in done.stderr


def test_a_folder_that_takes_no_archive_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fogline_cloud.flows.driver.class_archive.class_archive", lambda: folder / "none" / "spark.jsa")
    with pytest.raises(Misconfigured, match=r"none/spark\.jsa: the archive of Spark's classes cannot be written: No such file"):
        write_class_archive()


def test_without_sparks_jars_there_is_no_archive(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FOGLINE_JARS", str(folder))
    assert main(["flow", "prepare"]) == 2
    assert "run deploy/setup/setup.sh, install the package fogline-flow, or set FOGLINE_JARS" in capsys.readouterr().err


@pytest.mark.slow
def test_the_archive_has_sparks_classes_and_java_maps_them(jars: Path, folder: Path) -> None:
    done = subprocess.run(
        [find_script("fogline"), "flow", "prepare", "--json"], capture_output=True, text=True, timeout=400, check=True
    )
    assert str(class_archive()) in done.stdout
    assert [each.name for each in jars.iterdir() if each.name != "spark"] == ["spark.jsa"]
    loaded = folder / "loaded"
    script = (
        "from fogline_cloud.flows.driver.session import configuration, spark_session\n"
        "from fogline_cloud.settings import CloudSettings, FlowSettings\n"
        f"flow = FlowSettings(checkpoint={str(folder / 'checkpoint')!r})\n"
        f"options = configuration(CloudSettings(tenant='t', flow=flow))[{OPTIONS!r}]\n"
        f"options += ' -Xlog:class+load:file={loaded}'\n"
        f"flow = FlowSettings(checkpoint={str(folder / 'checkpoint')!r}, spark={{{OPTIONS!r}: options}})\n"
        "with spark_session(CloudSettings(tenant='t', flow=flow)) as spark:\n"
        "    assert spark.range(3).count() == 3\n"
        "    spark._jvm.org.apache.kafka.clients.consumer.ConsumerConfig.configNames()\n"
    )
    subprocess.run([sys.executable, "-c", script], timeout=200, check=True)
    mapped = [line for line in loaded.read_text().splitlines() if "shared objects file (top)" in line]
    assert len(mapped) > LEAST_CLASSES
    for each in ("spark.SparkContext", "spark.sql.delta.catalog.DeltaCatalog", "kafka.clients.consumer.ConsumerConfig"):
        assert any(f"org.apache.{each} " in line for line in mapped), each
