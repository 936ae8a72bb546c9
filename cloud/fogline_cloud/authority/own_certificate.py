"""Checks the certificate of the bridge itself: a bridge with an ended or revoked one serves nobody."""

from pathlib import Path

from cryptography import x509

from fogline.process.checkup import certificate_problem
from fogline_cloud.authority.revocation import read_revocation_list
from fogline_cloud.settings import CloudSettings

_REMEDY = "Make a new one: fogline ca issue bridge"


def own_certificate_problems(settings: CloudSettings) -> list[str]:
    """Return why the certificate of `[bridge.tls]` cannot be used now. Raises `Misconfigured` for an unreadable CRL."""
    tls, key = settings.bridge.tls, "bridge.tls.certificate"
    if tls is None or tls.certificate is None:
        return []
    if why := certificate_problem(tls.certificate, key):
        return [f"{why}. {_REMEDY}"]
    if settings.bridge.crl is not None and tls.ca is not None:
        certificate = x509.load_pem_x509_certificate(Path(tls.certificate).read_bytes())
        if read_revocation_list(settings.bridge.crl, tls.ca).revokes(certificate):
            return [f"{key} = {tls.certificate}: the certificate is revoked. {_REMEDY}"]
    return []
