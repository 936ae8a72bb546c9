"""The check of the file at the start: its time limit depends on how the last run ended."""

import asyncio
from pathlib import Path

import pytest

from edge.outbox.damaged import PAGE, Sound, copy, end_badly, healthy_but, judge, make_sound, readable, start
from fogline_edge.machine.boot import boot_id
from fogline_edge.outbox.file.data_folder import RunEnd
from fogline_edge.outbox.salvage import integrity

ANOTHER_BOOT = "00000000-0000-4000-8000-000000000000"
MIDDLE = 60
"""A sequence that is neither at the beginning nor at the end of its stream, where every start looks."""


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Sound:
    return asyncio.run(make_sound(tmp_path_factory.mktemp("sound")))


@pytest.fixture
def no_time_after_a_kill(monkeypatch):
    """The file of the test is larger than the check after a kill has time for."""
    monkeypatch.setattr(integrity, "KILLED_CHECK_S", 0.0)
    monkeypatch.setattr(integrity, "_STEPS", 1)


def damaged(sound: Sound, folder: Path) -> tuple[Path, int]:
    """Return a copy that was not closed, with a page of zeros, and the page's number."""
    page = next(sound.pages[found] for (_, sequence), found in sound.ids.items() if sequence == MIDDLE and found in sound.pages)
    at = copy(sound.clean, folder, "a")
    end_badly(at)
    with (at / "data" / "outbox.db").open("r+b") as file:
        file.seek((page - 1) * PAGE)
        file.write(bytes(PAGE))
    return at, page


@pytest.mark.parametrize(
    ("last", "boot", "finds"),
    [
        (RunEnd.OPEN, boot_id(), False),
        (RunEnd.OPEN, ANOTHER_BOOT, True),
        (RunEnd.OPEN, "", True),
        (RunEnd.FAILED, boot_id(), True),
    ],
    ids=["kill", "power cut", "unknown boot", "failed disk"],
)
def test_the_check_is_short_only_after_a_kill_in_the_same_boot(sound, folder, no_time_after_a_kill, last, boot, finds):
    at, _ = damaged(sound, folder)
    why = integrity.examine(at / "data" / "outbox.db", last=last, owner=None, boot_id=boot)
    assert (why is not None) == finds


@pytest.mark.fault("C8")
async def test_damage_that_the_short_check_does_not_reach_is_salvaged_when_it_is_read(sound, folder, no_time_after_a_kill):
    at, page = damaged(sound, folder)
    judge(sound, readable(at / "data"), await start(at), healthy_but(sound, {page}), f"page {page}")
    assert list((at / "data").glob("*damaged*")), "the damaged file was not set aside"


def test_a_small_file_is_checked_whole_after_a_kill(sound, folder):
    at, _ = damaged(sound, folder)
    assert integrity.examine(at / "data" / "outbox.db", last=RunEnd.OPEN, owner=None, boot_id=boot_id()) is not None
