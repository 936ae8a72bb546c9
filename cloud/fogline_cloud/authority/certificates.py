"""Makes the authority's root, the certificates that it issues, and its list of revoked ones (RFC 5280). Without IO."""

import ipaddress
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fogline.errors import Misconfigured
from fogline.transport.certificate_names import DEVICE_ROLE, authority_name

ROOT_DAYS: Final = 3650
EARLY: Final = timedelta(minutes=5)
"""A certificate is valid from so long before now, for clocks that are behind."""
Key = ec.EllipticCurvePrivateKey


class Role(StrEnum):
    """What the owner of a certificate is. It stands in the subject, as organizational unit."""

    GATEWAY = "gateway"
    OPERATOR = "operator"
    BRIDGE = "bridge"
    DEVICE = DEVICE_ROLE


class Subject(msgspec.Struct, frozen=True):
    """The owner of a certificate. `hosts`: names and addresses at which others reach it, if it is a server too."""

    tenant: str
    role: Role
    name: str
    hosts: Sequence[str] = ()

    def __str__(self) -> str:
        return f"{self.role} {self.name}"


class Authority(msgspec.Struct, frozen=True):
    """The root's certificate and its key."""

    certificate: x509.Certificate
    key: Key

    def issue(self, subject: Subject, public_key: ec.EllipticCurvePublicKey, now: datetime, days: float) -> x509.Certificate:
        """Return a certificate for `subject`, which ends no later than the root."""
        usage = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if subject.hosts else [])]
        builder = (
            x509.CertificateBuilder()
            .subject_name(_name(subject))
            .issuer_name(self.certificate.subject)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - EARLY)
            .not_valid_after(min(now + timedelta(days=days), self.certificate.not_valid_after_utc))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usage), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
            .add_extension(_key_identifier(self.certificate), critical=False)
        )
        if subject.hosts:
            names = x509.SubjectAlternativeName([_host(each) for each in subject.hosts])
            builder = builder.add_extension(names, critical=False)
        return builder.sign(self.key, hashes.SHA256())

    def revocation_list(
        self, revoked: Iterable[tuple[int, datetime]], number: int, now: datetime, days: float
    ) -> x509.CertificateRevocationList:
        """Return the signed list of revoked serial numbers and their times, which holds for `days`."""
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self.certificate.subject)
            .last_update(now - EARLY)
            .next_update(now + timedelta(days=days))
            .add_extension(x509.CRLNumber(number), critical=False)
            .add_extension(_key_identifier(self.certificate), critical=False)
        )
        for serial, at in revoked:
            entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(at).build()
            builder = builder.add_revoked_certificate(entry)
        return builder.sign(self.key, hashes.SHA256())


def make_authority(tenant: str, now: datetime) -> Authority:
    """Return a new root with a new key."""
    key = make_key()
    name = x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, tenant), x509.NameAttribute(NameOID.COMMON_NAME, authority_name(tenant))]
    )
    usage = x509.KeyUsage(
        digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - EARLY)
        .not_valid_after(now + timedelta(days=ROOT_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Authority(certificate, key)


def make_key() -> Key:
    """Return a new private key (P-256)."""
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: Key) -> bytes:
    """Return a private key in PEM, not encrypted: its file's mode protects it."""
    kind = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, kind, serialization.NoEncryption())


def pem(thing: x509.Certificate | x509.CertificateRevocationList) -> bytes:
    """Return a certificate or a list in PEM."""
    return thing.public_bytes(serialization.Encoding.PEM)


def subject_of(certificate: x509.Certificate) -> Subject | None:
    """Return the subject of a certificate that this authority could have issued; None for any other's."""

    def value(kind: x509.ObjectIdentifier) -> str:
        found = certificate.subject.get_attributes_for_oid(kind)
        return str(found[0].value) if len(found) == 1 else ""

    tenant, role = value(NameOID.ORGANIZATION_NAME), value(NameOID.ORGANIZATIONAL_UNIT_NAME)
    name = value(NameOID.COMMON_NAME)
    return Subject(tenant, Role(role), name) if tenant and name and role in set(Role) else None


def now_utc() -> datetime:
    """Return the time in whole seconds, as certificates have it."""
    return datetime.now(UTC).replace(microsecond=0)


def check_hosts(hosts: Iterable[str]) -> None:
    """Raise `Misconfigured` if one is neither a host name in ASCII nor an address."""
    for each in hosts:
        _host(each)


def _name(subject: Subject) -> x509.Name:
    kinds = NameOID.ORGANIZATION_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME, NameOID.COMMON_NAME
    values = subject.tenant, subject.role.value, subject.name
    return x509.Name([x509.NameAttribute(kind, value) for kind, value in zip(kinds, values, strict=True)])


def _key_identifier(issuer: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    found = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(found.value)


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        pass
    if not text or not text.isascii():
        raise Misconfigured(f"--host {text!r}: expected a host name in ASCII or an address")
    return x509.DNSName(text)
