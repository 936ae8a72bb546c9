"""Errors of the store's clients as one sentence, and by the reaction that they need. The texts are of real failures."""

from pathlib import Path

import pytest

from fogline.errors import Misconfigured, Unreachable
from fogline_cloud.flows.driver.spark_failure import explained
from fogline_cloud.store.failure import failure_of, meaning_of, named

S3A = "org.apache.hadoop.fs.s3a"
JARS = "run deploy/setup/setup.sh s3, or install the package fogline-flow-s3"
AWAY = [
    "Generic S3 error: Error performing PUT http://s:9/x.json in 3s, after 5 retries - HTTP error: error sending request",
    "Failed to parse parquet: External: Generic S3 error: Error performing GET http://s:9/fog/x in 30s - operation timed out",
    "Generic S3 error: Error performing GET http://s:9/x in 1s - Server returned non-2xx status code: 503 SlowDown",
    f"\tat {S3A}.S3AFileSystem.x\njava.net.ConnectException: Connection refused",
    "on s3a://b/x: software.amazon.awssdk.core.exception.SdkClientException: Unable to execute HTTP request: reset",
    f"{S3A}.AWSStatus500Exception: PUT on x: software.amazon.awssdk.S3Exception: (Status Code: 500)",
]
WRONG = {
    f"java.lang.ClassNotFoundException: Class {S3A}.S3AFileSystem not found": JARS,
    "java.lang.ClassNotFoundException: fogline.PutIfAbsentLogStore": JARS,
    f"{S3A}.auth.NoAuthWithAWSException: No AWS Credentials": "set [store] key_file",
    "Error performing PUT http://169.254.169.254/latest/api/token in 1ms - error sending request": "there are no keys",
    "Error performing PUT http://s:9/x - status code: 403 Forbidden: <Code>SignatureDoesNotMatch</Code>": "refuses the keys",
    "java.nio.file.AccessDeniedException: s3a://b/x: getFileStatus on s3a://b/x: software.amazon.awssdk.S3Exception: ("
    "Status Code: 403)": "denies access",
    f"{S3A}.UnknownStoreException: `s3a://b/x': Bucket does not exist": "the bucket does not exist",
    "Generic S3 error: Error performing GET http://s:9/b?list - status code: 301 Moved": "set [store] region",
}


@pytest.mark.parametrize("text", AWAY)
@pytest.mark.parametrize("around", ["{}", "[STREAM_FAILED] Query terminated\nPythonException: Traceback\nOSError: {}"])
def test_a_store_that_is_away_makes_a_flow_wait(text, around):
    error = explained(RuntimeError(around.format(text)), Path("flow.log"))
    assert isinstance(error, Unreachable)
    assert str(error).startswith("the object store")


@pytest.mark.parametrize(("text", "meaning"), WRONG.items())
def test_a_store_that_cannot_be_used_ends_a_flow_with_the_remedy(text, meaning):
    error = explained(
        RuntimeError(f"\tat some.Java(Class.java:1)\n{text}\nCaused by: java.net.ConnectException"), Path("flow.log")
    )
    assert isinstance(error, Misconfigured)
    assert meaning in str(error)
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    "text",
    [
        "java.nio.file.AccessDeniedException: /var/lib/tables",
        "KeyError: 'timed out'",
        "org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node",
        "[PATH_NOT_FOUND] s3a://b/timed out/x",
    ],
)
def test_errors_elsewhere_are_not_the_stores(text):
    assert meaning_of(text) is None


def test_an_unknown_error_of_a_client_is_one_line_without_colours():
    error = failure_of(OSError("Generic \x1b[31moddity\x1b[0m\n  \x1b[31mmore"), "table t cannot be read")
    assert (type(error), str(error)) == (Misconfigured, "table t cannot be read: Generic oddity")


def test_an_error_at_the_store_is_named_wherever_it_comes_up_and_others_pass():
    with pytest.raises(Unreachable, match="the object store at http://s:9 does not answer"), named():
        raise OSError(AWAY[0])
    for error in (OSError("another"), Misconfigured("ours")):
        with pytest.raises(type(error), match=str(error)), named():
            raise error
