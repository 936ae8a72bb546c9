import logging
from pathlib import Path

import pytest

from fogline.errors import Misconfigured
from fogline_cloud.flows.driver.spark_kafka_options import java_settings, spark_options

OAUTH = {
    "security.protocol": "sasl_ssl",
    "sasl.mechanisms": "OAUTHBEARER",
    "sasl.oauthbearer.method": "OIDC",
    "sasl.oauthbearer.token.endpoint.url": "https://id.example/token",
}
PKCS8 = "-----BEGIN PRIVATE KEY-----\nsecret"


def test_settings_with_the_same_name_in_both_clients_pass_unchanged() -> None:
    same = {"bootstrap.servers": "a:1", "security.protocol": "SSL", "reconnect.backoff.ms": "50"}
    assert java_settings({**same, "reconnect.backoff.ms": 50}) == same
    assert spark_options({"bootstrap.servers": "a:1"}) == {"kafka.bootstrap.servers": "a:1"}


@pytest.mark.parametrize("key", ["sasl.mechanism", "sasl.mechanisms"])
def test_user_and_password_become_a_login_module_with_escaped_quotes(key: str) -> None:
    assert java_settings({key: "SCRAM-SHA-512", "sasl.username": "u", "sasl.password": 'p"\\;'}) == {
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": (
            'org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="p\\"\\\\;";'
        ),
    }


def test_a_client_that_gets_tokens_becomes_a_login_module_with_a_handler() -> None:
    given = {
        "sasl.oauthbearer.client.id": "flow",
        "sasl.oauthbearer.client.secret": "s",
        "sasl.oauthbearer.scope": "kafka",
        "sasl.oauthbearer.extensions": "logicalCluster=lkc-1,identityPoolId=pool-1",
        "https.ca.pem": "-- ca --\n",
    }
    package = "org.apache.kafka.common.security.oauthbearer"
    assert java_settings({**OAUTH, **given}) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.login.callback.handler.class": f"{package}.OAuthBearerLoginCallbackHandler",
        "sasl.oauthbearer.token.endpoint.url": "https://id.example/token",
        "sasl.jaas.config": (
            f'{package}.OAuthBearerLoginModule required password="" clientId="flow" clientSecret="s" scope="kafka" '
            'extension_logicalCluster="lkc-1" extension_identityPoolId="pool-1" '
            'ssl.truststore.type="PEM" ssl.truststore.certificates="-- ca --\\n";'
        ),
    }


@pytest.mark.parametrize(
    "kafka",
    [
        {"sasl.mechanism": "GSSAPI"},
        {"ssl.crl.location": "crl.pem"},
        {"ssl.cipher.suites": "ECDHE-RSA-AES128-GCM-SHA256"},
        {"ssl.keystore.location": "store.p12"},
        {"ssl.certificate.pem": "a certificate without its key"},
        {"enable.ssl.certificate.verification": False},
        {**OAUTH, "sasl.oauthbearer.grant.type": "urn:ietf:params:oauth:grant-type:jwt-bearer"},
        {**OAUTH, "sasl.oauthbearer.assertion.algorithm": "ES256"},
    ],
    ids=lambda kafka: list(kafka)[-1],
)
def test_a_setting_that_protects_and_has_no_counterpart_is_refused_by_its_name(kafka: dict[str, str | bool]) -> None:
    with pytest.raises(Misconfigured, match=f"kafka. {list(kafka)[-1]}"):
        java_settings(kafka)


def test_a_setting_that_only_tunes_is_ignored_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        assert java_settings({"queue.buffering.max.kbytes": 1000}) == {}
    assert "queue.buffering.max.kbytes" in caplog.text


def test_pem_files_become_pem_stores(folder: Path) -> None:
    for name, text in (("ca", "-- ca --"), ("certificate", "-- certificate --"), ("key", PKCS8)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o600)
    options = spark_options(
        {
            "security.protocol": "ssl",
            "ssl.ca.location": str(folder / "ca"),
            "ssl.certificate.location": str(folder / "certificate"),
            "ssl.key.location": str(folder / "key"),
            "ssl.key.password": "secret",
            "ssl.endpoint.identification.algorithm": "none",
            "enable.ssl.certificate.verification": True,
        }
    )
    assert options == {
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.certificates": "-- ca --",
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.certificate.chain": "-- certificate --",
        "kafka.ssl.keystore.key": PKCS8,
        "kafka.ssl.key.password": "secret",
        "kafka.ssl.endpoint.identification.algorithm": "",
    }


def test_a_key_in_another_form_than_pkcs8_is_refused_with_the_command_that_converts_it() -> None:
    with pytest.raises(Misconfigured, match=r"ssl\.key: .*openssl pkcs8"):
        java_settings({"ssl.certificate.pem": "-- certificate --", "ssl.key.pem": "-----BEGIN EC PRIVATE KEY-----"})


def test_the_authorities_of_the_system_are_the_default_of_both_clients() -> None:
    assert "kafka.ssl.truststore.type" not in spark_options({"security.protocol": "SSL", "ssl.ca.location": "probe"})


def test_the_error_for_a_pem_file_that_is_none_names_the_setting(folder: Path) -> None:
    with pytest.raises(Misconfigured, match=r"ssl\.ca\.location"):
        spark_options({"security.protocol": "SSL", "ssl.ca.location": str(folder / "none")})
    with pytest.raises(Misconfigured, match=r"ssl\.ca\.location.*PEM"):
        spark_options({"security.protocol": "SSL", "ssl.ca.location": str(folder)})
