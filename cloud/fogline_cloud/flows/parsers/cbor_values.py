"""Parser `cbor`: named as by parser `json`; integer keys by digits, byte strings in base64url (RFC 8949, section 6.1).

Not understood, beside what parser `json` names: tags but those that `strict_cbor` reads, and the other values that it lists.
"""

import base64
from collections.abc import Iterator

from fogline.events.event import Event
from fogline_cloud.flows.parsers import Leftover, Reading
from fogline_cloud.flows.parsers.json_values import readings_of
from fogline_cloud.flows.parsers.strict_cbor import Cbor, loads
from fogline_cloud.flows.parsers.strict_json import Json, OddValue


def parse(event: Event) -> Iterator[Reading | Leftover]:
    """Parse one event. Raises what `strict_cbor` does."""
    return readings_of(_json(loads(event.data)))


def _json(value: Cbor) -> Json:
    if isinstance(value, dict):
        found: dict[str, Json] = {}
        for key, member in value.items():
            name = str(key)
            found[name] = OddValue("named twice, by an integer and by a text") if name in found else _json(member)
        return found
    if isinstance(value, list):
        return [_json(member) for member in value]
    return base64url(value) if isinstance(value, bytes) else value


def base64url(data: bytes) -> str:
    """Return base64url without padding, as in JSON (RFC 8949, section 6.1; RFC 8428, section 5)."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
