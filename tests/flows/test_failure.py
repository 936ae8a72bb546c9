from pathlib import Path

import pytest

from fogline.errors import Misconfigured, Unreachable
from fogline_cloud.flows.driver.spark_failure import explained

LOG = Path("/var/log/flow.log")


@pytest.mark.parametrize(
    "text",
    [
        "ExecutionException: org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node",
        "Caused by: org.apache.kafka.common.errors.DisconnectException",
        "org.apache.kafka.common.errors.TimeoutException: Topic t not present in metadata after 60000 ms.",
    ],
)
def test_a_kafka_that_does_not_answer_is_unreachable(text: str) -> None:
    assert isinstance(explained(RuntimeError(f"[STREAM_FAILED] Query terminated\n{text}"), LOG), Unreachable)


def test_a_workers_unreachable_keeps_its_message() -> None:
    text = "PythonException: Traceback (most recent call last):\n  File x\nfogline.errors.Unreachable: Kafka does not take it"
    error = explained(RuntimeError(text), LOG)
    assert isinstance(error, Unreachable)
    assert str(error) == "Kafka does not take it"


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("Some data may have been lost because they are not available in Kafka any more", "retention"),
        ("Caused by: java.lang.ArithmeticException: long overflow", "LogAppendTime"),
        ("java.io.IOException: No space left on device", "disk"),
        ("java.lang.OutOfMemoryError: Java heap space", "memory"),
        ("org.apache.kafka.common.errors.UnknownTopicOrPartitionException", "topics create"),
        ("org.apache.kafka.common.errors.TopicAuthorizationException: Not authorized", "topics create --acls"),
        ("PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different version", "executor"),
        ("Job aborted: Master removed our application: FAILED", "cluster"),
        ("org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)", "parser"),
    ],
)
def test_a_known_failure_becomes_one_line_with_its_remedy(text: str, meaning: str) -> None:
    error = explained(RuntimeError(f"\tat some.Java(Class.java:1)\n{text}"), LOG)
    assert isinstance(error, Misconfigured)
    assert meaning in str(error)
    assert str(LOG) in str(error)
    assert "\n" not in str(error)


def test_an_unknown_failure_is_its_first_line_and_the_log_file() -> None:
    error = explained(RuntimeError("\n [ODD] something new \n\tat java.lang.Thread\n"), LOG)
    assert str(error) == "the flow failed: [ODD] something new (see /var/log/flow.log)"
    assert str(explained(KeyError("x"), LOG)) == "the flow failed: KeyError: 'x' (see /var/log/flow.log)"


def test_our_own_errors_pass_unchanged() -> None:
    own = Misconfigured("as it is")
    assert explained(own, LOG) is own
