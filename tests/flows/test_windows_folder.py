"""The folder of windows: whose table it is, and whether a query may go on from its checkpoint. Without Spark."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from fogline.errors import Misconfigured
from fogline_cloud.frames.windows import windows
from fogline_cloud.frames.windows_folder import WindowsFolder

HOURLY = ("readings-1", windows(["device"], "1 hour", {"n": "count(*)"}))


def text_of(table_id, kept):
    return f"{table_id} {kept.text}"


@pytest.fixture
def kept(folder) -> str:
    """A folder in which windows have been kept."""
    path = str(folder / "hourly")
    make(path, text_of(*HOURLY))
    return path


def make(path, text, *, is_whole=True, done=3):
    """Do what a process does that keeps windows: up to the checkpoint, which Spark writes."""
    windows_folder = WindowsFolder(path, {})
    with windows_folder.leased():
        assert windows_folder.open(text)
        windows_folder.begin(text)
        if not windows_folder.is_claimed:
            DeltaTable.create(path, pa.schema([("start", pa.timestamp("us", "UTC"))]))
            windows_folder.claim()
        if is_whole:
            windows_folder.complete(text)
    for name, newest in (("offsets", done + 1), ("commits", done)):
        Path(path, "_checkpoint", name).mkdir(parents=True, exist_ok=True)
        for number in range(newest + 1):
            Path(path, "_checkpoint", name, str(number)).write_text("v1")
    Path(path, "_checkpoint", "metadata").write_text(json.dumps({"id": "run"}))


def test_the_same_windows_go_on_from_their_checkpoint(kept):
    for _ in range(2):
        assert WindowsFolder(kept, {}).open(text_of(*HOURLY)) == ""


@pytest.mark.parametrize(
    "other",
    [
        ("readings-2", HOURLY[1]),
        ("readings-1", windows(["device", "metric"], "1 hour", {"n": "count(*)"})),
        ("readings-1", windows(["device"], "10 minutes", {"n": "count(*)"})),
        ("readings-1", windows(["device"], "1 hour", {"n": "count(value)"})),
        ("readings-1", windows(["device"], "1 hour", {"m": "count(*)"})),
        ("readings-1", windows(["device"], "1 hour", {"n": "count(*)"}, "value > 0")),
        ("readings-1", windows(["device"], "1 hour", {"n": "count(*)"}, slide="10 minutes")),
    ],
    ids=["table", "keys", "size", "aggregate", "name", "where", "slide"],
)
def test_other_windows_do_not_go_on_from_a_checkpoint(kept, other):
    assert "another definition" in WindowsFolder(kept, {}).open(text_of(*other))
    make(kept, text_of(*other))
    assert "another definition" in WindowsFolder(kept, {}).open(text_of(*HOURLY)), "the table has the other ones now"
    assert WindowsFolder(kept, {}).open(text_of(*other)) == ""


def test_a_computation_that_was_killed_is_done_again(kept, folder):
    text = text_of(*HOURLY)
    WindowsFolder(kept, {}).begin(text)
    assert "did not end" in WindowsFolder(kept, {}).open(text)

    for number, state in enumerate(({"is_whole": False}, {"done": -1})):  # killed while it wrote, or before the first commit
        path = str(folder / f"other-{number}")
        make(path, text, **state)
        assert "did not end" in WindowsFolder(path, {}).open(text)


def test_a_definition_that_was_cut_off_counts_as_none(kept):
    Path(kept, "_windows.json").write_text('{"text":')
    assert WindowsFolder(kept, {}).open(text_of(*HOURLY)) != ""


def test_a_table_that_is_not_one_of_windows_is_refused_and_left_alone(folder):
    DeltaTable.create(str(folder / "mine"), pa.schema([("x", pa.int64())]))
    with pytest.raises(Misconfigured, match="a Delta table that is not one of windows"):
        WindowsFolder(str(folder / "mine"), {}).open(text_of(*HOURLY))
    assert DeltaTable(str(folder / "mine")).version() == 0


def test_a_second_process_that_keeps_the_same_folder_is_refused(kept):
    with (
        WindowsFolder(kept, {}).leased(),
        pytest.raises(Misconfigured, match=r"another process uses it on this machine .* Stop that one first"),
        WindowsFolder(kept, {}).leased(),
    ):
        pass
    with WindowsFolder(kept, {}).leased():
        pass


def test_the_newest_owner_of_a_folder_is_the_only_one(kept):
    former, newer = WindowsFolder(kept, {}), WindowsFolder(kept, {})
    former.claim()
    newer.claim()
    assert former.mark(10**6) < newer.mark(0), "Delta does nothing in a commit whose version is not above the table's"
    with pytest.raises(Misconfigured, match="another process keeps this folder now"):
        former.require_committed(former.mark(0))
