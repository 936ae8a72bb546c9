"""One-time tokens for enrolment: `tokens.jsonl` in the authority's folder has a line for each change, and no secrets."""

import hashlib
import secrets
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from fogline.documents.document_error import explained
from fogline.errors import Misconfigured
from fogline.gateway.enrolment import EnrolmentToken
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
    """The tokens of an authority, in memory as they are in the file, which several processes may use.

    Call `doubt` on one thread.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOG
        self._known = _KnownTokens()
        self._read_bytes = self._inode = 0

    def make(
        self, tenant: str, gateway: str, ca: bytes, now: datetime, minutes: float, *, hosts: Sequence[str] = ()
    ) -> EnrolmentToken:
        """Return a new token. `hosts`: see `Subject`. Raises `OSError`."""
        token = EnrolmentToken(tenant, gateway, secrets.token_urlsafe(32), ca)
        expires = now + timedelta(minutes=minutes)
        append_line(self._path, msgspec.json.encode(Made(gateway, _digest(token.secret), expires, hosts)))
        return token

    def doubt(self, gateway: str, secret: str, now: datetime) -> str | None:
        """Return the reason why a secret does not count; None if it is that of a token which was not used yet.

        It reads what was appended to the file since the last call. Raises `Misconfigured` if that cannot be read.
        """
        lines, self._read_bytes = self._new_lines()
        self._known.read(lines, self._path)
        return self._known.doubt(gateway, _digest(secret), now)

    def use(self, gateway: str, secret: str, now: datetime) -> Sequence[str]:
        """Note that a token was used, once for all processes. Returns the hosts that it was made for.

        Raises `Misconfigured` if it does not count (see `doubt`), and `OSError`.
        """
        digest, known = _digest(secret), _KnownTokens()

        def check(lines: Iterable[bytes]) -> None:
            known.read(lines, self._path)
            if (why := known.doubt(gateway, digest, now)) is not None:
                raise Misconfigured(why)

        append_line(self._path, msgspec.json.encode(Used(digest)), check)
        return known.made[digest].hosts

    def _new_lines(self) -> tuple[list[bytes], int]:
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return [], 0
        if found.st_size < self._read_bytes or found.st_ino != self._inode:  # another file has taken the former one's place
            self._known, self._read_bytes, self._inode = _KnownTokens(), 0, found.st_ino
        return read_lines(self._path, self._read_bytes) if found.st_size > self._read_bytes else ([], self._read_bytes)


class _KnownTokens:
    """The state of each token, by the digest of its secret."""

    def __init__(self) -> None:
        self.made: dict[str, Made] = {}
        self._used: set[str] = set()

    def read(self, lines: Iterable[bytes], path: Path) -> None:
        """Take changes in order. Raises `Misconfigured`."""
        for line in lines:
            try:
                change = _decode(line)
            except msgspec.DecodeError as error:
                raise Misconfigured(f"{path}: cannot be read: {explained(error, Made | Used)}") from None
            if isinstance(change, Made):
                self.made[change.digest] = change
            else:
                self._used.add(change.digest)

    def doubt(self, gateway: str, digest: str, now: datetime) -> str | None:
        """See `Tokens.doubt`."""
        found = self.made.get(digest)
        if found is None or found.gateway != gateway:
            return "no such token"
        if digest in self._used:
            return "the token was used already"
        return f"the token has expired at {found.expires:%Y-%m-%d %H:%M} UTC" if found.expires <= now else None


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
