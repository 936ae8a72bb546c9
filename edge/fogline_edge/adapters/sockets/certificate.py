"""The device that a client's certificate names: pure."""

from fogline.address import shown
from fogline.errors import Poison
from fogline.transport.certificate_names import DEVICE_ROLE, CertificateNames, authority_name


def certified_device(names: CertificateNames, tenant: str) -> str:
    """Return the common name of a verified certificate, as a user name. Raises `Poison` (`foreign-tenant`, `not-authorised`).

    A certificate of Fogline's authority must be a device's. Other authorities know no such roles: all theirs are devices'.
    """
    name, of = names.subject.get("commonName", ""), names.subject.get("organizationName", "")
    if names.issuer.get("commonName") == authority_name(names.issuer.get("organizationName", "")):
        if of != tenant:
            raise Poison("foreign-tenant", f"the certificate of {shown(name)} is of tenant {shown(of)}")
        if (role := names.subject.get("organizationalUnitName", "")) != DEVICE_ROLE:
            raise Poison("not-authorised", f"the certificate of {shown(name)} is for role {shown(role)}, no {DEVICE_ROLE}")
    return name
