"""Parser `senml-cbor`: Sensor Measurement Lists in CBOR (RFC 8428, section 6), resolved as by parser `senml`."""

from collections.abc import Iterator
from typing import Any

from fogline.events.event import Event
from fogline_cloud.flows.parsers import Leftover, Reading
from fogline_cloud.flows.parsers.cbor_values import base64url
from fogline_cloud.flows.parsers.senml import resolved
from fogline_cloud.flows.parsers.strict_cbor import loads
from fogline_cloud.flows.parsers.strict_json import OddValue

_LABELS = {  # Labels of table 4. The table is closed: extensions use text labels.
    -6: "bs", -5: "bv", -4: "bu", -3: "bt", -2: "bn", -1: "bver",
    0: "n", 1: "u", 2: "v", 3: "vs", 4: "vb", 5: "s", 6: "t", 7: "ut", 8: "vd",
}  # fmt: skip


def parse(event: Event) -> Iterator[Reading | Leftover]:
    """Parse one event. Raises what parser `senml` and `strict_cbor` do."""
    pack = loads(event.data)
    return resolved([_record(raw) for raw in pack] if isinstance(pack, list) else pack, event)


def _record(raw: Any) -> Any:
    if not isinstance(raw, dict):
        return raw
    record: dict[str, Any] = {}
    for label, value in raw.items():
        name = _LABELS.get(label, str(label))
        record[name] = OddValue("named twice, by an integer and by a text") if name in record else value
    if "vd" in record:
        data = record["vd"]
        record["vd"] = base64url(data) if isinstance(data, bytes) else OddValue("a data value is a byte string")
    return record
