"""Parser `senml-cbor`: Sensor Measurement Lists in CBOR (RFC 8428, section 6), resolved as those in JSON are."""

from typing import Any

from fogline.errors import Poison
from fogline.event import Event
from fogline_cloud.flows.parsers import Reading
from fogline_cloud.flows.parsers.cbor_values import base64url
from fogline_cloud.flows.parsers.senml import resolved
from fogline_cloud.flows.parsers.strict_cbor import loads

_LABELS = {
    -6: "bs", -5: "bv", -4: "bu", -3: "bt", -2: "bn", -1: "bver",
    0: "n", 1: "u", 2: "v", 3: "vs", 4: "vb", 5: "s", 6: "t", 7: "ut", 8: "vd",
}  # fmt: skip
"""Table 4; there will be no more of them: extensions have texts as labels."""


def parse(event: Event) -> list[Reading]:
    """Raises `Poison` (those of parser `senml`, and of strict CBOR)."""
    pack = loads(event.data)
    return resolved([_record(raw) for raw in pack] if isinstance(pack, list) else pack, event)


def _record(raw: Any) -> Any:
    """A record with the labels of JSON, and its data value in base64url."""
    if not isinstance(raw, dict):
        return raw
    record = {_LABELS.get(label, str(label)): value for label, value in raw.items()}
    if len(record) != len(raw):
        raise Poison("duplicate-key", "a record has a label by its number and by its name")
    if "vd" in record:
        if not isinstance(record["vd"], bytes):
            raise Poison("malformed", "a data value is not a byte string")
        record["vd"] = base64url(record["vd"])
    return record
