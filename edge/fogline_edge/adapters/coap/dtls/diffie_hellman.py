"""Ephemeral Diffie-Hellman on x25519 or secp256r1 (RFC 8422)."""

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

X25519 = 29
SECP256R1 = 23
GROUPS = (X25519, SECP256R1)
"""Groups that the gateway knows, the preferred one first."""


class EphemeralKey:
    """A key for one handshake."""

    def __init__(self, group: int) -> None:
        self.group = group
        self._key = X25519PrivateKey.generate() if group == X25519 else ec.generate_private_key(ec.SECP256R1())

    @property
    def public(self) -> bytes:
        """The public key as it is sent."""
        public = self._key.public_key()
        if isinstance(public, X25519PublicKey):
            return public.public_bytes_raw()
        return public.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)

    def agree(self, peer: bytes) -> bytes:
        """Return the secret shared with the owner of a public key. Raises `ValueError` if that is no valid key."""
        if isinstance(self._key, X25519PrivateKey):
            return self._key.exchange(X25519PublicKey.from_public_bytes(peer))
        return self._key.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), peer))
