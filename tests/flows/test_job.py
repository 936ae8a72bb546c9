"""What is checked before Spark starts, and the command in front of it."""

import argparse
from pathlib import Path

import pytest

from fogline import commandline
from fogline.errors import Misconfigured
from fogline.testing.kafka_broker import KafkaBroker
from fogline_cloud.cli import flow as flow_command
from fogline_cloud.flows.job import preflight
from fogline_cloud.settings import FlowSettings, Settings


def given(bootstrap: str, tenant: str, folder: Path, **flow: object) -> Settings:
    places = {"tables": str(folder / "tables"), "checkpoint": str(folder / "checkpoint"), **flow}
    return Settings(tenant=tenant, kafka={"bootstrap.servers": bootstrap}, flow=FlowSettings(**places))  # type: ignore[arg-type]


def test_missing_topics_are_named_with_the_command_that_makes_them(kafka: KafkaBroker, tenant: str, folder: Path) -> None:
    with pytest.raises(Misconfigured, match=rf"hono\.telemetry\.{tenant}, .*fogline topics create"):
        preflight(given(kafka.bootstrap, tenant, folder))


def test_a_folder_that_cannot_be_made_is_named(tenant: str, folder: Path) -> None:
    (folder / "file").touch()
    with pytest.raises(Misconfigured, match=r"\[flow\] tables"):
        preflight(given("127.0.0.1:1", tenant, folder, tables=str(folder / "file" / "tables")))


def test_a_parser_that_is_not_there_is_named(tenant: str, folder: Path) -> None:
    with pytest.raises(Misconfigured, match=r"\[flow.parsers\]"):
        preflight(given("127.0.0.1:1", tenant, folder, parsers={"text/csv": "none"}))


def test_a_folder_that_delta_rs_cannot_name_is_refused(tenant: str, folder: Path) -> None:
    with pytest.raises(Misconfigured, match=r"\[flow\] tables = .*%"):
        preflight(given("127.0.0.1:1", tenant, folder, tables=str(folder / "a%20b")))


@pytest.fixture
def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="fogline")
    flow_command.register(made.add_subparsers())
    return made


def test_the_help_has_an_example(parser: argparse.ArgumentParser, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser.parse_args(["flow", "run", "--help"])
    assert "fogline flow run --config cloud.toml --once" in capsys.readouterr().out


def test_settings_that_are_not_there_are_status_2(
    parser: argparse.ArgumentParser, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert commandline.main(parser, ["flow", "run", "--config", str(folder / "cloud.toml")]) == 2
    assert capsys.readouterr().err.startswith("fogline: ")
