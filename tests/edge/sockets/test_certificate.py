"""The device that a verified certificate names."""

import pytest

from fogline.errors import Poison
from fogline.transport.certificate_names import CertificateNames
from fogline_edge.adapters.sockets.certificate import certified_device

OURS = {"organizationName": "acme", "commonName": "Fogline acme"}
LAMP = {"organizationName": "acme", "organizationalUnitName": "device", "commonName": "lamp-1"}


def test_the_common_name_is_the_device():
    assert certified_device(CertificateNames(LAMP, OURS), "acme") == "lamp-1"


@pytest.mark.parametrize("subject", [{"commonName": "lamp-1"}, {**LAMP, "organizationalUnitName": "gateway"}])
def test_of_another_authority_every_common_name_is_a_device(subject):
    company = {"organizationName": "Example Ltd", "commonName": "Device CA"}
    assert certified_device(CertificateNames(subject, company), "acme") == "lamp-1"


@pytest.mark.parametrize(
    ("subject", "reason"),
    [
        ({**LAMP, "organizationalUnitName": "gateway"}, "not-authorised"),
        ({**LAMP, "organizationalUnitName": "operator"}, "not-authorised"),
        ({**LAMP, "organizationalUnitName": "bridge"}, "not-authorised"),
        ({"organizationName": "acme", "commonName": "lamp-1"}, "not-authorised"),
        ({**LAMP, "organizationName": "other"}, "foreign-tenant"),
    ],
)
def test_of_fogline_s_authority_only_a_device_of_the_tenant_is_one(subject, reason):
    with pytest.raises(Poison) as caught:
        certified_device(CertificateNames(subject, OURS), "acme")
    assert caught.value.reason == reason
