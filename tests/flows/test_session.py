import os
import signal
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from fogline.errors import Misconfigured
from fogline_cloud.flows.cluster.submission import submission
from fogline_cloud.flows.driver.session import (
    configuration,
    executor_python,
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


def test_spark_submit_chooses_the_master(monkeypatch: pytest.MonkeyPatch) -> None:
    assert spark_master(FlowSettings()) == "local[3,4]"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--master yarn pyspark-shell")
    assert spark_master(FlowSettings()) is None
    assert "spark.driver.host" not in configuration(given()), "the cluster's driver is not on loopback"


@pytest.mark.parametrize(("name", "value"), [("PYSPARK_GATEWAY_PORT", "1"), ("PYSPARK_SUBMIT_ARGS", "--master yarn x")])
def test_a_second_master_beside_that_of_spark_submit_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    """The setting won, silently: a flow that was submitted to a cluster ran on the machine of the driver."""
    monkeypatch.setenv(name, value)
    with pytest.raises(Misconfigured, match=r"master = local\[3\], but spark-submit has chosen a master too: delete"):
        spark_master(FlowSettings(master="local[3]"))


def test_options_of_spark_submit_without_a_master_leave_it_to_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--driver-memory 3g pyspark-shell")
    assert spark_master(FlowSettings(master="local[3]")) == "local[4,4]"


def test_executors_of_a_cluster_get_our_jars_and_the_users(folder: Path) -> None:
    chosen = configuration(given(master="yarn", spark={"spark.jars": "mine.jar"}))
    jars = chosen["spark.jars"].split(",")
    assert jars[-1] == "mine.jar"
    assert {"delta-spark_4", "spark-sql-kafka-0-10_2"} <= {Path(each).name.partition(".")[0] for each in jars}
    assert "spark.archives" not in chosen


def test_executors_of_a_cluster_get_the_archive_and_run_their_own_python(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    archive = folder / "env.zip"
    archive.touch()
    more = {"spark.archives": "model.zip#model", "spark.executorEnv.PYTHONPATH": "model"}
    flow = given(master="yarn", archive=str(archive), spark=more).flow
    chosen = configuration(given(master="yarn", archive=str(archive), spark=more))
    assert chosen["spark.archives"] == f"{archive}#env,model.zip#model"
    assert chosen["spark.executorEnv.PYTHONPATH"] == "env:model"
    assert executor_python(flow) == f"python{sys.version_info.major}.{sys.version_info.minor}"
    assert executor_python(given(spark={"spark.pyspark.python": "/opt/python"}).flow) == "/opt/python"
    assert executor_python(given().flow) == sys.executable


def test_an_archive_that_is_not_there_is_refused_before_spark_starts(folder: Path) -> None:
    with pytest.raises(Misconfigured, match="there is no such file: run `fogline flow archive`"):
        configuration(given(master="yarn", archive=str(folder / "none.zip")))
    assert "spark.archives" not in configuration(given(master="local[2]", archive=str(folder / "none.zip")))
    url = "s3a://bucket/env.zip"
    assert configuration(given(master="yarn", archive=url))["spark.archives"] == f"{url}#env"


@pytest.mark.parametrize("master", ["local[2]", "yarn"])
def test_no_progress_bar_is_among_the_lines_of_a_log_unless_the_user_asks_for_one(master: str) -> None:
    assert configuration(given(master=master))["spark.ui.showConsoleProgress"] == "false"
    asked = given(master=master, spark={"spark.ui.showConsoleProgress": True})
    assert configuration(asked)["spark.ui.showConsoleProgress"] == "true"


def test_the_line_of_spark_submit_has_what_java_must_know_and_no_secret(folder: Path) -> None:
    archive = folder / "env.zip"
    archive.touch()
    secret = {"spark.hadoop.fs.s3a.secret.key": "hush", "spark.driver.memory": "3g"}
    line = submission(given(archive=str(archive), spark=secret), "spark://h:7077", ["main.py", "flow", "run"])
    assert line.command[1:3] == ["--master", "spark://h:7077"]
    assert line.command[-3:] == ["main.py", "flow", "run"]
    told = dict(each.split("=", 1) for each in line.options[3::2])
    assert told["spark.driver.memory"] == "3g"
    assert told["spark.archives"] == f"{archive}#env"
    assert told["spark.pyspark.driver.python"] == sys.executable
    assert "delta-spark" in told["spark.jars"]
    assert "hush" not in " ".join(line.command)


def test_the_line_of_spark_submit_is_not_made_for_settings_that_choose_another_master() -> None:
    with pytest.raises(Misconfigured, match="delete the setting, and pass --master"):
        submission(given(master="yarn"), "spark://h:7077", [])


def started_by_spark_submit(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a script that starts a session and prints its master, with spark-submit's options as they are."""
    script = folder / "flow.py"
    script.write_text(
        "from fogline.errors import Misconfigured\n"
        "from fogline_cloud.flows.driver.session import spark_session\n"
        "from fogline_cloud.settings import CloudSettings, FlowSettings\n"
        f"settings = CloudSettings(tenant='t', flow=FlowSettings(checkpoint={str(folder / 'checkpoint')!r}))\n"
        "try:\n"
        "    with spark_session(settings) as spark:\n"
        "        print('master', spark.sparkContext.master)\n"
        "except Misconfigured as error:\n"
        "    print(error)\n"
    )
    program = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_HOME": str(program.parents[1])}
    return subprocess.run(
        [program, *options, script], env=environment, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.slow
def test_a_session_that_our_line_of_spark_submit_starts_has_its_master_and_our_jars(folder: Path) -> None:
    line = submission(given(checkpoint=str(folder / "checkpoint")), "local[1]", [])
    ran = started_by_spark_submit(folder, *line.options)
    assert "master local[1]" in ran.stdout.splitlines(), ran.stderr[-2000:]


@pytest.mark.slow
def test_spark_submit_without_our_jars_is_answered_with_the_way_to_start_it(folder: Path) -> None:
    """The first use of a class ended in `'JavaPackage' object is not callable`."""
    local = ("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.ui.enabled=false")
    ran = started_by_spark_submit(folder, "--master", "local[1]", *local)
    assert "Spark's driver has no jar of Kafka's source" in ran.stdout, ran.stderr[-2000:]
    assert "`fogline flow submit-options`" in ran.stdout


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


def test_a_command_beside_the_flow_has_a_log_of_its_own() -> None:
    settings = given(checkpoint="/data/checkpoint", master="local")
    own = log_file(settings, "replay")
    assert own == Path("/data/checkpoint-replay.log")
    assert f'-Dfogline.log="{own}"' in configuration(settings, own)["spark.driver.extraJavaOptions"]
    assert log_file(given(checkpoint="s3a://b/c", name="x"), "replay").name == "fogline-flow-x-replay.log"


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
