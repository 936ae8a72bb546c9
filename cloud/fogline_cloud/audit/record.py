"""One decision, as it stands on `fogline.audit`. Pure."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from fogline.documents.json_document import read_document

LAST_MS: Final = 253_402_300_799_999
"""The end of the year 9999."""


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One decision. `number` and `previous` come from the chain of its shard (see `fogline_cloud.audit.chain`)."""

    time_ms: Annotated[int, Meta(ge=0, le=LAST_MS)]
    """Milliseconds since 1970 on the bridge's clock."""
    who: str
    """The peer that the decision is about; "" if it has not proven its name."""
    decision: str
    """What was decided: a command's state, or for example `CONNECTION REFUSED`."""
    why: str = ""
    device: str = ""
    gateway: str = ""
    command: str = ""
    """The command's id."""
    name: str = ""
    """The command's name, or the address that the peer asked for."""
    status: int | None = None
    number: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    previous: str = ""


def encode_audit(record: AuditRecord) -> bytes:
    """Return the record as JSON."""
    return msgspec.json.encode(record)


def decode_audit(body: bytes) -> AuditRecord:
    """Return the record of a JSON text. Raises `Poison('malformed')`."""
    return read_document(body, AuditRecord, "an audit record")
