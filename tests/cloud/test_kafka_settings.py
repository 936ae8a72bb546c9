"""Files and secrets in `[kafka]`."""

import pytest

from fogline.errors import Misconfigured
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.kafka.connection_settings import read_secrets, resolve_files
from fogline_cloud.settings import load

LOGIN = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "bridge"}


def private(path, text="secret\n"):
    path.write_text(text)
    path.chmod(0o600)
    return str(path)


def test_files_are_relative_to_the_settings_file(folder):
    (folder / "cloud.toml").write_text(
        'tenant = "t"\n[kafka]\n"bootstrap.servers" = "a:1"\n"ssl.ca.location" = "ca.pem"\n"sasl.password_file" = "/secret"\n'
        '"https.ca.location" = "probe"\n"client.id" = "me"\n'
    )
    assert load(folder / "cloud.toml").kafka == {
        "bootstrap.servers": "a:1",
        "ssl.ca.location": str(folder / "ca.pem"),
        "sasl.password_file": "/secret",
        "https.ca.location": "probe",
        "client.id": "me",
    }


def test_a_credential_of_the_service_comes_before_a_file_of_that_name(folder, monkeypatch):
    """The `LoadCredential=` of systemd gives a service secrets that only root reads."""
    given = folder / "credentials"
    given.mkdir()
    private(given / "kafka.password")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(given))
    (folder / "cloud.toml").write_text(
        'tenant = "t"\n[kafka]\n"bootstrap.servers" = "a:1"\n"sasl.password_file" = "kafka.password"\n'
        '"ssl.key.location" = "kafka.key"\n[operator]\npassword_file = "kafka.password"\n'
        '[commands]\nsigning_key = "signing.key"\n'
    )
    settings = load(folder / "cloud.toml")
    assert settings.kafka["sasl.password_file"] == settings.operator.password_file == str(given / "kafka.password")
    assert settings.kafka["ssl.key.location"] == str(folder / "kafka.key")
    assert settings.commands.signing_key == str(folder / "signing.key")


@pytest.mark.parametrize("key", ["sasl.password", "sasl.oauthbearer.client.secret", "ssl.key.password", "ssl.key.pem"])
def test_a_settings_file_with_a_secret_that_everybody_may_read_is_refused(folder, key):
    path = folder / "cloud.toml"
    path.write_text(f'tenant = "t"\n[kafka]\n"bootstrap.servers" = "a:1"\n"{key}" = "canary"\n')
    path.chmod(0o644)
    with pytest.raises(Misconfigured, match=rf"\[kafka\] {key}: everybody may read .*chmod 600") as refused:
        load(path)
    assert "canary" not in str(refused.value)
    path.chmod(0o600)
    assert load(path).kafka[key] == "canary"


def test_a_settings_file_without_secrets_may_be_read_by_everybody(folder):
    path = folder / "cloud.toml"
    path.touch(mode=0o644)
    assert resolve_files({"bootstrap.servers": "a:1"}, path) == {"bootstrap.servers": "a:1"}


def test_a_secret_is_the_content_of_its_file_without_the_last_line_end(folder):
    kafka = {**LOGIN, "sasl.password_file": private(folder / "password", " with blanks \n")}
    assert read_secrets(kafka) == {**LOGIN, "sasl.password": " with blanks "}


def test_a_secret_in_a_file_that_everybody_may_read_is_refused(folder):
    path = folder / "password"
    path.write_text("canary")
    path.chmod(0o644)
    for key in ("sasl.password_file", "ssl.key.location"):
        with pytest.raises(Misconfigured, match=rf"\[kafka\] {key}: everybody may read .*chmod 600") as refused:
            read_secrets({**LOGIN, key: str(path)})
        assert "canary" not in str(refused.value)


@pytest.mark.parametrize(
    ("kafka", "said"),
    [
        ({**LOGIN, "sasl.password_file": "/none"}, r"sasl\.password_file: cannot read /none"),
        ({**LOGIN, "sasl.password_file": "/none", "sasl.password": "p"}, r"both sasl\.password and sasl\.password_file"),
        ({**LOGIN, "ssl.ca.location": "/none"}, r"ssl\.ca\.location = /none: there is no such file"),
        ({**LOGIN, "security.protocol": "SASL_PLAINTEXT", "ssl.ca.pem": "x"}, r"ssl\.ca\.pem needs security\.protocol = SSL"),
        ({"sasl.password": "p"}, r"sasl\.password needs security\.protocol = SASL_SSL, but that is PLAINTEXT"),
        ({**LOGIN, "security.protocol": "ssl"}, r"sasl\.mechanism needs security\.protocol = SASL_SSL, but that is SSL"),
        ({"security.protocol": "sasl_ssl", "sasl.username": "u"}, r"sasl\.mechanism = nothing: expected PLAIN, SCRAM"),
        ({**LOGIN, "sasl.mechanism": "GSSAPI"}, r"sasl\.mechanism = GSSAPI: expected PLAIN, SCRAM"),
        ({**LOGIN, "sasl.mechanism": "OAUTHBEARER"}, r'sasl\.oauthbearer\.method: expected "oidc"'),
    ],
)
def test_the_error_names_the_setting(kafka, said):
    with pytest.raises(Misconfigured, match=said):
        read_secrets(kafka)


def test_an_empty_secret_is_refused(folder):
    with pytest.raises(Misconfigured, match=r"sasl\.password_file = .*empty"):
        read_secrets({**LOGIN, "sasl.password_file": private(folder / "password", "\n")})


def test_an_unknown_setting_is_one_line_without_the_librarys_terms():
    with pytest.raises(Misconfigured, match=r'^\[kafka\]: No such configuration property: "no.such"$'):
        KafkaClients({"bootstrap.servers": "a:1", "no.such": 1}).admin()
