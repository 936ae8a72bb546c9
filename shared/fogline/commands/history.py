"""The command that asks a gateway for the events of a device that its rules kept back, and its pages. Values; no IO.

The gateway executes it itself: the device need not be there, and never sees it. A reply is one page. It says where the next
one begins, so the command is idempotent, and pages that are asked for again are the same.
"""

import json
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from fogline.documents.document_error import explained
from fogline.errors import Poison
from fogline.events.event import parse_rfc3339
from fogline.process.console.listing import utc

HISTORY = "fogline-history"
"""Name of the command. No device gets a command of this name."""
_Whole = Annotated[int, Meta(ge=0, le=2**53)]
Place = tuple[_Whole, _Whole]
"""Place of a kept event: its time in milliseconds since 1970, and its number in the gateway's file."""


class HistoryQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments: the events from `since_ms` on and before `until_ms`, in milliseconds since 1970.

    `begin`: the `next` of the page before; without it the first page.
    """

    since_ms: _Whole = 0
    until_ms: _Whole = 2**53
    begin: Place | None = None


class HistoryState(msgspec.Struct, frozen=True):
    """The whole history of a gateway: kept events, events that were deleted early (it was full), and bytes of its file."""

    events: int
    forgotten: int
    bytes: int


class HistoryPage(msgspec.Struct, frozen=True):
    """The reply: events, the oldest first, and where the next page begins; `None` after the last one."""

    events: list[msgspec.Raw]
    next: Place | None
    history: HistoryState


def read_query(data: bytes) -> HistoryQuery:
    """Return the query of a command's arguments; the whole history without any. Raises `Poison('malformed')`."""
    try:
        return msgspec.json.decode(data or b"{}", type=HistoryQuery)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Poison("malformed", f"the arguments of {HISTORY} are not readable: {explained(error, HistoryQuery)}") from None


def read_page(data: bytes) -> HistoryPage:
    """Return the page of a reply. Raises `Poison('malformed')`."""
    try:
        return msgspec.json.decode(data, type=HistoryPage)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Poison("malformed", f"the gateway's reply is not readable: {explained(error, HistoryPage)}") from None


COLUMNS = ("time", "channel", "rule", "data")
"""The columns of `row_of`."""


def row_of(event: dict[str, Any]) -> tuple[str, ...]:
    """Return what is printed of a kept event: time, channel, rule, and JSON or base64."""
    if "data_base64" in event:
        data = event["data_base64"]
    elif "data" in event:
        data = json.dumps(event["data"])
    else:
        data = f"({event['too_big_bytes']:,} bytes: too big for a page)"
    return (utc(parse_rfc3339(event["time"]) / 1e9), event["channel"], event["rule"], data)
