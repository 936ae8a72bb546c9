"""The headers of a raw record, from the columns of its row in `events`, which lack its properties, expiry and command ids."""

from collections.abc import Mapping
from typing import Any

from fogline_cloud.kafka.records import Headers

_HEADERS = {
    **{
        f"ce_{name}": name
        for name in (
            *("id", "source", "type", "subject", "gateway", "stream", "sequence", "lane"),
            *("timequality", "dedup", "time", "recordedtime", "dataref"),
        )
    },
    "content-type": "content_type",
    "device_id": "device",
    "orig_adapter": "adapter",
}
COLUMNS = (*_HEADERS.values(), "replayed")
"""The columns that headers are made of."""


def headers_of(row: Mapping[str, Any]) -> Headers:
    """Return the headers of a row's record. `row`: its `COLUMNS`, with times as RFC 3339 texts."""
    headers: Headers = [("ce_specversion", b"1.0")]
    headers += [(header, str(row[name]).encode()) for header, name in _HEADERS.items() if row[name] is not None]
    if row["replayed"]:
        headers.append(("ce_replayed", b"true"))
    return headers
