"""The checks before Spark starts, and the command `fogline flow`."""

import argparse
from pathlib import Path

import pytest

from fogline.errors import Misconfigured
from fogline.process.console import command_line
from fogline_cloud.cli.tables import flow as flow_command
from fogline_cloud.flows.job import preflight
from fogline_cloud.settings import CloudSettings, FlowSettings, ParserRuleSettings
from fogline_lab.kafka_broker import KafkaBroker


def given(bootstrap: str, tenant: str, folder: Path, **flow: object) -> CloudSettings:
    places = {"tables": str(folder / "tables"), "checkpoint": str(folder / "checkpoint"), **flow}
    return CloudSettings(tenant=tenant, kafka={"bootstrap.servers": bootstrap}, flow=FlowSettings(**places))  # type: ignore[arg-type]


def test_missing_topics_are_named_with_the_command_that_creates_them(kafka: KafkaBroker, tenant: str, folder: Path) -> None:
    with pytest.raises(Misconfigured, match=rf"hono\.telemetry\.{tenant}, .*fogline topics create"):
        preflight(given(kafka.bootstrap, tenant, folder))


def test_a_folder_that_cannot_be_created_is_named(tenant: str, folder: Path) -> None:
    (folder / "file").touch()
    with pytest.raises(Misconfigured, match=r"\[flow\] tables"):
        preflight(given("127.0.0.1:1", tenant, folder, tables=str(folder / "file" / "tables")))


def test_a_missing_parser_is_named(tenant: str, folder: Path) -> None:
    with pytest.raises(Misconfigured, match=r"\[flow.parsers\]"):
        preflight(given("127.0.0.1:1", tenant, folder, parsers={"text/csv": "none"}))


def test_a_rule_for_a_missing_parser_is_named(tenant: str, folder: Path) -> None:
    rule = ParserRuleSettings(parser="none", subject="tele/*")
    with pytest.raises(Misconfigured, match=r'\[\[flow.parser_rules\]\] entry 1 \(parser = "none"\): no such parser'):
        preflight(given("127.0.0.1:1", tenant, folder, parser_rules=[rule]))


def test_a_folder_with_a_percent_sign_is_refused(tenant: str, folder: Path) -> None:
    with pytest.raises(Misconfigured, match=r"\[flow\] tables = .*%"):
        preflight(given("127.0.0.1:1", tenant, folder, tables=str(folder / "a%20b")))


def test_a_kafka_setting_that_spark_cannot_follow_is_refused_before_spark_starts(tenant: str, folder: Path) -> None:
    settings = given("127.0.0.1:1", tenant, folder)
    settings.kafka.update({"security.protocol": "SSL", "ssl.cipher.suites": "ECDHE-RSA-AES128-GCM-SHA256"})
    with pytest.raises(Misconfigured, match=r"\[kafka\] ssl\.cipher\.suites"):
        preflight(settings)


@pytest.fixture
def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="fogline")
    flow_command.register(made.add_subparsers())
    return made


def test_the_help_has_an_example(parser: argparse.ArgumentParser, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser.parse_args(["flow", "run", "--help"])
    assert "fogline flow run --config cloud.toml --once" in capsys.readouterr().out


def test_a_missing_settings_file_is_status_2(
    parser: argparse.ArgumentParser, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.main(parser, ["flow", "run", "--config", str(folder / "cloud.toml")]) == 2
    assert capsys.readouterr().err.startswith("fogline: ")
