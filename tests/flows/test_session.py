import os
import signal
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from fogline.errors import Misconfigured
from fogline_cloud.flows.driver.session import (
    configuration,
    is_local,
    log_file,
    own_signals,
    parsing_slots,
    spark_master,
    spark_session,
)
from fogline_cloud.settings import CloudSettings, FlowSettings


def given(**flow: object) -> CloudSettings:
    return CloudSettings(tenant="t", kafka={"bootstrap.servers": "127.0.0.1:9092"}, flow=FlowSettings(**flow))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("master", "becomes"),
    [
        ("local", "local[1,4]"),
        ("local[3]", "local[3,4]"),
        ("local[*]", "local[*,4]"),
        ("local[2,9]", "local[2,4]"),
        ("yarn", "yarn"),
        ("spark://h:7077", "spark://h:7077"),
    ],
)
def test_a_local_task_that_dies_is_tried_again(master: str, becomes: str) -> None:
    assert spark_master(FlowSettings(master=master, raw_days=0)) == becomes
    assert is_local(master) is becomes.startswith("local")


def test_table_raw_gets_a_slot_of_its_own() -> None:
    assert spark_master(FlowSettings(master="local[2]")) == "local[3,4]"
    assert spark_master(FlowSettings(master="local[*]")) == "local[*,4]"
    slots = {slots: parsing_slots(slots, FlowSettings()) for slots in (1, 2, 3, 16)}
    assert slots == {1: 1, 2: 1, 3: 2, 16: 15}
    assert parsing_slots(16, FlowSettings(raw_days=0)) == 16


def test_the_master_of_spark_submit_wins_over_the_default_but_not_over_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    assert spark_master(FlowSettings()) == "local[3,4]"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--master yarn pyspark-shell")
    assert spark_master(FlowSettings()) is None
    assert spark_master(FlowSettings(master="local[3]")) == "local[4,4]"
    assert "spark.driver.host" not in configuration(given()), "the cluster's driver is not on loopback"


@pytest.mark.slow
def test_a_session_that_spark_submit_starts_has_its_master(folder: Path) -> None:
    script = folder / "flow.py"
    script.write_text(
        "from fogline_cloud.flows.driver.session import spark_session\n"
        "from fogline_cloud.settings import CloudSettings, FlowSettings\n"
        f"settings = CloudSettings(tenant='t', flow=FlowSettings(checkpoint={str(folder / 'checkpoint')!r}))\n"
        "with spark_session(settings) as spark:\n"
        "    print('master', spark.sparkContext.master)\n"
    )
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    local = ("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.ui.enabled=false")
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_HOME": str(submit.parents[1])}
    ran = subprocess.run(
        [submit, "--master", "local[1]", *local, script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "master local[1]" in ran.stdout.splitlines(), ran.stderr[-2000:]


def test_a_local_session_listens_on_loopback_only() -> None:
    chosen = configuration(given())
    assert chosen["spark.driver.bindAddress"] == "127.0.0.1"
    assert chosen["spark.driver.host"] == "127.0.0.1"
    assert chosen["spark.ui.enabled"] == "false"


def test_a_cluster_decides_for_itself_where_it_listens() -> None:
    assert "spark.driver.host" not in configuration(given(master="yarn"))


def test_the_users_spark_settings_override_the_defaults() -> None:
    assert configuration(given(spark={"spark.ui.enabled": True, "spark.x": 5}))["spark.ui.enabled"] == "true"


def test_the_log_is_beside_the_checkpoint() -> None:
    assert log_file(given(checkpoint="/data/checkpoint")) == Path("/data/checkpoint.log")
    assert log_file(given(checkpoint="s3a://b/c", name="x")).name == "fogline-flow-x.log"


def test_a_missing_java_is_reported(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(folder))
    with pytest.raises(Misconfigured, match="there is no Java"), spark_session(given()):
        pass


def test_missing_jars_are_reported(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("FOGLINE_JARS", str(folder))
    with pytest.raises(Misconfigured, match=r"setup\.sh"):
        configuration(given())


def test_an_interrupt_waits_until_the_jvm_has_started() -> None:
    done = []

    def start() -> None:
        with own_signals():
            signal.raise_signal(signal.SIGINT)
            done.append("started")

    with pytest.raises(KeyboardInterrupt):
        start()
    assert done == ["started"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
