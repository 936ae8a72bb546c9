"""The chain of a shard's audit records: each has a number and the SHA-256 of the one before it.

So a record that was deleted, changed, added or moved breaks the chain. The shard's checkpoint has the newest link, which shows
that the end was cut off. Whoever may write to Kafka can make a new chain in whole; a link that was noted elsewhere shows it.
"""

import hashlib
from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from fogline.errors import Poison
from fogline_cloud.audit.record import AuditRecord, decode_audit, encode_audit


class AuditLink(msgspec.Struct, frozen=True):
    """The end of a chain: the number of its newest record, and the SHA-256 of that record's bytes (hex)."""

    number: int = 0
    digest: str = ""


def append(end: AuditLink, record: AuditRecord) -> tuple[bytes, AuditLink]:
    """Return the bytes of a record behind `end`, and the new end."""
    body = encode_audit(replace(record, number=end.number + 1, previous=end.digest))
    return body, link_of(end.number + 1, body)


def link_of(number: int, body: bytes) -> AuditLink:
    """Return the link that a record with this number and these bytes makes."""
    return AuditLink(number, hashlib.sha256(body).hexdigest())


def follow(end: AuditLink, body: bytes) -> AuditLink:
    """Return the end behind a record that is on Kafka. A record that cannot be read leaves the end as it is."""
    try:
        return link_of(decode_audit(body).number, body)
    except Poison:
        return end


class ChainCheck:
    """Checks the records of one shard, given in order. `problems` names what is wrong; `end` is the newest link.

    `noted`: links that the chain must contain, as far as it has not become too old for Kafka.
    """

    def __init__(self, where: str, noted: Iterable[AuditLink] = ()) -> None:
        self.problems: list[str] = []
        self.first = 0
        self.end = AuditLink()
        self._where = where
        self._noted = {each.number: each.digest for each in noted if each.number}

    def add(self, offset: int, body: bytes) -> None:
        """Check the next record."""
        at = f"{self._where} at offset {offset}"
        try:
            record = decode_audit(body)
        except Poison as error:
            self.problems.append(f"{at}: {error}")
            return
        if not self.first:
            self.first = record.number
        elif record.number != self.end.number + 1:
            self.problems.append(f"{at}: record {record.number} follows record {self.end.number}")
        elif record.previous != self.end.digest:
            self.problems.append(f"{at}: record {record.number} does not continue the record before it, which was changed")
        self.end = link_of(record.number, body)
        if self._noted.pop(record.number, self.end.digest) != self.end.digest:
            self.problems.append(f"{at}: record {record.number} is not the one that was noted")

    def finish(self) -> None:
        """Check that the end is there."""
        missing = [number for number in self._noted if number >= self.first]
        if missing:
            self.problems.append(f"{self._where}: record {max(missing)} was written, but the records end at {self.end.number}")
