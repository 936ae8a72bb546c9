"""What executors answer, compared with the driver."""

import json

import msgspec
import pytest

from fogline_cloud.flows.cluster import executor_probe
from fogline_cloud.flows.cluster.executor_answers import Deployment, ExecutorAnswer, ExecutorQuestion, failed_task, problems
from fogline_cloud.flows.tables.files import TableFolder, missing_probes

AT = Deployment(tables="s3a://b/t", bootstrap="kafka:9093", master="spark://h:7077", has_archive=True)
DRIVER = ExecutorAnswer(
    host="driver",
    process="driver/1",
    python="3.11",
    packages={"pyarrow": "26.0.1", "fogline": "0.1.0"},
    code={"fogline": "aa", "fogline_cloud": "bb"},
    parsers={"acme": "acme:parse cc"},
    failures={},
    probe="",
)


def answer(**given: object) -> ExecutorAnswer:
    return msgspec.structs.replace(DRIVER, host="node-7", process="node-7/1", probe="p", **given)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            {"failures": {"import": "No module named 'fogline_cloud'"}},
            "cannot load what a flow needs (No module named 'fogline_cloud'): run `fogline flow archive` again",
        ),
        ({"code": {"fogline": "aa", "fogline_cloud": "old"}}, "has other code of fogline_cloud than the driver: run `fogline"),
        ({"packages": {"fogline": "0.1.0", "pyarrow": "25.0"}}, "has another version of pyarrow than the driver (25.0, not 26"),
        ({"packages": {"fogline": "0.1.0", "pyarrow": ""}}, "has no package pyarrow: run `fogline flow archive` again"),
        ({"parsers": {}}, "has no parser acme: run `fogline flow archive` again"),
        ({"parsers": {"acme": "acme:parse dd"}}, "has other code of parser acme than the driver: run `fogline flow archive`"),
        (
            {"parsers": {"acme": "acme:parse cc", "b": "b:parse ee"}},
            "has parser b, and the driver does not: run `fogline flow archive` again",
        ),
        (
            {"failures": {"kafka": "no route"}},
            "cannot reach Kafka (no route): let its machine connect to kafka:9093, and",
        ),
        ({"failures": {"store": "403"}}, "cannot write to [flow] tables = s3a://b/t (403): give its machine access"),
    ],
    ids=["import", "code", "version", "package", "parser", "parser code", "more parsers", "kafka", "store"],
)
def test_a_difference_is_one_sentence_with_the_host_and_the_remedy(given, sentence):
    (found,) = problems(DRIVER, [answer(**given), answer(**given)], set(), AT)
    assert found.startswith(f"the executor on node-7 {sentence}")
    assert "\n" not in found


def test_an_executor_that_writes_elsewhere_is_named():
    (found,) = problems(DRIVER, [answer()], {"p"}, AT)
    assert "writes files into [flow] tables = s3a://b/t that the driver does not see" in found
    assert "with master = spark://h:7077, use a URL, or a folder that all machines share" in found


def test_executors_that_are_as_the_driver_have_no_problem():
    assert problems(DRIVER, [answer(), msgspec.structs.replace(answer(), process="node-8/1")], set(), AT) == []


def test_without_an_archive_the_remedy_is_to_install_or_to_make_one():
    at = msgspec.structs.replace(AT, has_archive=False)
    (found,) = problems(DRIVER, [answer(failures={"import": "No module named 'msgspec'"})], set(), at)
    assert found.endswith("install the driver's packages there, or set [flow] archive (`fogline flow archive`)")


LOST = "Job aborted due to stage failure: Lost task 0.3 in stage 0.0 (TID 3) (10.0.0.7 executor 1): "


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            f"{LOST}PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in",
            "the executor on 10.0.0.7 runs Python 3.9, the driver 3.11: install python3.11 there, and set [flow.spark]",
        ),
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.10",
            "an executor runs Python 3.10, the driver 3.11: install python3.11 there, and set [flow.spark]",
        ),
        (
            f'{LOST}java.io.IOException: Cannot run program "python3.11": error=2, No such file or directory',
            "the executor on 10.0.0.7 has no python3.11: install it there, or name another one in [flow.spark]",
        ),
        (
            f"{LOST}java.lang.ClassNotFoundException: org.apache.kafka.common.utils.AppInfoParser",
            "the executor on 10.0.0.7 has no jar with the class org.apache.kafka.common.utils.AppInfoParser: start the flow by",
        ),
        (
            f"{LOST}SparkException: \nError from python worker:\n  Traceback\n  SyntaxError: bad\nPYTHONPATH was:",
            "the executor on 10.0.0.7 cannot start a Python worker (SyntaxError: bad): install python3.11 there, and set",
        ),
        (f"{LOST}java.lang.IllegalStateException: odd\n\tat a.b.C", "the executor on 10.0.0.7 cannot run a task: java.lang.I"),
    ],
    ids=["python", "python without host", "no python", "jar", "worker", "other"],
)
def test_a_question_that_fails_in_spark_is_one_sentence_with_the_host_and_the_remedy(text, sentence):
    found = failed_task(text, "3.11", AT)
    assert found.startswith(sentence)
    assert "\n" not in found


def test_a_failure_that_is_no_executors_is_left_to_others():
    assert failed_task("Cannot call methods on a stopped SparkContext", "3.11", AT) == ""


def test_a_process_describes_itself_and_writes_its_probe(folder, kafka):
    here = TableFolder(str(folder))
    asked = ExecutorQuestion(
        packages=["msgspec", "no-such"], kafka={"bootstrap.servers": kafka.bootstrap}, folder=here, probe="p"
    )
    text = executor_probe.describe(msgspec.json.encode(asked).decode())
    found = msgspec.json.decode(text, type=ExecutorAnswer)
    assert found.failures == {}
    assert found.packages["no-such"] == ""
    assert found.packages["msgspec"][0].isdigit()
    assert found.code["fogline"]
    assert found.parsers["json"].startswith("fogline_cloud.flows.parsers.json_values:parse ")
    assert missing_probes(here, ["p", "q"]) == ["q"]


def test_a_process_tells_what_it_does_not_reach(folder):
    (folder / "file").touch()
    asked = ExecutorQuestion(
        packages=[], kafka={"bootstrap.servers": "127.0.0.1:1"}, folder=TableFolder(f"{folder}/file"), probe="p"
    )
    failures = json.loads(executor_probe.describe(msgspec.json.encode(asked).decode()))["failures"]
    assert "Kafka does not answer at 127.0.0.1:1" in failures["kafka"]
    assert failures["store"]
    assert failures.keys() == {"kafka", "store"}
