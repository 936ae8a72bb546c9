import logging
from pathlib import Path

import pytest

from fogline.errors import Misconfigured
from fogline_cloud.flows.kafka import spark_options


def test_settings_with_the_same_name_in_both_clients_pass_unchanged() -> None:
    assert spark_options({"bootstrap.servers": "a:1", "security.protocol": "SSL", "reconnect.backoff.ms": 50}) == {
        "kafka.bootstrap.servers": "a:1",
        "kafka.security.protocol": "SSL",
        "kafka.reconnect.backoff.ms": "50",
    }


def test_user_and_password_become_a_login_module_with_escaped_quotes() -> None:
    options = spark_options({"sasl.mechanisms": "SCRAM-SHA-512", "sasl.username": "u", "sasl.password": 'p"\\;'})
    assert options == {
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": (
            'org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="p\\"\\\\;";'
        ),
    }


def test_an_unsupported_sasl_mechanism_is_refused() -> None:
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


def test_the_error_for_a_missing_pem_file_names_the_file(folder: Path) -> None:
    with pytest.raises(Misconfigured, match=r"ssl\.ca\.location"):
        spark_options({"ssl.ca.location": str(folder / "none")})


def test_a_setting_without_a_counterpart_is_ignored_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        assert spark_options({"queue.buffering.max.kbytes": 1000}) == {}
    assert "queue.buffering.max.kbytes" in caplog.text
