"""A Kafka broker with TLS, users and ACLs: the command line against it."""

import json
from pathlib import Path

import pytest

from fogline.errors import Misconfigured
from fogline_cloud.authority.ca_folder import ROOT, CaFolder
from fogline_cloud.authority.certificates import now_utc
from fogline_cloud.cli.main import main
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.kafka.connection_settings import with_content
from fogline_cloud.settings import load
from fogline_lab.secure_kafka import ADMIN

ACLS = ("--acls", "bridge=User:bridge", "flow=User:flow", "operator=User:operator")


@pytest.fixture
def settings(secured_kafka, folder, tenant):
    """Settings files of the broker's users for one tenant. `kafka` replaces or, with None, deletes settings."""

    def write(user, kafka=None, way=secured_kafka.password):
        given = {**way(user), **(kafka or {})}
        return secured_kafka.settings_file(
            folder, user, tenant, {key: value for key, value in given.items() if value is not None}
        )

    return write


def refused(capfd, path, *arguments):
    """Run a command that must fail with one line. Return the line."""
    capfd.readouterr()
    assert main([*arguments, "--config", str(path)]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    return line


def test_a_wrong_password_is_one_line_that_names_the_setting(settings, capfd):
    path = settings("operator")
    (path.parent / "kafka.password").write_text("canary")
    line = refused(capfd, path, "topics", "check")
    assert "Authentication failed" in line
    assert "sasl.username" in line
    assert "sasl.password" in line
    assert "canary" not in line


def test_a_wrong_secret_of_a_client_that_gets_tokens_is_one_line_that_names_the_setting(settings, secured_kafka, capfd):
    path = settings("operator", way=secured_kafka.token)
    (path.parent / "kafka.password").write_text("canary")
    line = refused(capfd, path, "topics", "check")
    assert "sasl.oauthbearer.client.secret" in line
    assert "canary" not in line


def test_another_authority_is_one_line_that_names_the_setting(settings, folder, capfd):
    CaFolder.make(folder / "other", "other", now_utc(), 1)
    path = settings("operator", {"ssl.ca.location": str(folder / "other" / ROOT)})
    assert "ssl.ca.location" in refused(capfd, path, "topics", "check")


def test_the_error_for_plain_text_names_the_setting(secured_kafka):
    with pytest.raises(Misconfigured, match=r"security\.protocol"):
        KafkaClients({"bootstrap.servers": secured_kafka.broker.bootstrap}).topics(0.5)


def test_each_way_to_log_in_works(settings, secured_kafka):
    for way in (secured_kafka.password, secured_kafka.token):
        assert KafkaClients(load(settings(ADMIN, way=way)).kafka).topics() is not None


def test_each_way_to_log_in_works_on_a_machine_without_the_files(settings, secured_kafka):
    """Executors of a cluster got the names of the driver's files with their tasks."""
    for way in (secured_kafka.password, secured_kafka.token):
        kafka = with_content(load(settings(ADMIN, way=way)).kafka)
        assert not [key for key, value in kafka.items() if "\n" not in str(value) and Path(str(value)).is_file()]
        assert KafkaClients(kafka).topics() is not None
    certified = load(settings("flow", way=secured_kafka.client_certificate))
    assert KafkaClients(certified.kafka).topics() is not None


def test_acls_are_made_and_checked(settings, capsys):
    admin = str(settings(ADMIN))
    assert main(["topics", "create", *ACLS, "--config", admin, "--json"]) == 0
    made = json.loads(capsys.readouterr().out)["acls"]
    assert main(["topics", "create", *ACLS, "--config", admin]) == 0
    assert f"Kafka has the {len(made)} ACLs" in capsys.readouterr().out
    assert main(["topics", "check", *ACLS, "--config", admin, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"ok": True, "problems": []}


def test_missing_and_foreign_acls_are_problems(settings, tenant, capsys):
    admin = str(settings(ADMIN))
    assert main(["topics", "create", *ACLS, "--config", admin]) == 0
    others = ("--acls", "bridge=User:bridge", "flow=User:stranger")
    assert main(["topics", "check", *others, "--config", admin, "--json"]) == 1
    problems = json.loads(capsys.readouterr().out.splitlines()[-1])["problems"]
    assert f"missing: User:stranger may write topic fogline.canonical.{tenant}" in problems
    assert main(["topics", "create", "--acls", "bridge=User:stranger", "--config", admin]) == 0
    assert main(["topics", "check", *ACLS, "--config", admin]) == 1
    said = capsys.readouterr().err
    assert f"foreign: User:stranger may write topic hono.telemetry.{tenant}; only the bridge (User:bridge) should" in said
    assert f"foreign: User:stranger may write transactional_id fogline-{tenant}-0" in said


def test_only_an_administrator_makes_acls(settings, capfd):
    assert "super.users" in refused(capfd, settings("stranger"), "topics", "create", *ACLS)


def test_acls_need_a_broker_with_an_authorizer(kafka, folder, tenant, capfd):
    path = folder / "cloud.toml"
    path.write_text(f'tenant = "{tenant}"\n[kafka]\n"bootstrap.servers" = "{kafka.bootstrap}"\n')
    assert "authorizer.class.name" in refused(capfd, path, "topics", "create", *ACLS)
    assert not [name for name in KafkaClients(load(path).kafka).topics() if tenant in name]
