"""The password file of `mosquitto_passwd`: `name:$7$iterations$salt$hash` (PBKDF2-HMAC-SHA512, base64)."""

import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass
from pathlib import Path

from fogline.address import device_identifier
from fogline.errors import Misconfigured, Poison
from fogline.process.files.user_file import read_text

_HASH_BYTES = 64
_MAX_ITERATIONS = 10_000_000
_REMAKE = "create it again with: mosquitto_passwd -H sha512-pbkdf2"


@dataclass(frozen=True, slots=True)
class UserSecret:
    """What the password of a user is compared with."""

    iterations: int
    salt: bytes
    hash: bytes

    def matches(self, password: bytes) -> bool:
        """Return True if this is the password. It is slow on purpose."""
        found = hashlib.pbkdf2_hmac("sha512", password, self.salt, self.iterations, _HASH_BYTES)
        return hmac.compare_digest(found, self.hash)


class Users:
    """The users that may log in."""

    def __init__(self, secrets: dict[str, UserSecret]) -> None:
        self._secrets = secrets
        slowest = max((each.iterations for each in secrets.values()), default=1)
        self._nobody = UserSecret(slowest, b"nobody", bytes(_HASH_BYTES))

    def secret_of(self, name: str) -> UserSecret | None:
        """Return what the password of a user is compared with; None for an unknown one."""
        return self._secrets.get(name) or self._secrets.get(name.rpartition("@")[0])

    def verify(self, name: str, password: bytes) -> bool:
        """Return True if this is the password of `name`, written `device` or `device@tenant`.

        The function is slow on purpose: call it in a thread. An unknown name takes as long as a known one.
        """
        secret = self.secret_of(name)
        return (secret or self._nobody).matches(password) and secret is not None


def load_users(path: Path, setting: str) -> Users:
    """Read the file that `setting` names. Raises `Misconfigured` with the line number."""
    secrets: dict[str, UserSecret] = {}
    for number, line in enumerate(read_text(path, setting).splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        where = f"{path}, line {number}"
        name, colon, secret = line.strip().partition(":")
        if not colon:
            raise Misconfigured(f"{where}: expected name:hash, as mosquitto_passwd writes it")
        try:
            device_identifier(name.rpartition("@")[0] if "@" in name else name, "user")
        except Poison as error:
            raise Misconfigured(f"{where}: {error}") from None
        if name in secrets:
            raise Misconfigured(f"{where}: {name} occurs twice")
        secrets[name] = _secret(secret, where)
    if not secrets:
        raise Misconfigured(
            f"{setting} = {str(path)!r}: the file has no user. Add one: mosquitto_passwd -H sha512-pbkdf2 {path} NAME"
        )
    return Users(secrets)


def _secret(text: str, where: str) -> UserSecret:
    match text.split("$"):
        case ["", "7", iterations, salt, hashed]:
            try:
                secret = UserSecret(int(iterations), *(base64.b64decode(each, validate=True) for each in (salt, hashed)))
            except (binascii.Error, ValueError):
                secret = UserSecret(0, b"", b"")
            if not 1 <= secret.iterations <= _MAX_ITERATIONS or not secret.salt or len(secret.hash) != _HASH_BYTES:
                raise Misconfigured(f"{where}: the hash is unreadable; {_REMAKE}")
            return secret
        case ["", "6", *_]:
            raise Misconfigured(f"{where}: $6$ hashes are too easy to guess, and are not accepted; {_REMAKE}")
    raise Misconfigured(f"{where}: this is not a $7$ hash; {_REMAKE}")
