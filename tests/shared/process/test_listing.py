"""Lists have a header and an empty list a sentence, times are RFC 3339 in UTC, and `--watch` prints until Ctrl-C."""

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
from datetime import datetime, timedelta, timezone

import pytest

from fogline.process.console.listing import show_facts, show_rows, utc

LIMIT_S = 60


def test_a_list_has_a_header_and_columns_as_wide_as_their_widest_text(capsys):
    show_rows(("name", "events", "status"), [("lamp-1", 1200, None), ("a", 7, 200)], "nothing", more=3)
    out, err = capsys.readouterr()
    assert out.splitlines() == ["NAME    EVENTS  STATUS", "lamp-1   1,200       -", "a            7     200"]
    assert err == "3 more: see --limit\n"


def test_an_empty_list_is_a_sentence_on_stderr(capsys):
    show_rows(("name",), [], "no event waits")
    assert capsys.readouterr() == ("", "no event waits\n")


def test_text_of_a_peer_cannot_forge_a_row(capsys):
    show_rows(("name", "why"), [("lamp-1", "x\nlamp-2  ok\x1b[2J")], "")
    assert capsys.readouterr().out.splitlines()[1:] == [r"lamp-1  x\nlamp-2  ok\x1b[2J"]


@pytest.mark.parametrize(
    ("moment", "shown"),
    [
        (1795780800.9, "2026-11-27T12:00:00Z"),
        (datetime(2026, 11, 27, 13, 20, tzinfo=timezone(timedelta(hours=1))), "2026-11-27T12:20:00Z"),
        (None, "-"),
    ],
    ids=str,
)
def test_a_time_is_rfc_3339_in_utc(moment, shown):
    assert utc(moment) == shown


def test_a_fact_whose_name_ends_with_ms_is_a_time(capsys):
    show_facts({"id": "5f0c", "accepted_ms": 1795780800000, "status": None})
    assert capsys.readouterr().out.splitlines() == [
        "id           5f0c",
        "accepted     2026-11-27T12:00:00Z",
        "status       null",
    ]


@pytest.fixture
def authority(folder):
    """Settings, and an authority without a certificate."""
    (folder / "cloud.toml").write_text('tenant = "acme"\n', "utf-8")
    fogline = [sys.executable, "-m", "fogline_cloud.cli.main"]
    subprocess.run([*fogline, "ca", "init"], cwd=folder, check=True, capture_output=True, timeout=LIMIT_S)
    return folder, [*fogline, "ca", "list", "--watch"]


def started(command, folder, stdout=subprocess.PIPE) -> subprocess.Popen[str]:
    return subprocess.Popen(command, cwd=folder, stdout=stdout, stderr=subprocess.PIPE, text=True)


def test_watch_prints_a_document_a_line_until_ctrl_c(authority):
    folder, command = authority
    with subprocess.Popen(
        [*command, "--json"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert [json.loads(process.stdout.readline()) for _ in range(2)] == [[], []]
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, err) == (130, "fogline: interrupted\n")


def test_watch_continues_after_an_outage_but_does_not_start_in_one(authority):
    folder, command = authority
    with started(command, folder) as process:
        assert process.stderr.readline() == "there is no such certificate\n"
        shutil.rmtree(folder / "ca")
        while "ca" not in (line := process.stderr.readline()) or "no such certificate" in line:
            assert process.poll() is None
        assert "fogline ca init" in line
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert (done.returncode, done.stdout) == (2, "")


def test_watch_prints_in_place_on_a_terminal(authority):
    folder, command = authority
    ours, theirs = pty.openpty()
    with started(command, folder, theirs) as process:
        assert process.stderr.readline() == "there is no such certificate\n"
        assert os.read(ours, 100) == b"\x1b[H\x1b[J"
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=LIMIT_S)
    os.close(ours)
    os.close(theirs)
