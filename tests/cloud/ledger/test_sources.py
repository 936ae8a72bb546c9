"""Evidence that the ledger reads from records and tables."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit
from xml.sax.saxutils import escape

import pyarrow as pa
import pytest
from deltalake import DeltaTable, TableFeatures, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from fogline.errors import Misconfigured
from fogline.events.gap import GAP_CONTENT_TYPE
from fogline.gateway.ledger import STATEMENT_CONTENT_TYPE
from fogline_cloud.kafka.committed_records import CommittedRecord
from fogline_cloud.kafka.records import record_of
from fogline_cloud.ledger.balance import judge
from fogline_cloud.ledger.evidence import EvidenceReader
from fogline_cloud.ledger.marked_tables import MarkedTables
from fogline_cloud.ledger.readings import ReadingSums
from fogline_cloud.settings import CloudSettings, FlowSettings
from fogline_lab.events import make_event

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


class ObjectStore(BaseHTTPRequestHandler):
    """A read-only S3 bucket over a folder, for one user."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if "Credential=ledger-user/" not in self.headers.get("Authorization", ""):
            return self.reply(403, b"")
        bucket, _, key = url.path.lstrip("/").partition("/")
        assert bucket == "site"
        if not key:
            return self.reply(200, self.listing(parse_qs(url.query).get("prefix", [""])[0]))
        file = self.server.folder / key
        if not file.is_file():
            return self.reply(404, b"<Error><Code>NoSuchKey</Code></Error>")
        body, wanted = file.read_bytes(), self.headers.get("Range", "").removeprefix("bytes=")
        if not wanted:
            return self.reply(200, body)
        first, _, last = wanted.partition("-")
        begin = int(first) if first else max(len(body) - int(last), 0)
        end = min(int(last) + 1 if first and last else len(body), len(body))
        return self.reply(206, body[begin:end], {"Content-Range": f"bytes {begin}-{end - 1}/{len(body)}"})

    def do_HEAD(self) -> None:
        self.do_GET()

    def listing(self, prefix: str) -> bytes:
        found = [(str(each.relative_to(self.server.folder)), each) for each in self.server.folder.rglob("*") if each.is_file()]
        contents = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            f"<Size>{file.stat().st_size}</Size></Contents>"
            for key, file in sorted(found)
            if key.startswith(prefix)
        )
        return f"<ListBucketResult><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>".encode()

    def reply(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        named = {"Content-Length": str(len(body)), "ETag": '"1"', "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
        for name, value in {**named, **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def bucket(folder, monkeypatch):
    """A bucket over `folder`, and the options to read it with."""
    # delta-rs keeps the interpreter's lock while it opens a file to write, so a server of this process could not answer.
    monkeypatch.setattr(MarkedTables, "_write", lambda _: None)
    with ThreadingHTTPServer(("127.0.0.1", 0), ObjectStore) as server:
        server.folder = folder
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "ledger-user",
            "AWS_SECRET_ACCESS_KEY": "x",
            "AWS_REGION": "us-east-1",
        }
        server.shutdown()


def with_tables(tables, storage):
    return CloudSettings(tenant="t", kafka={"bootstrap.servers": "x"}, flow=FlowSettings(tables=tables, storage=storage))


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

    reader, sums = read(with_tables(str(folder), {}))

    assert [(each.stream, each.table.spans) for each in reader.finish()] == [("ours", [(1, 1)])]
    assert {key for key, _ in sums.unequal()} == reader.of_others == {("x", "theirs")}


def test_the_ledger_reads_tables_with_the_storage_options_of_the_flow(folder, bucket):
    """F10: `[flow.storage]`."""
    write_deltalake(folder / "tables" / "events", pa.Table.from_pylist([row_of("t", "s")]))

    reader, sums = read(with_tables("s3://site/tables/", bucket))

    assert reader.finish()[0].table.spans == [(1, 1)]
    assert sums.unequal() == [(("x", "s"), 0)], "one reading, and no table of readings"


def test_missing_tables_count_as_empty(folder, bucket):
    for tables in (str(folder / "tables"), "s3://site/tables"):
        reader, sums = read(with_tables(tables, bucket))
        assert (reader.finish(), sums.unequal()) == ([], [])


def test_an_unreadable_table_is_reported_with_the_settings_to_check(bucket):
    with pytest.raises(Misconfigured, match=r"table s3://site/tables/events cannot be read: .*\[flow\.storage\]"):
        read(with_tables("s3://site/tables", {**bucket, "AWS_ACCESS_KEY_ID": "somebody"}))


def test_rows_that_kafka_has_deleted_are_known_by_their_offsets(folder):
    """Also those that it deleted while the ledger was reading."""
    rows = [{**row_of("t", "s"), "sequence": n, "first_sequence": n, "offset": 10 + n} for n in (3, 1, 2)]
    write_deltalake(folder / "events", pa.Table.from_pylist(rows))
    settings = with_tables(str(folder), {})
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
        read(with_tables(str(folder), {}))


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
    MarkedTables(with_tables(str(folder), {})).read(reader, ReadingSums(), full=False)
    (evidence,) = reader.finish()
    assert [(loss.first, loss.last, loss.reason, loss.detail) for loss in evidence.losses] == [(3, 5, "retention", "1 to 5")]
    assert [(finding.kind, finding.spans) for finding in judge(evidence) if finding.kind == "lost"] == [("lost", [(8, 8)])]
