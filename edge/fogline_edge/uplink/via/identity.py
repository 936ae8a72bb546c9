"""The gateway's key and certificate, and the authority of its bridges, as files that may be replaced while it runs."""

from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from fogline.errors import Misconfigured, Poison
from fogline.gateway.message_signature import GatewayName, MessageSigner
from fogline.gateway.shown_certificate import SERVER_AUTH, AuthorityCertificates, certificates_in
from fogline.process.files.tls_files import TlsSettings, check_private

BRIDGE_ROLE = "bridge"
"""The organizational unit of a bridge's certificate, as `fogline ca issue bridge` writes it."""


class GatewayIdentity:
    """Shows and proves who a gateway is, and knows a bridge of its tenant. Raises `Misconfigured`."""

    def __init__(self, name: GatewayName, tls: TlsSettings | None) -> None:
        if tls is None or tls.certificate is None or tls.key is None:
            raise Misconfigured("[uplink.via] needs [uplink.tls] with `certificate` and `key`: by them messages are signed")
        check_private(tls.key, "uplink.tls.key")
        try:
            key, certificate, authorities = (Path(each).read_bytes() for each in (tls.key, tls.certificate, tls.ca))
        except OSError as error:
            raise Misconfigured(f"uplink.tls: cannot read {error.filename}: {error.strerror}") from None
        self.name = name
        self.certificate = certificates_in(certificate)
        self.signer = MessageSigner.of_pem(key)
        self._authorities = AuthorityCertificates(authorities)

    def bridge_key(self, shown: object) -> Any:
        """Return the public key of a bridge of this tenant, by the certificate that it shows. Raises `Poison`."""
        found = self._authorities.check(shown, SERVER_AUTH, datetime.now(UTC))
        tenant, role = _value(found, "ORGANIZATION_NAME"), _value(found, "ORGANIZATIONAL_UNIT_NAME")
        if role != BRIDGE_ROLE or tenant != self.name.tenant:
            raise Poison("not-authorised", f"its certificate is not that of a bridge of tenant {self.name.tenant}")
        return found.public_key()


def _value(certificate: Any, oid: str) -> str:
    found = certificate.subject.get_attributes_for_oid(getattr(import_module("cryptography.x509.oid").NameOID, oid))
    return str(found[0].value) if len(found) == 1 else ""
