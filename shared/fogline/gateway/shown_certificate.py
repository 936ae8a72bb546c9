"""Checks a certificate that a message shows, as TLS checks one in a handshake (RFC 5280 section 6). Pure.

Names and constraints that Fogline's and common authorities do not use are refused: an extension that is critical and unknown
here, and chains of more than `MAX_CHAIN` certificates.
"""

from collections.abc import Sequence
from datetime import datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from fogline.errors import Misconfigured, Poison

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

MAX_CHAIN: Final = 5
MAX_BYTES: Final = 16 * 1024
"""Limit of the bytes of a chain in PEM."""
CLIENT_AUTH: Final = "1.3.6.1.5.5.7.3.2"
SERVER_AUTH: Final = "1.3.6.1.5.5.7.3.1"
_KNOWN: Final = frozenset({"2.5.29.19", "2.5.29.15", "2.5.29.37", "2.5.29.17", "2.5.29.14", "2.5.29.35"})


class AuthorityCertificates:
    """The authorities whose certificates count. `pem`: their certificates. Raises `Misconfigured`."""

    def __init__(self, pem: bytes) -> None:
        try:
            self._authorities: list[Certificate] = import_module("cryptography.x509").load_pem_x509_certificates(pem)
        except ValueError as error:
            raise Misconfigured(f"no certificates of authorities: {error}") from None

    def check(self, shown: object, usage: str, now: datetime) -> "Certificate":
        """Return the first certificate of a chain in PEM, which the others lead to an authority of.

        `usage`: the extended key usage that it must have, if it names any. Raises `Poison('not-authorised')`.
        """
        if not isinstance(shown, bytes) or not 0 < len(shown) <= MAX_BYTES:
            raise Poison("not-authorised", "it shows no certificate")
        try:
            leaf, *others = import_module("cryptography.x509").load_pem_x509_certificates(shown)
            why = self._doubt(leaf, others, usage, now)
        except ValueError:  # of the library, for anything that is no certificate, or that has an extension twice
            raise Poison("not-authorised", "it shows no readable certificate") from None
        if why is not None:
            raise Poison("not-authorised", f"its certificate: {why}")
        return leaf  # type: ignore[no-any-return]

    def _doubt(self, leaf: "Certificate", others: "Sequence[Certificate]", usage: str, now: datetime) -> str | None:
        usages = _extension(leaf, "2.5.29.37")
        if usages is not None and usage not in {each.dotted_string for each in usages}:
            return "it is for another use"
        current, left = leaf, list(others[:MAX_CHAIN])
        for between in range(MAX_CHAIN):
            if (why := _doubt_alone(current, now)) is not None:
                return why
            if any(_has_issued(each, current, between) and _doubt_alone(each, now) is None for each in self._authorities):
                return None
            issuer = next((each for each in left if _has_issued(each, current, between)), None)
            if issuer is None:
                return "it is of an authority that is not trusted here"
            left.remove(issuer)
            current = issuer
        return "its chain is too long"


def certificates_in(pem: bytes) -> bytes:
    """Return the certificates of a file, to be shown, and nothing else of it: many files have the private key too.

    Raises `Misconfigured`.
    """
    try:
        found: list[Certificate] = import_module("cryptography.x509").load_pem_x509_certificates(pem)
    except ValueError as error:
        raise Misconfigured(f"no certificate to show: {error}") from None
    encoding = import_module("cryptography.hazmat.primitives.serialization").Encoding.PEM
    return b"".join(each.public_bytes(encoding) for each in found)


def _doubt_alone(certificate: "Certificate", now: datetime) -> str | None:
    if now < certificate.not_valid_before_utc:
        return f"it is valid from {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC on"
    if now >= certificate.not_valid_after_utc:
        return f"it has expired at {certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
    unknown = [each.oid.dotted_string for each in certificate.extensions if each.critical]
    if not _KNOWN.issuperset(unknown):
        return "it has an extension that is critical and unknown here"
    return None


def _has_issued(issuer: "Certificate", certificate: "Certificate", between: int) -> bool:
    """Return True if `issuer` may issue certificates and has issued this one. `between`: those below it, but the first."""
    basic, usage = _extension(issuer, "2.5.29.19"), _extension(issuer, "2.5.29.15")
    if basic is None or not basic.ca or (basic.path_length is not None and basic.path_length < between):
        return False
    if usage is not None and not usage.key_cert_sign:
        return False
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, import_module("cryptography.exceptions").InvalidSignature):
        return False
    return True


def _extension(certificate: "Certificate", oid: str) -> Any:
    return next((each.value for each in certificate.extensions if each.oid.dotted_string == oid), None)
