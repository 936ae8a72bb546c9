"""Desired and reported state of a device: the records, and the difference of the two. Pure.

`desired` is what operators want, with a version. Each version is sent to the device as a command under an id that is noted
before (`sent_id`). `outcome` is the end of that command, and `reported` what the device says of itself.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from fogline.commands.command import MAX_NAME, CommandState, check_name
from fogline.documents.json_document import read_document
from fogline.errors import Poison

MAX_STATE_BYTES = 8 * 1024
"""Limit of a desired or a reported state, as JSON."""
DEFAULT_COMMAND = "desired"
_Ms = Annotated[int, Meta(ge=0, le=2**53)]
_Id = Annotated[str, Meta(max_length=64)]


class DesiredRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The newest version of a desired state, and the version that was sent last. Written by the device's shard."""

    version: Annotated[int, Meta(ge=1, le=2**53)]
    desired: dict[str, Any]
    changed_ms: _Ms
    changed_by: Annotated[str, Meta(max_length=512)]
    request: Annotated[str, Meta(max_length=128)] = ""
    """Id of the operator's message, so that a copy of it makes no further version."""
    command: Annotated[str, Meta(max_length=MAX_NAME)] = DEFAULT_COMMAND
    sent_version: int = 0
    sent_id: _Id = ""
    sent_gateway: _Id = ""
    attempt: int = 0


class DesiredOutcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The end of the command that carried a version. Written by the gateway's shard."""

    command: _Id
    version: int
    state: CommandState
    status: int = 0
    changed_ms: _Ms
    why: Annotated[str, Meta(max_length=1024)] = ""


class ReportedState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state that a device reported last, in an answer or in an event. Written by the gateway's shard."""

    reported: dict[str, Any]
    changed_ms: _Ms


class WantBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `want`. `command` is the name of the command that carries the state."""

    desired: dict[str, Any]
    command: str = DEFAULT_COMMAND


def read_want(body: bytes) -> WantBody:
    """Read the body of `want`. Raises `Poison` (`malformed`, `bad-name`)."""
    if len(body) > MAX_STATE_BYTES:
        raise Poison("malformed", f"a desired state may have {MAX_STATE_BYTES} bytes")
    found = read_document(body, WantBody, "the desired state")
    check_name(found.command)
    return found


def read_reported(data: bytes) -> dict[str, Any] | None:
    """Return the state in an answer or an event of a device; `None` if it is not a JSON object, or too long."""
    if not data or len(data) > MAX_STATE_BYTES:
        return None
    try:
        found = read_document(data, object, "a reported state")
    except Poison:
        return None
    return found if isinstance(found, dict) and all(isinstance(each, str) for each in found) else None


def difference(desired: dict[str, Any], reported: dict[str, Any] | None) -> dict[str, Any]:
    """Return the part of `desired` that `reported` does not have, member by member."""
    found: dict[str, Any] = {}
    for name, value in desired.items():
        other = (reported or {}).get(name, msgspec.UNSET)
        if isinstance(value, dict) and isinstance(other, dict):
            if inner := difference(value, other):
                found[name] = inner
        elif other is msgspec.UNSET or value != other or isinstance(value, bool) != isinstance(other, bool):
            found[name] = value
    return found


def decode_outcome(body: bytes) -> DesiredOutcome:
    """Return the outcome of a JSON text. Raises `Poison('malformed')`."""
    return read_document(body, DesiredOutcome, "the outcome of a desired state")
