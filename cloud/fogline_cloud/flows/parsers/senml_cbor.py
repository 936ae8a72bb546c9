"""Parser `senml-cbor`: Sensor Measurement Lists in CBOR (RFC 8428, section 6), resolved as by parser `senml`."""

from typing import Any

from fogline.errors import Poison
from fogline.event import Event
from fogline_cloud.flows.parsers import Reading
from fogline_cloud.flows.parsers.cbor_values import base64url
from fogline_cloud.flows.parsers.senml import resolved
from fogline_cloud.flows.parsers.strict_cbor import loads

_LABELS = {  # Labels of table 4. The table is closed: extensions use text labels.
    -6: "bs", -5: "bv", -4: "bu", -3: "bt", -2: "bn", -1: "bver",
    0: "n", 1: "u", 2: "v", 3: "vs", 4: "vb", 5: "s", 6: "t", 7: "ut", 8: "vd",
}  # fmt: skip


def parse(event: Event) -> list[Reading]:
    """Parse one event. Raises `Poison` (those of parser `senml` and of `strict_cbor`, and `duplicate-key`)."""
    pack = loads(event.data)
    return resolved([_record(raw) for raw in pack] if isinstance(pack, list) else pack, event)


def _record(raw: Any) -> Any:
    if not isinstance(raw, dict):
        return raw
    record = {_LABELS.get(label, str(label)): value for label, value in raw.items()}
    if len(record) != len(raw):
        raise Poison("duplicate-key", "a record has the same label as an integer and as a text")
    if "vd" in record:
        if not isinstance(record["vd"], bytes):
            raise Poison("malformed", "a data value is not a byte string")
        record["vd"] = base64url(record["vd"])
    return record
