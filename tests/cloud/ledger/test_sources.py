"""Evidence that the ledger reads from records and tables."""

import pyarrow as pa
import pytest
from deltalake import DeltaTable, TableFeatures, write_deltalake
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from fogline.errors import Misconfigured
from fogline.events.gap import GAP_CONTENT_TYPE
from fogline.gateway.ledger import STATEMENT_CONTENT_TYPE
from fogline_cloud.kafka.committed_records import CommittedRecord
from fogline_cloud.kafka.records import record_of
from fogline_cloud.ledger.balance import judge
from fogline_cloud.ledger.evidence import EvidenceReader
from fogline_cloud.ledger.marked_tables import MarkedTables
from fogline_cloud.ledger.readings import ReadingSums
from fogline_cloud.settings import CloudSettings, FlowSettings, StoreSettings
from fogline_lab.events import make_event
from fogline_lab.object_store import BUCKET

OURS = dict(record_of(make_event(1)).headers)
WRONG = [None, b"", b"\xff\xfe", b"-1", b"0", b"9" * 30, b"9" * 5000, b"x" * 5000]
TYPES = [GAP_CONTENT_TYPE.encode(), STATEMENT_CONTENT_TYPE.encode()]
BODIES = [b"", b"[]", b"\xff", b'{"stream": "\xff"}', b"[" * 100_000, b'{"x":' + b"[" * 100_000, b'{"first": -1, "last": "x"}']


def stored(headers, value=b"17", offset=0):
    return CommittedRecord("topic", 0, offset, b"", value, list(headers.items()))


@given(
    st.dictionaries(st.sampled_from(sorted(OURS)), st.sampled_from([*WRONG, *TYPES]) | st.binary(max_size=20), max_size=4),
    st.sampled_from(BODIES),
    st.sampled_from([*TYPES, b"application/json"]),
)
def test_a_malformed_record_does_not_stop_the_ledger(wrong, body, content_type):
    reader = EvidenceReader("t", {})
    reader.take_record(stored({**OURS, "content-type": content_type, **wrong}, body))
    reader.take_record(stored({**OURS, "ce_gateway": b"honest"}, offset=1))
    assert "honest" in {evidence.gateway for evidence in reader.finish()}


@pytest.mark.parametrize("number", [b"0", b"9223372036854775808", b"9" * 4000, None])
def test_a_record_with_a_sequence_out_of_range_belongs_to_no_stream(number):
    """The flow writes it without a stream, so the ledger counts it nowhere either."""
    reader = EvidenceReader("t", {})
    reader.take_record(stored({**OURS, "ce_sequence": number}))
    assert [finding for evidence in reader.finish() for finding in judge(evidence)] == []


def with_tables(tables, store=None):
    flow, place = FlowSettings(tables=tables), StoreSettings()
    if store is not None:
        place = StoreSettings(endpoint=store.endpoint, key_file=str(store.key_file))
    return CloudSettings(tenant="t", kafka={"bootstrap.servers": "x"}, flow=flow, store=place)


def row_of(tenant, stream):
    columns = ("topic", "gateway", "lane", "outcome", "reason", "detail")
    place = {
        "partition": 0,
        "offset": 7,
        "first_sequence": 1,
        "sequence": 1,
        "tenant": tenant,
        "stream": stream,
        "outcome": "ok",
    }
    return {**dict.fromkeys(columns, "x"), **place, "readings": [{"ordinal": 0}]}


def read(settings) -> tuple[EvidenceReader, ReadingSums]:
    reader, sums = EvidenceReader("t", {}), ReadingSums()
    MarkedTables(settings).read(reader, sums, full=False)
    return reader, sums


def test_the_ledger_ignores_the_rows_of_other_tenants(folder):
    """Two tenants may share tables: neither is a phantom of the other."""
    write_deltalake(folder / "events", pa.Table.from_pylist([row_of("t", "ours"), row_of("u", "theirs")]))
    readings = [{"gateway": "x", "stream": stream, "sequence": 1, "ordinal": 0} for stream in ("ours", "theirs")]
    write_deltalake(folder / "readings", pa.Table.from_pylist(readings))

    reader, sums = read(with_tables(str(folder)))

    assert [(each.stream, each.table.spans) for each in reader.finish()] == [("ours", [(1, 1)])]
    assert {key for key, _ in sums.unequal()} == reader.of_others == {("x", "theirs")}


def test_the_ledger_reads_tables_in_an_object_store_and_keeps_its_marks_there(object_store, tenant):
    tables = f"s3a://{BUCKET}/{tenant}/"
    rows = pa.Table.from_pylist([row_of("t", "s")])
    write_deltalake(f"{tables}events", rows, storage_options=object_store.options())

    for _ in range(2):
        reader, sums = read(with_tables(tables, object_store))
        assert reader.finish()[0].table.spans == [(1, 1)]
        assert sums.unequal() == [(("x", "s"), 0)], "one reading, and no table of readings"


def test_missing_tables_count_as_empty(folder, object_store, tenant):
    for tables in (str(folder / "tables"), f"s3a://{BUCKET}/{tenant}"):
        reader, sums = read(with_tables(tables, object_store))
        assert (reader.finish(), sums.unequal()) == ([], [])


def test_tables_in_a_store_that_refuses_the_keys_are_reported_with_the_settings_to_check(folder, object_store, tenant):
    settings = with_tables(f"s3a://{BUCKET}/{tenant}", object_store)
    wrong = str(object_store.write_key_file(folder / "wrong", secret="x"))
    settings = replace(settings, store=replace(settings.store, key_file=wrong))
    with pytest.raises(Misconfigured, match=r"events cannot be read: the object store refuses the keys: check \[store\]"):
        read(settings)


def test_rows_that_kafka_has_deleted_are_known_by_their_offsets(folder):
    """Also those that it deleted while the ledger was reading."""
    rows = [{**row_of("t", "s"), "sequence": n, "first_sequence": n, "offset": 10 + n} for n in (3, 1, 2)]
    write_deltalake(folder / "events", pa.Table.from_pylist(rows))
    settings = with_tables(str(folder))
    reader = EvidenceReader("t", {("x", 0): 12})
    tables = MarkedTables(settings)
    tables.read(reader, ReadingSums(), full=False)
    assert reader.finish()[0].kafka_from == 2
    tables.take_deleted(reader, {("x", 0): 13})
    assert reader.finish()[0].kafka_from == 3


def test_a_table_with_deletion_vectors_is_refused(folder):
    """F11: the ledger would count rows that are deleted."""
    write_deltalake(folder / "events", pa.Table.from_pylist([row_of("t", "s")]))
    table = DeltaTable(folder / "events")
    table.alter.add_feature(TableFeatures.DeletionVectors, allow_protocol_versions_increase=True)
    table.alter.set_table_properties({"delta.enableDeletionVectors": "true"})
    with pytest.raises(Misconfigured, match=r"events: deletion vectors are on, .* REORG TABLE"):
        read(with_tables(str(folder)))


def test_an_accepted_gap_explains_only_the_sequences_at_its_offsets(folder):
    """Sequences 3 to 5 were in the gap. Sequence 8 is missing elsewhere, and the other gap is in another partition."""
    gap = {
        **row_of("t", None),
        "gateway": None,
        "sequence": None,
        "first_sequence": None,
        "outcome": "gap",
        "reason": "retention",
    }
    rows = [
        {**row_of("t", "s"), "sequence": last, "first_sequence": first, "offset": offset, "reason": None, "detail": None}
        for offset, first, last in ((0, 1, 2), (6, 6, 7), (9, 9, 9))
    ]
    rows += [{**gap, "offset": 5, "detail": "1 to 5"}, {**gap, "partition": 1, "offset": 8, "detail": "0 to 8"}]
    write_deltalake(folder / "events", pa.Table.from_pylist(rows))
    reader = EvidenceReader("t", {})
    MarkedTables(with_tables(str(folder))).read(reader, ReadingSums(), full=False)
    (evidence,) = reader.finish()
    assert [(loss.first, loss.last, loss.reason, loss.detail) for loss in evidence.losses] == [(3, 5, "retention", "1 to 5")]
    assert [(finding.kind, finding.spans) for finding in judge(evidence) if finding.kind == "lost"] == [("lost", [(8, 8)])]
