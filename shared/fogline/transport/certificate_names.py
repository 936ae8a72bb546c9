"""Names in certificates, as both sides read them, and those that Fogline's authority writes."""

from collections.abc import Mapping
from typing import Final, NamedTuple

DEVICE_ROLE: Final = "device"
"""The role of a device, as organizational unit of its certificate's subject."""


class CertificateNames(NamedTuple):
    """The names in a verified certificate by attribute, for example `commonName`. One that occurs twice is left out."""

    subject: Mapping[str, str]
    issuer: Mapping[str, str]


def authority_name(tenant: str) -> str:
    """Return the common name of the authority that `fogline ca init` makes."""
    return f"Fogline {tenant}"
