"""The password file: a line `name:scrypt:SALT:HASH` for each user, in hexadecimal digits (scrypt, RFC 7914)."""

import asyncio
import hashlib
import hmac
import logging
import re
import secrets
from collections.abc import Callable
from typing import Final

from fogline.address import is_identifier
from fogline.amqp.login import Login, LoginVerdict
from fogline.errors import Misconfigured, SlowDown
from fogline.process.files.tls_files import ReadAgain, check_private
from fogline.process.files.user_file import read_text
from fogline.process.log_throttle import LogThrottle
from fogline.process.login_turns import LoginTurns

_COST: Final = {"n": 2**14, "r": 8, "p": 1}
_NOBODY: Final = (b"nobody", b"")
UserHash = tuple[bytes, bytes]
"""Salt and hash of a user."""
_log = logging.getLogger("fogline.bridge.passwords")
_log.addFilter(LogThrottle(variable=re.compile(r"at \S+")))


def password_line(name: str, password: str) -> str:
    """Return the line of a user. Raises `Misconfigured` for a name that is no identifier."""
    if not is_identifier(name):
        raise Misconfigured(f"user {name!r}: expected up to 64 letters, digits, and . _ : -")
    salt = secrets.token_bytes(16)
    return f"{name}:scrypt:{salt.hex()}:{_hash(password, salt).hex()}"


def read_passwords(path: str) -> dict[str, UserHash]:
    """Return salt and hash of each user. Raises `Misconfigured`."""
    lines = read_text(path, "bridge.users", "Make it by its first user: fogline user set NAME").splitlines()
    check_private(path, "bridge.users")
    found: dict[str, UserHash] = {}
    for number, line in enumerate(lines, 1):
        if not line or line.startswith("#"):
            continue
        try:
            name, kind, salt, digest = line.split(":")
            found[name] = bytes.fromhex(salt), bytes.fromhex(digest)
        except ValueError:
            kind = ""
        if kind != "scrypt":
            raise Misconfigured(f"bridge.users: {path}:{number}: expected a line of `fogline user set`")
    return found


class Passwords:
    """Checks passwords on another thread, one at a time: each takes some 50 ms of a CPU. Addresses take turns.

    The file is read again when it changes.
    """

    def __init__(self, path: str) -> None:
        self._known = ReadAgain(lambda: read_passwords(path), [path])
        self._turns = LoginTurns(1)
        self._waiting: set[asyncio.Task[None]] = set()

    def of(self, user: str) -> UserHash | None:
        """Return salt and hash of a user as the file has them now."""
        return self._known.get().get(user)

    def check(
        self,
        login: Login,
        address: str,
        answer: Callable[[LoginVerdict], None],
        proven: Callable[[UserHash], None] = lambda _: None,
    ) -> None:
        """Call `answer` with the verdict. An unknown name takes as long as a wrong password.

        Of a right password, `proven` gets before what it was compared with.
        """
        task = asyncio.create_task(self._check(login, address, answer, proven), name="password check")
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    async def _check(
        self,
        login: Login,
        address: str,
        answer: Callable[[LoginVerdict], None],
        proven: Callable[[UserHash], None],
    ) -> None:
        try:
            async with self._turns.turn(address):
                user = salt, digest = self.of(login.user) or _NOBODY
                found = await asyncio.to_thread(_hash, login.password, salt)
        except SlowDown as error:
            _log.warning("a password is not checked for a client at %s: %s", address, error)
            answer(LoginVerdict.BUSY)
            return
        is_right = hmac.compare_digest(found, digest)
        if is_right:
            proven(user)
        answer(LoginVerdict.ACCEPTED if is_right else LoginVerdict.REFUSED)


def _hash(password: str, salt: bytes) -> bytes:
    return hashlib.scrypt(password.encode("utf-8", "surrogatepass"), salt=salt, dklen=32, **_COST)
