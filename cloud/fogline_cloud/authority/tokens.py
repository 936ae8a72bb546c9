"""One-time tokens for enrolment: `tokens.jsonl` in the authority's folder has a line for each change, and no secrets."""

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from fogline.enrolment import EnrolmentToken
from fogline_cloud.authority.append_log import append_line, read_lines

LOG = "tokens.jsonl"


class Made(msgspec.Struct, frozen=True, tag="made", tag_field="change"):
    """A token was made for a gateway. `digest`: SHA-256 of its secret. `hosts`: names and addresses of its certificate."""

    gateway: str
    digest: str
    expires: datetime
    hosts: Sequence[str] = ()


class Used(msgspec.Struct, frozen=True, tag="used", tag_field="change"):
    """A token was used."""

    digest: str


_decode = msgspec.json.Decoder(Made | Used).decode


class Tokens:
    """The tokens of an authority."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOG

    def make(
        self, tenant: str, gateway: str, ca: bytes, now: datetime, minutes: float, *, hosts: Sequence[str] = ()
    ) -> EnrolmentToken:
        """Return a new token. `hosts`: see `Subject`. Raises `OSError`."""
        token = EnrolmentToken(tenant, gateway, secrets.token_urlsafe(32), ca)
        expires = now + timedelta(minutes=minutes)
        append_line(self._path, msgspec.json.encode(Made(gateway, _digest(token.secret), expires, hosts)))
        return token

    def doubt(self, gateway: str, secret: str, now: datetime) -> str | None:
        """Return the reason why a secret does not count; None if it is that of a token which was not used yet."""
        digest, found, used = _digest(secret), None, False
        for change in self._changes():
            if hmac.compare_digest(change.digest, digest):
                found, used = (change, False) if isinstance(change, Made) else (found, True)
        if found is None or found.gateway != gateway:
            return "no such token"
        if used:
            return "the token was used already"
        return f"the token has expired at {found.expires:%Y-%m-%d %H:%M} UTC" if found.expires <= now else None

    def use(self, secret: str) -> Sequence[str]:
        """Note that a token was used. Returns the hosts that it was made for. Raises `OSError`."""
        digest = _digest(secret)
        append_line(self._path, msgspec.json.encode(Used(digest)))
        return next((each.hosts for each in self._changes() if isinstance(each, Made) and each.digest == digest), ())

    def _changes(self) -> list[Made | Used]:
        return [_decode(line) for line in read_lines(self._path)]


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
