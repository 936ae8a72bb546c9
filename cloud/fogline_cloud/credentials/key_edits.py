"""Changes to the keys of a device that an operator asks for, from the JSON of a message. Pure.

The sender makes the key. So a copy of the message changes nothing, and no answer carries a secret.
"""

from typing import Annotated

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from fogline.address import shown
from fogline.documents.json_document import read_document
from fogline.errors import Poison
from fogline.gateway.device_credentials import (
    MAX_DEVICE_ID,
    MAX_ENDED,
    MAX_IDENTITY,
    MAX_KEYS,
    MIN_DEVICE_ID,
    DeviceKey,
    EndedKey,
    OscoreKey,
    PskKey,
    key_name,
)
from fogline_cloud.credentials.credential_record import CredentialRecord

ADD = "add-key"
ROTATE = "rotate-key"
REVOKE = "revoke-keys"
KEY_ACTIONS = (ADD, ROTATE, REVOKE)
MAX_OVERLAP_S = 366 * 86_400
"""Longest time for which a former key counts beside the new one."""


class NewPsk(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="psk", forbid_unknown_fields=True):
    """A pre-shared key to add. `identity`: the device's name, or that with `/` and more, so that no two devices share one."""

    identity: Annotated[str, Meta(min_length=1, max_length=MAX_IDENTITY, pattern=r"\A[A-Za-z0-9._:/-]+\Z")]
    key: Annotated[bytes, Meta(min_length=16, max_length=64)]

    def __repr__(self) -> str:
        return f"NewPsk({self.identity!r})"


class NewOscore(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="oscore", forbid_unknown_fields=True):
    """The input of an OSCORE context to add. `device_id`: the device's Sender ID."""

    device_id: Annotated[bytes, Meta(min_length=MIN_DEVICE_ID, max_length=MAX_DEVICE_ID)]
    secret: Annotated[bytes, Meta(min_length=16, max_length=64)]
    salt: Annotated[bytes, Meta(max_length=32)] = b""

    def __repr__(self) -> str:
        return f"NewOscore({self.device_id.hex()})"


NewKey = NewPsk | NewOscore


class KeyBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `add-key` and `rotate-key`. `overlap_s`: how long the former keys of its kind count still."""

    key: NewKey
    overlap_s: Annotated[int, Meta(ge=0, le=MAX_OVERLAP_S)] = 0


class RevokeBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `revoke-keys`. `number`: of one key; None: all. `unprotect`: the device needs no protection any more."""

    number: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    unprotect: bool = False


class KeyEdit(msgspec.Struct, frozen=True):
    """A change to the keys of one device, and who asks for it."""

    device: str
    action: str
    who: str
    body: bytes

    def __repr__(self) -> str:
        return f"KeyEdit({self.device!r}, {self.action!r}, {self.who!r})"


def check_key_edit(edit: KeyEdit) -> KeyBody | RevokeBody:
    """Return the body of a change. Raises `Poison('malformed')`, which repeats no secret."""
    if edit.action == REVOKE:
        revoke = read_document(edit.body, RevokeBody, "the request to revoke")
        if revoke.unprotect and revoke.number is not None:
            raise Poison("malformed", "a device becomes unprotected only if all of its keys are revoked")
        return revoke
    if edit.action not in KEY_ACTIONS:
        raise Poison("malformed", f"{shown(edit.action)} is not an action for keys: {', '.join(KEY_ACTIONS)}")
    body = read_document(edit.body, KeyBody, "the new key")
    if isinstance(body.key, NewPsk) and body.key.identity.partition("/")[0] != edit.device:
        raise Poison("malformed", f"the identity of a key is {edit.device}, or {edit.device}/ and more")
    return body


def apply_key_edit(edit: KeyEdit, current: CredentialRecord | None, now_ms: int) -> CredentialRecord | None:
    """Return the record after a change: `current` itself if nothing changes, None if the device is unprotected again.

    Raises `Poison`.
    """
    body = check_key_edit(edit)
    if isinstance(body, RevokeBody):
        return _revoke(edit, body, current, now_ms)
    known = current.keys if current is not None else []
    last = current.last if current is not None else 0
    if any(_is_same(each, body.key) for each in known):
        return current
    live = [each for each in known if each.valid_at(now_ms)]
    if edit.action == ROTATE:
        live = _superseded(edit, body, live, now_ms)
    if isinstance(body.key, NewPsk) and any(isinstance(each, PskKey) and each.identity == body.key.identity for each in live):
        raise Poison("malformed", f"identity {body.key.identity} is in use: choose another, or rotate the key")
    if len(live) >= MAX_KEYS:
        raise Poison("malformed", f"a device may have {MAX_KEYS} keys: revoke one")
    return _record(edit, current, now_ms, [*live, _numbered(body.key, last + 1)], last + 1)


def described(record: CredentialRecord | None) -> str:
    """Return the keys of a record in words for the audit, without a secret."""
    if record is None:
        return "unprotected"
    keys = (f"{each.number} {' '.join(key_name(each))}" for each in record.keys)
    return f"version {record.version}, keys: {', '.join(keys) or 'none'}"


def _superseded(edit: KeyEdit, body: KeyBody, live: list[DeviceKey], now_ms: int) -> list[DeviceKey]:
    """Return the keys, with the end of those that the new one replaces."""
    kind = PskKey if isinstance(body.key, NewPsk) else OscoreKey
    if not any(isinstance(each, kind) for each in live):
        raise Poison("malformed", f"device {edit.device} has no key of this kind to rotate: add one")
    until_ms = now_ms + body.overlap_s * 1000
    kept: list[DeviceKey] = []
    for each in live:
        if not isinstance(each, kind):
            kept.append(each)
        elif body.overlap_s:
            kept.append(replace(each, until_ms=min(each.until_ms or until_ms, until_ms)))
    return kept


def _revoke(edit: KeyEdit, body: RevokeBody, current: CredentialRecord | None, now_ms: int) -> CredentialRecord | None:
    if current is None:
        if body.unprotect:
            return None  # a copy of the message
        raise Poison("unknown-key", f"device {edit.device} has no key")
    if body.unprotect:
        return None
    if body.number is not None and body.number > current.last:
        raise Poison("unknown-key", f"device {edit.device} has no key {body.number}")
    kept = [] if body.number is None else [each for each in current.keys if each.number != body.number]
    if kept == current.keys:
        return current
    return _record(edit, current, now_ms, kept, current.last)


def _record(edit: KeyEdit, current: CredentialRecord | None, now_ms: int, keys: list[DeviceKey], last: int) -> CredentialRecord:
    version, ended = 1, list[EndedKey]()
    if current is not None:
        kept = {each.number for each in keys}
        gone = (_ended(each, now_ms) for each in current.keys if each.number not in kept)
        version, ended = current.version + 1, [*current.ended, *gone][-MAX_ENDED:]
    return CredentialRecord(version=version, changed_ms=now_ms, changed_by=edit.who, last=last, keys=keys, ended=ended)


def _ended(key: DeviceKey, now_ms: int) -> EndedKey:
    kind, name = key_name(key)
    return EndedKey(number=key.number, kind=kind, name=name, ended_ms=min(key.until_ms or now_ms, now_ms))


def _numbered(key: NewKey, number: int) -> DeviceKey:
    if isinstance(key, NewPsk):
        return PskKey(number=number, identity=key.identity, key=key.key)
    return OscoreKey(number=number, device_id=key.device_id, secret=key.secret, salt=key.salt)


def _is_same(known: DeviceKey, new: NewKey) -> bool:
    if isinstance(known, PskKey):
        return isinstance(new, NewPsk) and (known.identity, known.key) == (new.identity, new.key)
    return isinstance(new, NewOscore) and (known.device_id, known.secret, known.salt) == (new.device_id, new.secret, new.salt)
