"""Seals the keys of devices for Kafka, with AES-256-GCM and a key that only bridges have.

The file of keys has one key a line, 32 bytes in base64. The first one seals, all of them open. So a new key is put first, and
the old one is removed after every device's keys have changed once.
"""

import base64
import binascii
import hashlib
import secrets

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from fogline.errors import Misconfigured, Poison
from fogline.process.files.tls_files import check_private
from fogline.process.files.user_file import read_text

KEY_BYTES = 32
_ID_BYTES = 4
_NONCE_BYTES = 12
_SETTING = "devices.credentials_key"


class Vault:
    """Seals and opens, for one tenant. `keys`: the first one seals."""

    def __init__(self, tenant: str, keys: list[bytes]) -> None:
        self._tenant = tenant
        self._ciphers = {_id_of(each): AESGCM(each) for each in keys}
        self._sealing = _id_of(keys[0])

    def seal(self, device: str, text: bytes) -> bytes:
        """Return the text of a device, sealed. It opens only as this device's."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return self._sealing + nonce + self._ciphers[self._sealing].encrypt(nonce, text, self._place(device))

    def open(self, device: str, sealed: bytes) -> bytes:
        """Return the text of a device. Raises `Poison('sealed')` if it was sealed with another key, or changed."""
        cipher = self._ciphers.get(sealed[:_ID_BYTES])
        if cipher is None:
            raise Poison("sealed", f"the keys of {device} are sealed with a key that the file of {_SETTING} does not have")
        nonce = sealed[_ID_BYTES : _ID_BYTES + _NONCE_BYTES]
        try:
            return cipher.decrypt(nonce, sealed[_ID_BYTES + _NONCE_BYTES :], self._place(device))
        except (InvalidTag, ValueError):
            raise Poison("sealed", f"the sealed keys of {device} were changed, or are another device's") from None

    def _place(self, device: str) -> bytes:
        return f"fogline credentials/{self._tenant}/{device}".encode()


def read_vault(tenant: str, path: str) -> Vault:
    """Return the vault of a file of keys. Raises `Misconfigured`."""
    text = read_text(path, _SETTING, "Make it with: fogline device credentials key")
    check_private(path, _SETTING)
    keys = [_raw(line, path) for line in text.split()]
    if not keys:
        raise Misconfigured(f"{_SETTING}: {path} is empty. Make it with: fogline device credentials key")
    return Vault(tenant, keys)


def make_vault_key() -> str:
    """Return a line for the file of keys."""
    return base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()


def _raw(line: str, path: str) -> bytes:
    try:
        raw = base64.b64decode(line, validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != KEY_BYTES:
        raise Misconfigured(f"{_SETTING}: a line of {path} is not a key of {KEY_BYTES} bytes in base64")
    return raw


def _id_of(key: bytes) -> bytes:
    return hashlib.blake2b(key, digest_size=_ID_BYTES).digest()
