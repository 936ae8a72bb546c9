"""The log in systemd's journal, over a real socket; elsewhere it is lines on stderr."""

import io
import logging
import os
import re
import socket
import struct
import subprocess
import sys
from types import SimpleNamespace

import pytest

from fogline.dead_letter import dead_letter
from fogline.errors import Poison
from fogline.process.console import journal as module
from fogline.process.console.journal import MAX_FIELD_BYTES, MAX_MESSAGE_BYTES, JournalHandler, log_handler, name_gateway

LIMIT_S = 60
PROGRAM = """
import argparse, logging, sys
from fogline.process.console.command_line import main
parser = argparse.ArgumentParser(prog="fogline-test")
parser.set_defaults(run=lambda _: logging.getLogger("fogline.x").warning("lamp %d", 1, extra={"device": "lamp-1"}) or 0)
sys.exit(main(parser, []))
"""


def fields_of(datagram):
    """Decode https://systemd.io/JOURNAL_NATIVE_PROTOCOL."""
    found, rest = {}, datagram
    while rest:
        line, _, rest = rest.partition(b"\n")
        name, equals, value = line.partition(b"=")
        if not equals:
            (size,) = struct.unpack("<Q", rest[:8])
            value, rest = rest[8 : 8 + size], rest[8 + size :]
            assert rest[:1] == b"\n"
            rest = rest[1:]
        assert name.decode() not in found, "a field twice"
        found[name.decode()] = value.decode()
    return found


@pytest.fixture
def journal(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "journal"))
        listening.settimeout(LIMIT_S)
        yield SimpleNamespace(path=str(tmp_path / "journal"), read=lambda: fields_of(listening.recv(1 << 20)), socket=listening)


@pytest.fixture
def otherwise():
    return logging.StreamHandler(io.StringIO())


@pytest.fixture
def log(journal, otherwise):
    handler = JournalHandler("fogline-edge", otherwise, journal.path)
    logger = logging.getLogger("fogline.test_journal")
    logger.propagate = False
    logger.setLevel(logging.DEBUG)
    logger.addHandler(handler)
    yield logger
    logger.removeHandler(handler)
    handler.close()


def test_a_record_has_fields(log, journal):
    log.warning("%s is full", "the disk", extra={"device": "lamp-1", "lane": "bulk", "reason": "disk"})
    found = journal.read()
    assert found.pop("CODE_LINE").isdigit()
    assert found == {
        "MESSAGE": "the disk is full",
        "PRIORITY": "4",
        "SYSLOG_IDENTIFIER": "fogline-edge",
        "LOGGER": "fogline.test_journal",
        "THREAD_NAME": "MainThread",
        "CODE_FILE": __file__,
        "CODE_FUNC": "test_a_record_has_fields",
        "FOGLINE_DEVICE": "lamp-1",
        "FOGLINE_LANE": "bulk",
        "FOGLINE_REASON": "disk",
    }


LEVELS = {"debug": "7", "info": "6", "warning": "4", "error": "3", "critical": "2"}


@pytest.mark.parametrize(("level", "priority"), LEVELS.items())
def test_levels_are_priorities(log, journal, level, priority):
    getattr(log, level)("x")
    assert journal.read()["PRIORITY"] == priority


def test_a_value_with_line_breaks_adds_no_field(log, journal):
    log.error("one\nPRIORITY=0\n", extra={"device": "lamp\nFOGLINE_TENANT=other", "reason": "\udcff"})
    found = journal.read()
    assert found["MESSAGE"] == "one\nPRIORITY=0\n"
    assert found["PRIORITY"] == "3"
    assert found["FOGLINE_DEVICE"] == "lamp\nFOGLINE_TENANT=other"
    assert found["FOGLINE_REASON"] == r"\udcff"
    assert "FOGLINE_TENANT" not in found


def test_an_exception_is_in_the_message(log, journal):
    try:
        int("broken")
    except ValueError:
        log.exception("it failed")
    message = journal.read()["MESSAGE"]
    assert message.startswith("it failed\nTraceback")
    assert message.endswith("ValueError: invalid literal for int() with base 10: 'broken'")


def test_long_field_is_cut_and_marked(log, journal):
    log.warning("é" * MAX_MESSAGE_BYTES, extra={"device": "d" * 2000})
    found = journal.read()
    assert found["MESSAGE"] == "é" * (MAX_MESSAGE_BYTES // 2) + f" [cut: {2 * MAX_MESSAGE_BYTES} bytes]"
    assert found["FOGLINE_DEVICE"] == "d" * MAX_FIELD_BYTES + " [cut: 2000 bytes]"


def test_the_process_gives_its_records_a_gateway_and_a_record_may_name_another(log, journal, monkeypatch):
    monkeypatch.setattr(logging.getLogger(), "handlers", log.handlers)
    name_gateway("acme", "gw-1")
    log.warning("x")
    found = journal.read()
    assert (found["FOGLINE_TENANT"], found["FOGLINE_GATEWAY"]) == ("acme", "gw-1")
    log.warning("x", extra={"gateway": "gw-2"})
    assert journal.read()["FOGLINE_GATEWAY"] == "gw-2"


def test_a_record_that_the_journal_does_not_take_is_a_line_on_stderr(log, journal, otherwise):
    journal.socket.settimeout(0)
    sent = 0
    while not otherwise.stream.getvalue():
        log.warning("record %d", sent)
        sent += 1
        assert sent < 100_000, "the journal's queue has no end"
    assert otherwise.stream.getvalue() == f"record {sent - 1}\n"
    journal.socket.close()
    log.warning("it is gone")
    assert otherwise.stream.getvalue().endswith("it is gone\n")


def test_a_dead_letter_names_device_and_reason(log, journal, monkeypatch):
    dead_letters = logging.getLogger("fogline.dead_letters")
    monkeypatch.setattr(dead_letters, "handlers", log.handlers)
    for n in range(3):
        error = Poison("bad-topic", f"topic {n} is none")
        dead_letter(error, gateway="gw-1", adapter="test", sender="lamp-1", channel="x", data=b"", retransmission=None)
    found = journal.read()
    assert (found["FOGLINE_DEVICE"], found["FOGLINE_REASON"]) == ("lamp-1", "bad-topic")
    assert found["MESSAGE"] == "test: a message becomes a dead letter (bad-topic): of 'lamp-1': topic 0 is none"
    journal.socket.settimeout(0)
    with pytest.raises(BlockingIOError):
        journal.read()


def test_only_a_stderr_that_systemd_names_is_the_journal(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(sys, "stderr", os.fdopen(os.dup(2), "w"))
    found = os.fstat(2)
    for value, kind in (
        (f"{found.st_dev}:{found.st_ino}", JournalHandler),
        (f"{found.st_dev}:{found.st_ino + 1}", logging.StreamHandler),
        ("", logging.StreamHandler),
    ):
        monkeypatch.setenv("JOURNAL_STREAM", value)
        assert type(log_handler("fogline-edge")) is kind
    monkeypatch.setattr(sys, "stderr", None)
    assert type(log_handler("fogline-edge")) is logging.StreamHandler


def run(tmp_path, *, under_systemd):
    environment = {name: value for name, value in os.environ.items() if name != "JOURNAL_STREAM"}
    with (tmp_path / "stderr").open("wb") as stderr:
        if under_systemd:
            found = os.fstat(stderr.fileno())
            environment["JOURNAL_STREAM"] = f"{found.st_dev}:{found.st_ino}"
        text = "from fogline.process.console import journal\n"
        program = f"{text}journal.log_handler.__defaults__ = ({str(tmp_path / 'journal')!r},)"
        command = [sys.executable, "-c", program + PROGRAM]
        subprocess.run(command, stdin=subprocess.DEVNULL, stderr=stderr, env=environment, timeout=LIMIT_S, check=True)
    return (tmp_path / "stderr").read_text()


def test_a_command_logs_to_the_journal_only_under_systemd(tmp_path, journal):
    line = run(tmp_path, under_systemd=False)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} WARNING fogline\.x: lamp 1\n", line), "as without systemd"
    assert run(tmp_path, under_systemd=True) == ""
    found = journal.read()
    assert (found["SYSLOG_IDENTIFIER"], found["FOGLINE_DEVICE"], found["MESSAGE"]) == ("fogline-test", "lamp-1", "lamp 1")
    assert module.JOURNAL == "/run/systemd/journal/socket"
