"""Text of devices and peers on an operator's terminal."""

import os
import pty
import sys
from logging import WARNING, LogRecord

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fogline.errors import Misconfigured
from fogline.process import checkup
from fogline.process.checkup import Finding, Grade
from fogline.process.console import command_line, terminal
from fogline.process.console.journal import log_handler

EVIL = "on\x1b]0;owned\x07\x1b[2J\nlamp-2: SUCCEEDED 200\r\x9b31m\u202e\ud800"
ESCAPED = r"on\x1b]0;owned\x07\x1b[2J\nlamp-2: SUCCEEDED 200\r\x9b31m\u202e\ud800"


def test_control_characters_are_removed_and_printable_ones_stay():
    assert terminal.escaped(EVIL) == ESCAPED
    assert terminal.escaped("23,5 \u00b0C \u6e7f\u5ea6 \U0001f600") == "23,5 \u00b0C \u6e7f\u5ea6 \U0001f600"


@given(st.text())
def test_escaped_text_is_one_line_that_prints(text):
    assert terminal.escaped(text).isprintable()


@pytest.mark.parametrize("write", [terminal.show, terminal.tell])
def test_a_line_stays_one_line(write, capfd):
    write(EVIL)
    out, err = capfd.readouterr()
    assert out + err == ESCAPED + "\n"


def test_errors_and_findings_of_a_checkup_are_escaped(capfd):
    finding = Finding(Grade.WARN, "bridge", EVIL, EVIL)
    checkup.show([finding], as_json=False)

    def fail(_):
        raise Misconfigured(EVIL)

    parser = command_line.argparse.ArgumentParser("fogline")
    parser.set_defaults(run=fail)
    assert command_line.main(parser, []) == 2
    out, err = capfd.readouterr()
    assert out == f"WARN  bridge        {ESCAPED}. {ESCAPED}\n"
    assert err == f"fogline: {ESCAPED}\n"


def test_a_body_is_escaped_for_a_person_and_as_it_is_for_a_program(capfd, monkeypatch):
    body = b"on\x1b[2J\nlamp-2"
    terminal.show_body(body)
    assert capfd.readouterr().out == "on\x1b[2J\nlamp-2\n"
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as screen, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", screen)
        terminal.show_body(body)
    assert os.read(ours, 1000) == rb"on\x1b[2J\nlamp-2" + b"\r\n"
    os.close(ours)


def test_progress_shows_on_a_terminal_only(capfd):
    terminal.show_progress(EVIL)
    assert capfd.readouterr().err == ""


def fail() -> None:
    raise ValueError(EVIL)


def test_a_record_of_the_log_is_one_line_and_a_traceback_keeps_its_lines():
    handler = log_handler("fogline")
    record = LogRecord("fogline", WARNING, "", 1, "refused: %s", (EVIL,), None)
    assert handler.format(record).endswith(f"refused: {ESCAPED}")
    try:
        fail()
    except ValueError:
        failed = LogRecord("fogline", WARNING, "", 1, "failed", (), sys.exc_info())
    lines = handler.format(failed).split("\n")
    assert lines[0].endswith("failed")
    assert lines[1] == "Traceback (most recent call last):"
    assert all(line.isprintable() for line in lines)
