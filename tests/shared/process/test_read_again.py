"""Files that are read again while a process runs: only what nobody may still be writing counts."""

import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from fogline.errors import Misconfigured
from fogline.process.files import tls_files
from fogline.process.files.tls_files import QUIET_S, ReadAgain


class Clock:
    """The clocks of the process. The file system's stays the machine's."""

    def __init__(self) -> None:
        self.passed_s = 0.0

    def monotonic(self) -> float:
        return 1000 + self.passed_s

    def time_ns(self) -> int:
        return time.time_ns() + int(self.passed_s * 1e9)


@pytest.fixture
def clock(monkeypatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(tls_files, "time", SimpleNamespace(monotonic=made.monotonic, time_ns=made.time_ns))
    return made


def reading(path: Path, **more) -> ReadAgain[str]:
    def read() -> str:
        text = path.read_text()
        if "[" in text and "]" not in text:
            raise Misconfigured("cut off")
        return text

    return ReadAgain(read, [str(path)], **more)


@pytest.mark.fault("S9")
def test_a_file_counts_once_it_has_not_changed_for_a_while(folder, clock):
    path = folder / "file"
    path.write_text("whole")
    again = reading(path)
    for cut in ("", "w", "wh"):
        path.write_text(cut)
        assert again.get() == "whole"
        clock.passed_s += QUIET_S / 4
        assert again.get() == "whole"
    path.write_text("whole, too")
    assert again.get() == "whole"
    clock.passed_s += QUIET_S
    assert again.get() == "whole, too"


def test_a_process_that_looks_seldom_takes_a_file_that_was_changed_long_ago_at_once(folder, clock):
    path = folder / "file"
    path.write_text("1")
    again = reading(path)
    path.write_text("22")
    clock.passed_s += 3600
    assert again.get() == "22"


def test_a_file_whose_times_are_in_the_future_counts_after_two_looks(folder, clock):
    path = folder / "file"
    path.write_text("1")
    again = reading(path)
    clock.passed_s -= 86_400
    path.write_text("22")
    assert again.get() == "1"
    clock.passed_s += QUIET_S
    assert again.get() == "22"


def test_a_file_that_its_writer_reports_counts_at_once(folder, clock):
    path = folder / "file"
    path.write_text("1")
    again = reading(path)
    path.write_text("22")
    assert (again.get(), again.get(at_once=True)) == ("1", "22")


def test_a_file_that_cannot_be_read_or_is_doubted_changes_nothing(folder, clock):
    path = folder / "file"
    path.write_text("1")
    again = reading(path, doubt=lambda former, new: "shorter" if len(new) < len(former) else "")
    for text, expected in (("[x", "1"), ("22", "22"), ("3", "22"), ("444", "444")):
        path.write_text(text)
        clock.passed_s += 2 * QUIET_S
        assert (again.get(), again.get()) == (expected, expected)
    path.unlink()
    clock.passed_s += 2 * QUIET_S
    assert again.get() == "444"


def test_unforeseen_error_changes_nothing(folder, clock):
    path = folder / "file"
    path.write_text("1")
    results = iter(["1"])
    again = ReadAgain(lambda: next(results), [str(path)])  # then it raises `StopIteration`
    path.write_text("22")
    clock.passed_s += 2 * QUIET_S
    assert again.get() == "1"


def test_a_signed_file_that_is_written_all_the_time_counts_at_once(folder, clock):
    path = folder / "file"
    path.write_text("1")
    again = reading(path, signed=[str(path)])
    for text in ("2", "33", "[x", "444"):
        path.write_text(text)
        clock.passed_s += QUIET_S / 4
        assert again.get() == (text if text != "[x" else "33")


def test_a_file_beside_a_signed_one_counts_once_it_has_not_changed_for_a_while(folder, clock):
    signed, other = folder / "signed", folder / "other"
    for path in (signed, other):
        path.write_text("1")
    again = ReadAgain(lambda: signed.read_text() + other.read_text(), [str(signed), str(other)], signed=[str(signed)])
    signed.write_text("22")
    assert again.get() == "221"
    other.write_text("")
    signed.write_text("333")
    assert again.get() == "221"
    other.write_text("44")
    clock.passed_s += QUIET_S
    assert again.get() == "33344"
