"""Changes to a device that an operator asks for, from the JSON of a message. Pure.

`want` replaces the desired state (see `fogline_cloud.devices.desired`).

`set` merges its object into the device (RFC 7396): `type`, `tags` and `commands`; null removes. `commands` is replaced as a
whole: for each command that the device takes, the JSON Schema of its arguments.
"""

import hashlib
import re
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from fogline.address import shown
from fogline.commands.command import check_name, framed
from fogline.documents.json_document import read_document
from fogline.errors import Poison
from fogline_cloud.devices.argument_check import check_schema
from fogline_cloud.devices.desired import DesiredRecord, read_want
from fogline_cloud.devices.record import (
    MAX_COMMANDS,
    MAX_SCHEMAS_BYTES,
    MAX_TAGS,
    DeviceRecord,
    commands_text,
)

SET = "set"
FORGET = "forget"
WANT = "want"
IF_VERSION = "if_version"
"""Property of a message with `want`: the version that the desired state must have, 0 for none."""
FIELDS = ("type", "device", "gateway", "firmware")
"""Names that a filter gives to fields of a device, so that no tag may have them."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}", re.ASCII)


class DeviceEdit(msgspec.Struct, frozen=True):
    """A change to one device. `body` is the JSON of `set` or `want`. `who` asks for it, in message `request`.

    `if_version`: the version that a desired state must have, 0 for none; `None` for any.
    """

    device: str
    action: str
    who: str
    body: bytes = b""
    request: str = ""
    if_version: int | None = None


class _SetBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    type: str | msgspec.UnsetType | None = msgspec.UNSET
    tags: dict[str, str | None] | msgspec.UnsetType | None = msgspec.UNSET
    commands: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET


def request_of(owner: str, message_id: str) -> str:
    """Return what names the message of a change, a digest of its sender, if its name is proven, and of its packed id."""
    return hashlib.blake2b(framed(owner.encode(), message_id.encode()), digest_size=16).hexdigest()


def is_copy(edit: DeviceEdit, current: DesiredRecord | None) -> bool:
    """Return True if the message of this change has made the current desired state already."""
    return current is not None and bool(edit.request) and current.request == edit.request


def same_want(edit: DeviceEdit, current: DesiredRecord | None) -> bool:
    """Return True if a change asks for the current desired state. Raises `Poison`."""
    body = read_want(edit.body)
    return current is not None and (body.desired, body.command) == (current.desired, current.command)


def check_edit(edit: DeviceEdit) -> None:
    """Check a change before it goes to its shard. Raises `Poison` (`malformed`, `bad-name`), which names the field."""
    if edit.action == WANT:
        read_want(edit.body)
    else:
        apply_edit(edit, None, 0)


def apply_edit(edit: DeviceEdit, current: DeviceRecord | None, now_ms: int) -> DeviceRecord | None:
    """Return the record after a change: `current` itself if nothing changes, `None` if it is forgotten. Raises `Poison`."""
    actions: dict[str, Callable[[], DeviceRecord | None]] = {
        SET: lambda: _set(edit, current, now_ms),
        FORGET: lambda: None,
    }
    if edit.action not in actions:
        raise Poison("malformed", f"{shown(edit.action)} is not an action for a device: set, want, forget")
    return actions[edit.action]()


def apply_want(edit: DeviceEdit, current: DesiredRecord | None, now_ms: int) -> DesiredRecord:
    """Return the desired state after `want`: `current` itself for a copy of the message that made it. Raises `Poison`."""
    body = read_want(edit.body)
    if current is not None and is_copy(edit, current):
        return current
    fields: dict[str, Any] = {"desired": body.desired, "command": body.command, "request": edit.request}
    if current is None:
        return DesiredRecord(version=1, changed_ms=now_ms, changed_by=edit.who, **fields)
    return replace(current, version=current.version + 1, changed_ms=now_ms, changed_by=edit.who, **fields)


def _set(edit: DeviceEdit, current: DeviceRecord | None, now_ms: int) -> DeviceRecord:
    body = read_document(edit.body, _SetBody, "the change of a device")
    former = current or DeviceRecord(version=1, changed_ms=now_ms, changed_by=edit.who)
    kind, tags, commands = former.type, former.tags, former.commands
    if body.type is not msgspec.UNSET:
        kind = _checked(body.type, "type") if body.type else ""
    if body.tags is not msgspec.UNSET:
        tags = _merged(former.tags, body.tags)
    if body.commands is not msgspec.UNSET:
        commands = commands_text(checked_commands(body.commands))
    if current is not None and (kind, tags, commands) == (current.type, current.tags, current.commands):
        return current
    return DeviceRecord(
        version=current.version + 1 if current is not None else 1,
        changed_ms=now_ms,
        changed_by=edit.who,
        type=kind,
        tags=tags,
        commands=commands,
    )


def _merged(former: dict[str, str], change: dict[str, str | None] | None) -> dict[str, str]:
    if change is None:
        return {}
    merged = {name: value for name, value in former.items() if name not in change}
    for name, value in change.items():
        if _checked(name, "tag") in FIELDS:
            raise Poison("malformed", f"tag {name}: this name is a field of every device; choose another")
        if value:
            merged[name] = _checked(value, f"tag {name}")
    if len(merged) > MAX_TAGS:
        raise Poison("malformed", f"tags: a device may have {MAX_TAGS}")
    return dict(sorted(merged.items()))


def checked_commands(commands: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the schemas of a device's commands. Raises `Poison`, which names the command."""
    if commands is None:
        return None
    if len(commands) > MAX_COMMANDS:
        raise Poison("malformed", f"commands: a device may have {MAX_COMMANDS}")
    for name, schema in commands.items():
        check_schema(check_name(name), schema)
    if len(msgspec.json.encode(commands)) > MAX_SCHEMAS_BYTES:
        raise Poison("malformed", f"commands: the schemas of a device may have {MAX_SCHEMAS_BYTES} bytes")
    return commands


def _checked(text: str, what: str) -> str:
    if not _NAME.fullmatch(text):
        raise Poison("malformed", f"{what} {shown(text)} is not 1 to 64 of A-Z a-z 0-9 . _ : -, a letter or digit first")
    return text
