"""Marks: what rows and records that were read say about each stream, so that a later run need not read them again. Pure."""

import lzma
from typing import Any, TypeVar

import msgspec

from fogline.documents.document_error import explained
from fogline.gateway.ledger import Counts
from fogline_cloud.ledger.ranges import Span
from fogline_cloud.shard.admission import StreamKey

FORMAT = 3
"""Version of the marks. Marks of another version are not used."""
OFFSETS = 1 << 17
"""Offsets of one range of a partition. Its marks are dropped when Kafka has deleted all of its records."""


class StreamMarks(msgspec.Struct, frozen=True, array_like=True):
    """The rows of one stream on one day.

    `twice`: sequences that more than one row has. `losses`: first and last sequence, reason and detail of gap records.
    `places`: topic, partition, lowest and highest offset, highest sequence. `around`: topic, partition and last offset of a
    gap by retention, the last sequence before it and the first one after it.
    """

    gateway: str
    stream: str
    lane: str
    spans: list[Span]
    twice: list[Span]
    losses: list[tuple[int, int, str, str]]
    places: list[tuple[str, int, int, int, int]]
    around: list[tuple[str, int, int, int, int]]


class EvidenceMarks(msgspec.Struct, frozen=True):
    """The rows of `events` of one day. `read`: the highest offset of each partition."""

    streams: list[StreamMarks] = []
    read: list[tuple[str, int, int]] = []
    others: list[StreamKey] = []  # streams of other tenants


class ReadingMarks(msgspec.Struct, frozen=True):
    """Fingerprints of `events` minus those of `readings`, of the ranges of sequences in which they differ."""

    sums: list[tuple[str, str, int, int]] = []
    streams: list[StreamKey] = []


class DayMarks(msgspec.Struct, frozen=True):
    """One day of both tables. `files`: sizes of the files that were read, by table and path. `rows`: their rows by table.

    `gaps`: topic, partition, last offset and detail of the gaps by retention among the rows. `repeated`: gateway, stream and
    sequence of the events whose identity another event of the day has too.
    """

    files: dict[str, dict[str, int]]
    rows: dict[str, int]
    gaps: list[tuple[str, int, int, str]]
    evidence: EvidenceMarks
    readings: ReadingMarks
    repeated: list[tuple[str, str, int]] = []


class TableMark(msgspec.Struct, frozen=True):
    """Identity of a table, the version that was read, and the types of the columns that were read."""

    id: str
    version: int
    types: dict[str, Any]


class LedgerMarks(msgspec.Struct, frozen=True):
    """The marks of one tenant, by day of ingest."""

    format: int
    tenant: str
    tables: dict[str, TableMark]
    days: dict[str, DayMarks]


class StreamRecords(msgspec.Struct, frozen=True, array_like=True):
    """The records of one stream in one range of offsets. `losses`, `around`: see `StreamMarks`.

    `arrivals`: sequences of devices' events. `gaps`: sequences for which gap records stand. `statement`: the gateway's last
    counts, with the sequence of that statement, and of the one that closed the stream, 0 for none. `newest`, `statement_ms`,
    `heads`: see `StreamEvidence`.
    """

    gateway: str
    stream: str
    lane: str
    spans: list[Span]
    twice: list[Span]
    arrivals: list[Span]
    gaps: list[Span]
    losses: list[tuple[int, int, str, str]]
    around: list[tuple[str, int, int, int, int]]
    statement: Counts | None
    statement_at: int
    closed_at: int
    newest: tuple[int, int]
    statement_ms: int
    heads: dict[str, int]


class PartitionMarks(msgspec.Struct, frozen=True):
    """The records of a partition below offset `next`, by range of `OFFSETS` offsets. `counts`: their number in each range."""

    topic: str
    partition: int
    next: int
    counts: dict[int, int]
    ranges: dict[int, list[StreamRecords]]


class RecordMarks(msgspec.Struct, frozen=True):
    """The marks of a tenant's records. `topics`: ids of the topics. `gaps`: last offsets of the accepted gaps by retention."""

    format: int
    tenant: str
    topics: dict[str, str]
    gaps: list[tuple[str, int, int]]
    partitions: list[PartitionMarks]


M = TypeVar("M", bound=LedgerMarks | RecordMarks)


def encode_marks(marks: LedgerMarks | RecordMarks) -> bytes:
    """Return the marks as compressed JSON, with a checksum."""
    return lzma.compress(msgspec.json.encode(marks), check=lzma.CHECK_SHA256, preset=1)


def decode_marks(data: bytes, kind: type[M]) -> M:
    """Return the marks. Raises `ValueError` if they are damaged or of another version."""
    try:
        text = lzma.decompress(data)
        if msgspec.json.decode(text, type=_Version).format != FORMAT:
            raise ValueError("another version of Fogline wrote them")
        return msgspec.json.decode(text, type=kind)
    except (lzma.LZMAError, EOFError, msgspec.DecodeError) as error:
        raise ValueError(f"they are damaged ({explained(error, kind)})") from None


class _Version(msgspec.Struct):
    format: int
