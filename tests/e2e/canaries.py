"""Canaries: secrets that a test knows, and the search for them in whatever a process writes or shows."""

import base64
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

SCALAR_BYTES = 32
LOOK_S = 0.02
OURS = (b"fogline", b"spark")


def forms(secret: bytes) -> set[bytes]:
    """The secret as it is, in hexadecimal digits, and in base64 wherever in a longer text it stands."""
    found = {secret, secret.hex().encode(), secret.hex().upper().encode()}
    for before in range(3):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            whole = encode(bytes(before) + secret)
            found.add(whole[4 if before else 0 : -4])  # the ends depend on the neighbours
    return found


class Canaries:
    """The secrets of a test by name. Several threads may search."""

    def __init__(self) -> None:
        self._needles: dict[bytes, str] = {}

    def plant(self, name: str, secret: str | bytes) -> None:
        """Look for a password, a token, or the bytes of a key from now on."""
        raw = secret.encode() if isinstance(secret, str) else secret
        self._needles.update(dict.fromkeys(forms(raw), name))

    def plant_key(self, name: str, pem: bytes) -> None:
        """Look for a private key from now on: for its secret number, and for the lines of its file that have parts of it."""
        key = load_pem_private_key(pem[pem.index(b"-----BEGIN PRIVATE KEY") :], None)
        assert isinstance(key, EllipticCurvePrivateKey)
        self.plant(name, key.private_numbers().private_value.to_bytes(SCALAR_BYTES, "big"))
        lines = pem.partition(b"-----BEGIN PRIVATE KEY-----\n")[2].splitlines()
        self._needles.update(dict.fromkeys(lines[:2], name))

    def found(self, data: bytes) -> set[str]:
        """The names of the secrets that are in `data`."""
        return {name for needle, name in tuple(self._needles.items()) if needle in data}

    def names(self) -> set[str]:
        return set(self._needles.values())

    def in_files(self, folder: Path, but: Iterable[Path] = ()) -> dict[str, set[str]]:
        """The secrets in each file of a folder that has some."""
        passed = {each.resolve() for each in but}
        files = [each for each in folder.rglob("*") if each.is_file() and each.resolve() not in passed]
        found = {str(each.relative_to(folder)): self.found(each.read_bytes()) for each in files}
        return {file: names for file, names in found.items() if names}


class ProcessWatch(threading.Thread):
    """Reads the command line of every process, and the environment of ours, again and again, as `ps` does."""

    def __init__(self, canaries: Canaries) -> None:
        super().__init__(name="process watch", daemon=True)
        self.shown: dict[bytes, set[str]] = {}
        self.commands: set[bytes] = set()
        self._canaries = canaries
        self._over = threading.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        while not self._over.wait(LOOK_S):
            for process in Path("/proc").glob("[0-9]*"):
                self._look(process)

    def _look(self, process: Path) -> None:
        try:
            command = (process / "cmdline").read_bytes()
            environment = (process / "environ").read_bytes() if any(each in command for each in OURS) else b""
        except OSError:  # it has ended
            return
        self.commands.add(command)
        if names := self._canaries.found(command + b"\0" + environment):
            self.shown[command] = names
