import logging
from pathlib import Path

import pytest

from fogline.errors import Misconfigured
from fogline_cloud.flows.kafka import spark_options


def test_what_both_clients_call_the_same_passes() -> None:
    assert spark_options({"bootstrap.servers": "a:1", "security.protocol": "SSL", "reconnect.backoff.ms": 50}) == {
        "kafka.bootstrap.servers": "a:1",
        "kafka.security.protocol": "SSL",
        "kafka.reconnect.backoff.ms": "50",
    }


def test_a_password_becomes_a_login_module_with_quotes_kept_apart() -> None:
    options = spark_options({"sasl.mechanisms": "SCRAM-SHA-512", "sasl.username": "u", "sasl.password": 'p"\\;'})
    assert options == {
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": (
            'org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="p\\"\\\\;";'
        ),
    }


def test_a_mechanism_that_java_says_otherwise_is_refused() -> None:
    with pytest.raises(Misconfigured, match="OAUTHBEARER"):
        spark_options({"sasl.mechanism": "OAUTHBEARER", "sasl.username": "u"})


def test_pem_files_become_pem_stores(folder: Path) -> None:
    for name in ("ca", "certificate", "key"):
        (folder / name).write_text(f"-- {name} --")
    options = spark_options(
        {
            "ssl.ca.location": str(folder / "ca"),
            "ssl.certificate.location": str(folder / "certificate"),
            "ssl.key.pem": "-- inline --",
            "ssl.key.password": "secret",
            "ssl.endpoint.identification.algorithm": "none",
        }
    )
    assert options == {
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.certificates": "-- ca --",
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.certificate.chain": "-- certificate --",
        "kafka.ssl.keystore.key": "-- inline --",
        "kafka.ssl.key.password": "secret",
        "kafka.ssl.endpoint.identification.algorithm": "",
    }


def test_a_file_that_is_not_there_is_named(folder: Path) -> None:
    with pytest.raises(Misconfigured, match=r"ssl\.ca\.location"):
        spark_options({"ssl.ca.location": str(folder / "none")})


def test_what_has_no_counterpart_is_left_out_and_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        assert spark_options({"queue.buffering.max.kbytes": 1000}) == {}
    assert "queue.buffering.max.kbytes" in caplog.text
