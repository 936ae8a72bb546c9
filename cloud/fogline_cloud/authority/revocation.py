"""The list of revoked certificates (CRL, RFC 5280 section 5) as a bridge reads it."""

from datetime import datetime
from pathlib import Path

import msgspec
from cryptography import x509

from fogline.errors import Misconfigured


class RevocationList(msgspec.Struct, frozen=True):
    """The newest list of each issuer. An issuer without a list cannot be trusted."""

    lists: dict[x509.Name, x509.CertificateRevocationList]

    def doubt(self, certificate: x509.Certificate, now: datetime) -> str | None:
        """Return the reason why a certificate is refused; None if it is not revoked."""
        found = self.lists.get(certificate.issuer)
        if found is None:
            return "there is no list of revoked certificates of its issuer"
        if found.get_revoked_certificate_by_serial_number(certificate.serial_number) is not None:
            return "it is revoked"
        if found.next_update_utc is not None and found.next_update_utc <= now:
            return f"the list of revoked certificates is out of date since {found.next_update_utc:%Y-%m-%d %H:%M} UTC"
        return None

    def is_newer_than(self, other: "RevocationList") -> bool:
        """Return True if this has a newer list of some issuer, and an older one of none."""
        numbers = {issuer: _number(each) for issuer, each in self.lists.items()}
        theirs = {issuer: _number(each) for issuer, each in other.lists.items()}
        return numbers != theirs and all(numbers.get(issuer, -1) >= number for issuer, number in theirs.items())

    def revokes(self, certificate: x509.Certificate) -> bool:
        """Return True if the list names a certificate, however old the list is."""
        found = self.lists.get(certificate.issuer)
        return found is not None and found.get_revoked_certificate_by_serial_number(certificate.serial_number) is not None


def read_revocation_list(path: str, ca: str, former: RevocationList | None = None) -> RevocationList:
    """Return the lists in the file `path` (PEM), which the authorities in the file `ca` must have signed.

    Raises `Misconfigured`, also for a list that is older than that in `former`.
    """
    try:
        authorities = x509.load_pem_x509_certificates(Path(ca).read_bytes())
        lists = [x509.load_pem_x509_crl(each) for each in _blocks(Path(path).read_bytes())]
    except (OSError, ValueError) as error:
        raise Misconfigured(f"bridge.crl: cannot read {path} with {ca}: {error}") from None
    found: dict[x509.Name, x509.CertificateRevocationList] = {}
    for each in lists:
        if not any(_has_signed(authority, each) for authority in authorities):
            raise Misconfigured(
                f"bridge.crl: {path}: no authority in {ca} has signed the list of {each.issuer.rfc4514_string()}"
            )
        if each.issuer not in found or _number(each) > _number(found[each.issuer]):
            found[each.issuer] = each
    for issuer, old in former.lists.items() if former is not None else ():
        if issuer not in found or _number(found[issuer]) < _number(old):
            raise Misconfigured(f"bridge.crl: {path}: the list is older than number {_number(old)}, which is in use")
    return RevocationList(found)


def _number(each: x509.CertificateRevocationList) -> int:
    try:
        return each.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
    except x509.ExtensionNotFound:
        return 0


def _has_signed(authority: x509.Certificate, each: x509.CertificateRevocationList) -> bool:
    return authority.subject == each.issuer and each.is_signature_valid(authority.public_key())  # type: ignore[arg-type]


def _blocks(text: bytes) -> list[bytes]:
    end = b"-----END X509 CRL-----"
    return [part + end for part in text.split(end)[:-1]]
