"""Key files of a table behind a URL are fetched once, whatever happens to their copies on this disk."""

import os
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fogline_cloud.flows.driver import key_cache
from fogline_cloud.flows.driver.key_cache import KeyCache, key_files_of
from fogline_cloud.flows.tables.files import TableFolder
from fogline_cloud.flows.tables.id_keys import IdIndex, keys_of, write_key_file
from fogline_cloud.settings import FlowSettings
from fogline_lab.http_line import HttpLine
from fogline_lab.object_store import BUCKET

FILES = ("a", "b", "c")
KEYS = 1000
BYTES = 16 + 8 * KEYS
"""Size of one key file."""
ENOUGH = 1 << 30


def rows(*ids):
    return pa.table({"source": pa.array(["/t/devices/d"] * len(ids), pa.string()), "id": pa.array(ids, pa.string())})


def make_table(path):
    """A table of three files with a key file each."""
    path.mkdir()
    folder = TableFolder(path.as_uri())
    for name in FILES:
        pq.write_table(rows(*(f"{path.name}-{name}-{number}" for number in range(KEYS))), path / name)
        write_key_file(folder, name)
    return folder


@pytest.fixture
def table(tmp_path):
    return make_table(tmp_path / "events")


@pytest.fixture
def fetched(monkeypatch):
    """How often each key file was fetched."""
    counts = Counter()
    read = key_cache.read_content

    def counted(folder, path):
        counts[path] += 1
        return read(folder, path)

    monkeypatch.setattr(key_cache, "read_content", counted)
    return counts


def look_up(cache, *names, wanted="events-a-7"):
    """Look an event up in these files, in their order. Returns those that may hold it."""
    return IdIndex(cache._table, cache).holding(dict.fromkeys(names or FILES, 0), keys_of(rows(wanted)))


def copies(tmp_path):
    return sorted(each for each in (tmp_path / "cache").rglob("*") if each.is_file())


def test_each_key_file_is_fetched_once_also_by_later_processes(table, tmp_path, fetched):
    cache = KeyCache(table, tmp_path / "cache", ENOUGH)
    assert [look_up(cache), look_up(cache), look_up(cache, wanted="new")] == [["a"], ["a"], []]
    assert look_up(KeyCache(table, tmp_path / "cache", ENOUGH)) == ["a"]
    assert fetched == dict.fromkeys(FILES, 1)
    assert [each.stat().st_size for each in copies(tmp_path)] == [BYTES] * len(FILES)


@pytest.mark.parametrize("damage", [lambda whole: whole[:-8], lambda whole: whole[:-1] + b"?", lambda _: b"", lambda _: b"FL"])
def test_a_damaged_copy_is_fetched_again(table, tmp_path, fetched, damage):
    look_up(KeyCache(table, tmp_path / "cache", ENOUGH))
    for copy in copies(tmp_path):
        copy.write_bytes(damage(copy.read_bytes()))
    for _ in range(2):
        assert look_up(KeyCache(table, tmp_path / "cache", ENOUGH)) == ["a"]
    assert fetched == dict.fromkeys(FILES, 2)


def test_the_copies_used_least_recently_are_deleted_first(table, tmp_path, fetched):
    cache = KeyCache(table, tmp_path / "cache", 2 * BYTES)
    look_up(cache, "a")
    look_up(cache, "b")
    look_up(cache, "a")
    look_up(cache, "c")
    assert sum(each.stat().st_size for each in copies(tmp_path)) <= 2 * BYTES
    look_up(cache, "a", "c")
    assert fetched == {"a": 1, "b": 1, "c": 1}
    look_up(cache, "b")
    assert fetched["b"] == 2


def test_a_look_up_that_needs_more_than_the_bound_keeps_what_it_has(table, tmp_path, fetched):
    """Each look-up reads all files in the same order: to delete the one that is needed next would help none of them."""
    cache = KeyCache(table, tmp_path / "cache", 2 * BYTES)
    for _ in range(5):
        assert look_up(cache, wanted="events-c-7") == ["c"]
    assert fetched == {"a": 1, "b": 1, "c": 5}


def test_flows_with_other_tables_do_not_use_up_each_others_copies(table, tmp_path, fetched):
    other = make_table(tmp_path / "other")
    caches = [KeyCache(each, tmp_path / "cache", 3 * BYTES) for each in (table, other)]
    for _ in range(3):
        assert [look_up(cache) for cache in caches] == [["a"], []]
        assert [look_up(cache, wanted="other-b-1") for cache in caches] == [[], ["b"]]
    assert fetched == dict.fromkeys(FILES, 2)


def test_copies_that_another_process_deletes_are_fetched_again(table, tmp_path, fetched):
    cache = KeyCache(table, tmp_path / "cache", ENOUGH)
    look_up(cache)
    copies(tmp_path)[0].unlink()
    assert look_up(cache) == ["a"]
    assert sorted(fetched.values()) == [1, 1, 2]


def test_copies_for_files_that_the_table_lost_are_deleted(table, tmp_path, fetched):
    """`fogline table forget` deletes key files with the ids of a device."""
    cache = KeyCache(table, tmp_path / "cache", ENOUGH)
    look_up(cache)
    cache.forget_all_but({"b": 0})
    assert len(copies(tmp_path)) == 1
    assert look_up(cache, "b") == []
    assert fetched["b"] == 1


def test_a_killed_writer_leaves_nothing_for_good(table, tmp_path):
    cache = KeyCache(table, tmp_path / "cache", ENOUGH)
    look_up(cache)
    beside = copies(tmp_path)[0].parent
    (beside / "old.part").write_bytes(b"FL")
    os.utime(beside / "old.part", (1, 1))
    (beside / "new.part").write_bytes(b"FL")
    cache.forget_all_but(dict.fromkeys(FILES, 0))
    assert {each.name for each in copies(tmp_path) if each.suffix == ".part"} == {"new.part"}


def test_without_a_folder_to_write_key_files_are_read_from_the_url(table, tmp_path, fetched, caplog):
    (tmp_path / "cache").write_text("a file is in the way")
    cache = KeyCache(table, tmp_path / "cache", ENOUGH)
    assert [look_up(cache), look_up(cache)] == [["a"], ["a"]]
    assert fetched == dict.fromkeys(FILES, 2)
    assert len([each for each in caplog.records if "each time" in each.message]) == 1


def test_nothing_is_copied_with_a_bound_of_zero(table, tmp_path):
    assert look_up(key_files_of(FlowSettings(key_cache=str(tmp_path / "cache"), key_cache_mib=0), table)) == ["a"]
    assert copies(tmp_path) == []


def test_a_look_up_asks_the_object_store_for_nothing_that_it_has(object_store, tenant, tmp_path):
    with HttpLine(object_store.port, tmp_path / "line.log") as line:
        folder = TableFolder(f"s3://{BUCKET}/{tenant}", object_store.options(line.endpoint))
        for name in FILES:
            with folder.file_system().open_output_stream(name) as out:
                pq.write_table(rows(*(f"events-{name}-{number}" for number in range(KEYS))), out)
            write_key_file(folder, name)
        assert look_up(KeyCache(folder, tmp_path / "cache", ENOUGH)) == ["a"]
        with line.away():
            assert look_up(KeyCache(folder, tmp_path / "cache", ENOUGH)) == ["a"]
