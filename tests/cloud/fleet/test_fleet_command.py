"""`fogline fleet`, with the registry left out: tests/e2e/test_fleet_command.py has one."""

import json
import sys
from datetime import UTC, datetime, timedelta

import pytest

from fogline_cloud.cli.main import main

NOW = datetime.now(UTC)


@pytest.fixture
def ask(counted, tmp_path, capsys):
    """Run `fogline fleet` over three devices: one was heard an hour ago, one three days ago, one 40 days ago."""
    config = tmp_path / "cloud.toml"
    config.write_text(f'tenant = "t"\n[flow]\ntables = "{tmp_path}"\n')
    for age, device in ((timedelta(hours=1), "lamp-1"), (timedelta(days=3), "lamp-2"), (timedelta(days=40), "lamp-3")):
        heard = NOW - age
        more = {"device": device, "size_bytes": 1000, "parser": "json", **dict.fromkeys(("ingested", "recordedtime"), heard)}
        counted.events.append(1, row=lambda _, more=more: more)

    def asked(*words):
        status = main(["fleet", *words, "--without-registry", "--config", str(config)])
        found = capsys.readouterr()
        return status, found.out, found.err

    return asked


def test_coverage_is_a_table_or_json(ask):
    status, out, _ = ask("coverage")
    lines = out.splitlines()
    assert (status, lines[0].split()) == (0, ["DAY", "REGISTERED", "HEARD", "SHARE", "EVENTS"])
    assert lines[-1].split() == ["all", "0", "2", "-", "2"]
    _, out, _ = ask("coverage", "--since", (NOW - timedelta(days=60)).date().isoformat(), "--json")
    assert json.loads(out)[-1] == {"day": "all", "registered": 0, "heard": 3, "share": None, "events": 3}


def test_silent_names_each_device_with_its_last_event(ask):
    _, out, _ = ask("silent", "--json")
    assert [each["device"] for each in json.loads(out)] == ["lamp-3", "lamp-2"]
    _, out, _ = ask("silent", "--over", "10d")
    (row,) = out.splitlines()[1:]
    assert row.split()[:1] == ["lamp-3"]
    assert "40d" in row
    _, out, err = ask("silent", "--over", "50d")
    assert (out, err) == ("", "no device is silent for too long\n")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("late", "--by", "day"), {"events": 1, "over": 0}),
        (("sizes", "--by", "device", "--since", "2d"), {"device": "lamp-1", "bytes": 1000, "p99": 1000}),
        (("health",), {"parser": "json", "events": 2, "ok": 2, "share": 1.0}),
    ],
    ids=lambda words: words[0] if isinstance(words, tuple) else "",
)
def test_each_question_has_an_answer(ask, words, expected):
    status, out, _ = ask(*words, "--json")
    assert status == 0
    assert expected.items() <= json.loads(out)[0].items()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("late", "--over", "7m"), "--over '7m': delays are counted in steps: give one of 1s, 2s, 5s"),
        (("silent", "--over", "soon"), "--over 'soon': expected a time like 30s, 5m or 2h"),
        (("coverage", "--since", "soon"), "--since 'soon': expected a time like 7d"),
    ],
)
def test_a_time_that_cannot_be_asked_for_is_one_sentence(ask, words, why):
    status, _, err = ask(*words)
    assert (status, why in err, err.count("\n")) == (2, True, 1)


def test_a_field_that_there_is_not_is_named(ask, capsys):
    with pytest.raises(SystemExit):
        ask("coverage", "--by", "colour")
    assert "there is no field 'colour': expected day, type, firmware, gateway" in capsys.readouterr().err


def test_before_the_first_start_of_the_flow_there_is_a_sentence(tmp_path, capsys):
    config = tmp_path / "cloud.toml"
    config.write_text('tenant = "t"\n')
    assert main(["fleet", "health", "--without-registry", "--config", str(config)]) == 2
    assert "events: there is no table: start the flow first" in capsys.readouterr().err


def test_the_command_needs_neither_kafka_nor_spark(counted, tmp_path):
    import subprocess

    counted.events.append(1)
    (tmp_path / "cloud.toml").write_text(f'tenant = "t"\n[flow]\ntables = "{tmp_path}"\n')
    program = (
        "import sys\nsys.modules.update(dict.fromkeys(('confluent_kafka', 'pyspark', 'duckdb')))\n"
        "from fogline_cloud.cli.main import main\nsys.exit(main(sys.argv[1:]))"
    )
    words = ["fleet", "health", "--without-registry", "--since", "2026-01-01", "--config", str(tmp_path / "cloud.toml")]
    found = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, timeout=60, check=False)
    assert (found.returncode, "EVENTS" in found.stdout) == (0, True), found.stderr


def test_a_limit_that_the_registry_cannot_tell_is_refused(tmp_path, capsys):
    """The registry notes a device every ten minutes, so each would seem to be silent for that long."""
    config = tmp_path / "cloud.toml"
    config.write_text('tenant = "t"\n[[fleet.silent]]\nafter_s = 300\n')
    assert main(["fleet", "silent", "--without-registry", "--config", str(config)]) == 2
    assert "[[fleet.silent]] after_s = 300: expected more than devices.seen_every_s, which is 600" in capsys.readouterr().err
