"""Parser `cbor`: named as by parser `json`; integer keys by digits, byte strings in base64url (RFC 8949, section 6.1)."""

import base64

from fogline.errors import Poison
from fogline.event import Event
from fogline_cloud.flows.parsers import Reading
from fogline_cloud.flows.parsers.json_values import readings_of
from fogline_cloud.flows.parsers.strict_cbor import Cbor, loads
from fogline_cloud.flows.parsers.strict_json import Json


def parse(event: Event) -> list[Reading]:
    """Parse one event. Raises `Poison` (`duplicate-key`, `too-many`, and those of `strict_cbor`)."""
    return readings_of(_json(loads(event.data)))


def _json(value: Cbor) -> Json:
    if isinstance(value, dict):
        found = {str(key): _json(member) for key, member in value.items()}
        if len(found) != len(value):
            raise Poison("duplicate-key", "a map has the same key as an integer and as a text")
        return found
    if isinstance(value, list):
        return [_json(member) for member in value]
    return base64url(value) if isinstance(value, bytes) else value


def base64url(data: bytes) -> str:
    """Return base64url without padding, as in JSON (RFC 8949, section 6.1; RFC 8428, section 5)."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
