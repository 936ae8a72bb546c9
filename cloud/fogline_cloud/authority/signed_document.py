"""Documents that the service has signed: JSON Web Signatures (RFC 7515, compact), with the signer's certificate in the header.

Whoever has the authority's certificate (`ca.pem`) can check them, with `read_signed` or with another library for RFC 7515. The
header has the certificate (`x5c`), the kind of document (`typ`) and the time of the signature (`iat`). Only a certificate of
the role `bridge` counts: a gateway or a device must not vouch for itself.
"""

from base64 import b64decode, b64encode
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from jwt import PyJWS
from jwt.exceptions import PyJWTError

from fogline.errors import Misconfigured, Poison
from fogline.process.files.tls_files import check_private
from fogline_cloud.authority.certificates import Role, subject_of
from fogline_cloud.authority.revocation import RevocationList

MAX_BYTES = 16 << 20
"""Largest size of a signed document."""
_ALGORITHM = "ES256"


class DocumentSigner(msgspec.Struct, frozen=True):
    """A certificate of the role `bridge`, and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


class SignedDocument(msgspec.Struct, frozen=True):
    """A document whose signature is right. `signer`: the name in the certificate. `signed`: when the signer says it was."""

    body: bytes
    tenant: str
    signer: str
    signed: datetime


def read_signer(certificate: str, key: str) -> DocumentSigner:
    """Read the certificate and the key of the service (PEM). Raises `Misconfigured`."""
    check_private(key, "the key that signs")
    try:
        found = x509.load_pem_x509_certificate(Path(certificate).read_bytes())  # the first one is the service's own
        private = load_pem_private_key(Path(key).read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as error:
        raise Misconfigured(f"cannot read {certificate} with {key}: {error}") from None
    subject = subject_of(found)
    if subject is None or subject.role is not Role.BRIDGE or not isinstance(private, ec.EllipticCurvePrivateKey):
        raise Misconfigured(f"{certificate}: expected a certificate of `fogline ca issue bridge`: only such a one may sign")
    if private.public_key() != found.public_key():
        raise Misconfigured(f"{key} is not the key of {certificate}")
    return DocumentSigner(found, private)


def sign(body: bytes, kind: str, signer: DocumentSigner, now: datetime) -> str:
    """Return a signed document of a kind, as one line of ASCII."""
    certificate = b64encode(signer.certificate.public_bytes(Encoding.DER)).decode()
    headers = {"typ": kind, "iat": int(now.timestamp()), "x5c": [certificate]}
    return PyJWS().encode(body, signer.key, _ALGORITHM, headers)


def read_signed(
    text: str, kind: str, authorities: Sequence[x509.Certificate], revoked: RevocationList | None = None
) -> SignedDocument:
    """Return a document that a service of one of these authorities has signed. Raises `Poison`, which says what is wrong.

    `revoked`: the authority's list. A document of a revoked certificate is refused, whatever its time: who has the key of the
    service can write any time into it.
    """
    header, certificate = _header(text)
    if header.get("typ") != kind:
        raise Poison("kind", f"this is not a {kind} but {str(header.get('typ'))[:80]!r}")
    if not any(_has_issued(authority, certificate) for authority in authorities):
        raise Poison("issuer", "no authority of the given file has issued the certificate of the signer")
    subject = subject_of(certificate)
    if subject is None or subject.role is not Role.BRIDGE:
        raise Poison("role", f"it is signed by {subject or 'somebody'}, who may not sign: only a bridge's certificate may")
    if revoked is not None and revoked.revokes(certificate):
        raise Poison("revoked", f"the certificate of the signer, {subject}, is revoked: ask for a new document")
    try:
        key: Any = certificate.public_key()
        body = PyJWS().decode_complete(text, key, algorithms=[_ALGORITHM])["payload"]
    except (PyJWTError, ValueError, TypeError):
        raise Poison("signature", "the signature is wrong: the document was changed after it was signed") from None
    signed = datetime.fromtimestamp(header["iat"], UTC)
    if not certificate.not_valid_before_utc <= signed <= certificate.not_valid_after_utc:
        raise Poison("time", f"it was signed at {signed:%Y-%m-%d %H:%M} UTC, when the certificate of the signer was not valid")
    return SignedDocument(body, subject.tenant, str(subject), signed)


def _header(text: str) -> tuple[dict[str, Any], x509.Certificate]:
    """Return the header, which has a time that a calendar can have, and the certificate in it."""
    if len(text) > MAX_BYTES:
        raise Poison("size", f"it has more than {MAX_BYTES:,} bytes")
    try:
        header = PyJWS().get_unverified_header(text)
        (encoded,) = header["x5c"]
        certificate = x509.load_der_x509_certificate(b64decode(encoded, validate=True))
        datetime.fromtimestamp(int(header["iat"]), UTC)
    except (PyJWTError, ValueError, TypeError, KeyError, OverflowError, OSError, RecursionError):
        raise Poison(
            "form", "this is no signed document: expected a line that `fogline ledger verify --document` has written"
        ) from None
    return {**header, "iat": int(header["iat"])}, certificate


def _has_issued(authority: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True
