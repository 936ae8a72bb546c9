"""`fogline sink`: run, status and export, as a person and as a program use them."""

import json
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from fogline_cloud.cli.main import main
from fogline_cloud.flows.tables.files import TableFolder
from fogline_lab.flow_table import DAY, FlowTable
from fogline_lab.supervisor import ChildProcess, find_script

LIMIT_S = 60.0
TUESDAY = DAY + timedelta(days=1)


@pytest.fixture
def table(folder):
    return FlowTable("readings", TableFolder(str(folder / "tables" / "readings")))


@pytest.fixture
def config(folder):
    path = folder / "cloud.toml"
    path.write_text('tenant = "t"\n[flow]\ntables = "tables"\n[sinks.lab]\nurl = "sqlite:///lab.db"\n')
    return path


def fogline(config, *words):
    command = [find_script("fogline"), *words, "--config", str(config)]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)


def rows(folder):
    import sqlite3

    connection = sqlite3.connect(folder / "lab.db")
    try:
        return connection.execute("SELECT count(*) FROM readings").fetchone()[0]
    finally:
        connection.close()


def test_once_fills_the_database_and_ends(table, config, folder):
    table.append(4)
    done = fogline(config, "sink", "run", "lab", "--once")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"ready": "sink", "sink": "lab", "source": "readings", "table": "readings"}
    assert f"copied 1 of 1 files of version {table.version}: 4 rows" in done.stderr
    assert rows(folder) == 4


def test_a_running_sink_follows_the_table_and_ends_at_sigterm(table, config, folder):
    table.append(4)
    running = ChildProcess(
        "sink", [find_script("fogline"), "sink", "run", "lab", "--json", "--config", config], folder / "sink.log"
    )
    running.start()
    try:
        copied, ready = running.next_line(LIMIT_S), running.next_line(LIMIT_S)
        assert (copied["inserted"], copied["files"], copied["all_files"]) == (4, 1, 1)
        assert ready["ready"] == "sink"
        table.append(2)
        table.delete("sequence = 0")
        appended, deleted = running.next_line(LIMIT_S), running.next_line(LIMIT_S)
        assert (appended["inserted"], deleted["deleted"], deleted["behind"]) == (2, 1, 0)
        running.send(signal.SIGTERM)
        assert running.wait(LIMIT_S) == 0
    finally:
        running.kill()
        running.join()
    assert rows(folder) == 5


def test_once_that_is_interrupted_before_its_end_says_so(table, config, folder):
    table.append(1)
    config.write_text(config.read_text().replace("sqlite:///lab.db", "postgresql://fog@127.0.0.1:1/none"))
    command = [find_script("fogline"), "sink", "run", "lab", "--once", "--config", str(config)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        for line in running.stderr:
            if "Retrying" in line:
                break
        running.send_signal(signal.SIGINT)
        assert running.wait(LIMIT_S) == 130


def test_status_says_how_far_each_sink_is(table, config, capsys):
    table.append(1)
    assert main(["sink", "status", "--config", str(config), "--json"]) == 0
    (lag,) = json.loads(capsys.readouterr().out)
    assert (lag["name"], lag["state"], lag["version"]) == ("lab", "not started", None)

    assert fogline(config, "sink", "run", "lab", "--once").returncode == 0
    table.append(1)
    table.append(1)
    assert main(["sink", "status", "--config", str(config), "--json"]) == 0
    (lag,) = json.loads(capsys.readouterr().out)
    assert (lag["state"], lag["version"], lag["behind"]) == ("follows", table.version - 2, 2)
    assert 0 <= lag["behind_s"] < LIMIT_S

    config.write_text(config.read_text().replace("sqlite:///lab.db", "postgresql://fog@127.0.0.1:1/none"))
    assert main(["sink", "status", "--config", str(config)]) == 1
    assert "Connection refused" in capsys.readouterr().out


def test_a_sink_that_is_not_in_the_settings_is_one_sentence(table, config):
    done = fogline(config, "sink", "run", "nope")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "there is no sink nope in the settings: [sinks.nope] needs a url (sinks there: lab)" in done.stderr


def test_a_table_that_is_not_there_is_one_sentence(config, folder):
    done = fogline(config, "sink", "run", "lab", "--once")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert f"[sinks.lab] {folder}/tables/readings: there is no table: start the flow first" in done.stderr


def without_drivers(code, *words):
    hidden = "import sys; sys.modules['adbc_driver_manager'] = None; from fogline_cloud.cli.main import build_parser, main"
    command = [sys.executable, "-c", f"{hidden}; {code}", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)


def test_without_the_drivers_the_command_says_what_to_install(table, config):
    done = without_drivers("sys.exit(main())", "sink", "run", "lab", "--config", str(config))
    assert done.returncode == 2
    assert done.stderr == "fogline: this command needs drivers of databases: pip install 'fogline-cloud[sink]'\n"


def test_without_the_drivers_all_commands_are_known_and_an_export_works(table, config, folder):
    table.append(1)
    assert without_drivers("build_parser()").returncode == 0
    export = ("sink", "export", "--parquet", str(folder / "copy"), "--config", str(config))
    assert without_drivers("sys.exit(main())", *export).returncode == 0


def exported(config, folder, *words):
    done = fogline(config, "sink", "export", "--parquet", str(folder / "copy"), "--json", *words)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_an_export_has_the_rows_and_writes_only_what_changed(table, config, folder):
    table.append(3)
    table.append(2, TUESDAY)
    assert [(each["day"], each["rows"], each["is_new"]) for each in exported(config, folder)] == [
        (DAY.isoformat(), 3, True),
        (TUESDAY.isoformat(), 2, True),
    ]
    table.delete("sequence = 3")
    assert [each["is_new"] for each in exported(config, folder)] == [False, True]
    files = f"{folder}/copy/readings/*/*.parquet"
    found = duckdb.sql(f"SELECT sequence, value, CAST(day AS VARCHAR) FROM read_parquet('{files}') ORDER BY ALL").fetchall()
    assert found == [(0, 0.0, "2026-01-05"), (1, 0.5, "2026-01-05"), (2, 1.0, "2026-01-05"), (4, 2.0, "2026-01-06")]


def test_an_export_of_some_days(table, config, folder):
    table.append(1)
    table.append(1, TUESDAY)
    assert [each["day"] for each in exported(config, folder, "--from", TUESDAY.isoformat())] == [TUESDAY.isoformat()]
    assert [each["day"] for each in exported(config, folder, "--to", TUESDAY.isoformat())] == [DAY.isoformat()]


def test_an_export_keeps_nested_columns(folder, config):
    events = FlowTable("events", TableFolder(str(folder / "tables" / "events")))
    readings = [{"ordinal": 0, "metric": "t", "value": 1.0, "text": None, "unit": None, "time": None}]
    events.append(1, row=lambda _: {"readings": readings})
    ((file,),) = [[each["path"] for each in exported(config, folder, "--table", "events")]]
    assert pq.ParquetFile(file).read().column("readings").to_pylist() == [readings]


def test_a_file_that_was_cut_off_is_written_again(table, config, folder):
    table.append(3)
    (first,) = exported(config, folder)
    path = Path(first["path"])
    path.write_bytes(path.read_bytes()[:100])
    (again,) = exported(config, folder)
    assert again["is_new"]
    assert pq.read_metadata(path).num_rows == 3


def test_a_password_file_that_everybody_may_read_is_refused(table, folder):
    table.append(1)
    config = folder / "cloud.toml"
    text = (
        'tenant = "t"\n[flow]\ntables = "tables"\n[sinks.lab]\nurl = "postgresql://fog@127.0.0.1:1/lab"\npassword_file = "p"\n'
    )
    config.write_text(text)
    (folder / "p").write_text("secret\n")
    (folder / "p").chmod(0o644)
    done = fogline(config, "sink", "run", "lab", "--once")
    assert done.returncode == 2
    assert f"everybody may read {folder / 'p'}. Run: chmod 600" in done.stderr
