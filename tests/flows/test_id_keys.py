"""The files that may hold an event: with key files, without them, and with damaged ones."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fogline_cloud.flows.driver.key_cache import key_files_of
from fogline_cloud.flows.tables import id_keys
from fogline_cloud.flows.tables.files import TableFolder
from fogline_cloud.flows.tables.id_keys import IdIndex, key_path, keys_in, keys_of, may_hold, read_key_file, write_key_file
from fogline_cloud.settings import FlowSettings

SOURCE = "/t/devices/d"
KINDS = {"local folder": "{}", "URL": "file://{}"}


def rows(*ids, source=SOURCE):
    return pa.table({"source": pa.array([source] * len(ids), pa.string()), "id": pa.array(ids, pa.string())})


@pytest.fixture(params=KINDS.values(), ids=KINDS)
def folder(request, tmp_path):
    """Return a table's folder, with the ids 0 to 99 in each of files `a` and `b`, under their names."""
    for name in ("a", "b"):
        pq.write_table(rows(*(f"{name}-{number}" for number in range(100))), tmp_path / name)
    return TableFolder(request.param.format(tmp_path))


def index_of(folder, tmp_path):
    """An index of a new process, with copies of the key files of a URL on this disk."""
    flow = FlowSettings(key_cache=str(tmp_path / "cache"))
    return IdIndex(folder, key_files_of(flow, folder))


def sizes(tmp_path, *names):
    return {name: (tmp_path / name).stat().st_size for name in names or ("a", "b")}


def test_keys_are_those_of_source_and_id():
    known = keys_of(rows("x", "y", "x", None))
    assert len(known) == 2
    assert may_hold(known, keys_of(rows("y")))
    assert not may_hold(known, keys_of(rows("y", source="/t/devices/other")))
    assert not may_hold(known, keys_of(rows("z")))
    assert not may_hold(keys_of(rows(None)), known)


def test_the_files_of_an_event_are_found_with_and_without_key_files(folder, tmp_path):
    for _ in range(3):
        index = index_of(folder, tmp_path)
        assert index.holding(sizes(tmp_path), keys_of(rows("a-1", "new"))) == ["a"]
        assert index.holding(sizes(tmp_path), keys_of(rows("a-1", "b-99"))) == ["a", "b"]
        assert index.holding(sizes(tmp_path), keys_of(rows("new"))) == []
        write_key_file(folder, "a")


def test_key_file_has_the_ids_of_its_file(folder, tmp_path):
    pq.write_table(rows(*map(str, range(20_000))), tmp_path / "a")
    write_key_file(folder, "a")
    found = read_key_file(folder, "a")
    assert found is not None
    assert len(found) == 20_000
    assert (found == keys_in(folder, "a")).all()
    assert read_key_file(folder, "b") is None
    assert [path.name for path in (tmp_path / "_ids").iterdir()] == ["a.keys1"], "no temporary file"


@pytest.mark.parametrize("damage", [lambda whole: whole[:-8], lambda whole: whole[:-1] + b"?", lambda _: b"", lambda _: b"FL"])
def test_a_damaged_key_file_is_as_good_as_none(folder, tmp_path, damage):
    write_key_file(folder, "a")
    path = tmp_path / key_path("a")
    path.write_bytes(damage(path.read_bytes()))
    assert read_key_file(folder, "a") is None
    assert index_of(folder, tmp_path).holding(sizes(tmp_path), keys_of(rows("a-1"))) == ["a"]


def test_files_beyond_the_bounds_are_read_and_not_skipped(folder, tmp_path, monkeypatch):
    """They may hold the event, as far as the index knows."""
    monkeypatch.setattr(id_keys, "MAX_HASHED_BYTES", sizes(tmp_path, "a")["a"])
    assert index_of(folder, tmp_path).holding(sizes(tmp_path), keys_of(rows("new"))) == ["b"]

    monkeypatch.setattr(id_keys, "MAX_CACHED_BYTES", 100 * 8)
    index = index_of(folder, tmp_path)
    assert index.holding(sizes(tmp_path), keys_of(rows("new"))) == ["b"]
    assert index.holding(sizes(tmp_path), keys_of(rows("new"))) == [], "what was computed is remembered"
    index.forget_all_but({})
    assert index.holding(sizes(tmp_path), keys_of(rows("new"))) == ["b"]
