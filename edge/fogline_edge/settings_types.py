"""Types that the tables of the gateway's settings share."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from fogline.documents.media_type import OCTETS, check_media_type
from fogline.errors import Poison

IDENTIFIER_PATTERN = r"^[A-Za-z0-9._:\-]{1,64}$"
BLE_ADDRESS_PATTERN = r"^[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}$"
ORIGIN_PATTERN = r"^https?://[A-Za-z0-9.\-\[\]:]+$"
URL_PATH_PATTERN = r"^/[!-\"$->@-~]*$"
Identifier = Annotated[str, Meta(pattern=IDENTIFIER_PATTERN)]
Port = Annotated[int, Meta(ge=0, le=65535)]
Positive = Annotated[int, Meta(ge=1)]
DeviceLane = Literal["alarm", "telemetry", "bulk"]
"""A lane for devices. Replies to commands have a lane of their own."""


class StrictTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table of settings; an unknown key is an error."""


def check_content_type(given: str | None) -> None:
    """Raise `ValueError`, as msgspec expects it, if this is no media type."""
    try:
        check_media_type(given or OCTETS)
    except Poison as error:
        raise ValueError(f"content_type: {error}") from None
