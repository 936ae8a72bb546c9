"""`fogline parser`, as a person runs it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fogline_cloud.cli.main import main

LIMIT_S = 60
WRONG = """\
import faulthandler, os

def parse(event):
    if event.data == b"kill":
        faulthandler.disable()  # pytest's own would write a traceback of a crash that is meant
        os.abort()
    return []
"""
PROJECT = '[project.entry-points."fogline.parsers"]\nwrong = "wrong_parser:parse"\n'


@pytest.fixture
def wrong(folder: Path) -> Path:
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "wrong_parser.py").write_text(WRONG)
    return folder


def test_a_new_parser_passes_its_own_test_and_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["parser", "new", "my-sensor", "--into", str(folder)]) == 0
    made = folder / "my-sensor"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=made, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout

    capsys.readouterr()
    assert main(["parser", "test", "my-sensor", "--path", str(made), "--events", str(made / "events.jsonl")]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "line-1  plant/oven/climate: ok",
        "  temperature = 21.94 Cel",
        "  humidity = 40.0 %RH",
        "line-2  plant/oven/climate: ok",
        "  temperature = -0.5 Cel",
        "  not understood: humidity (the sensor does not respond)",
        "line-3  plant/oven/climate: skip (no-values)",
        "  the device has no values yet",
        "3 events: 2 ok, 1 skip",
    ]


def test_a_parser_that_kills_its_process_fails_the_test_only(wrong: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = wrong / "events.jsonl"
    events.write_text('{"body": "kill", "topic": "a"}\n{"body": "1"}\n')
    assert main(["parser", "test", "wrong", "--path", str(wrong), "--events", str(events), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["outcomes"] == {"dead": 1, "ok": 1}
    assert [(each["outcome"], each["reason"]) for each in found["events"]] == [("dead", "killed"), ("ok", None)]
    assert "SIGABRT" in found["events"][0]["detail"]


def test_a_parser_in_the_box_is_tested_by_its_name(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = folder / "events.jsonl"
    events.write_text('{"body": "21.5", "topic": "t", "content_type": "text/plain"}\n')
    assert main(["parser", "test", "raw-number", "--events", str(events), "--json"]) == 0
    (event,) = json.loads(capsys.readouterr().out)["events"]
    assert event["readings"] == [{"metric": "t", "value": 21.5, "text": None, "unit": None, "time_us": None}]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("new", "My_Sensor"), "'My_Sensor': a name is words of a-z and 0-9"),
        (("new", "json"), "a parser json is installed already"),
        (("new", "wrong", "--into", "."), "exists already"),
        (("test", "none", "--events", "events.jsonl"), "no parser none is installed (installed: "),
        (("test", "none", "--events", "events.jsonl", "--path", "."), "pyproject.toml: no parser none in"),
        (("test", "wrong", "--events", "events.jsonl", "--path", "broken"), "wrong = broken_parser:parse cannot be loaded"),
        (("test", "wrong", "--events", "missing", "--path", "."), "missing: No such file"),
    ],
)
def test_wrong_parser_or_sample_file_is_named(
    wrong: Path, arguments: tuple[str, ...], says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(wrong)
    (wrong / "wrong").mkdir()
    (wrong / "events.jsonl").write_text('{"body": "1"}\n')
    (wrong / "broken").mkdir()
    (wrong / "broken" / "pyproject.toml").write_text(PROJECT.replace("wrong_parser", "broken_parser"))
    assert main(["parser", *arguments]) == 2
    assert says in capsys.readouterr().err
