"""A certificate that a message shows counts as it does in a TLS handshake."""

from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fogline.errors import Misconfigured, Poison
from fogline.gateway.shown_certificate import CLIENT_AUTH, SERVER_AUTH, AuthorityCertificates, certificates_in
from fogline_cloud.authority.certificates import Role, Subject, key_pem, make_authority, make_key, now_utc, pem

NOW = now_utc()
ROOT = make_authority("acme", NOW)
GATEWAY = Subject("acme", Role.GATEWAY, "gw-1")


def issued(subject=GATEWAY, days=1.0, at=NOW, authority=ROOT):
    return authority.issue(subject, make_key().public_key(), at, days)


def check(shown, usage=CLIENT_AUTH, now=NOW, authority=ROOT):
    return AuthorityCertificates(pem(authority.certificate)).check(shown, usage, now)


def name(text):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def made(subject, key, issuer, issuer_key, *extensions):
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(NOW - timedelta(minutes=5)).not_valid_after(NOW + timedelta(days=1))
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical=critical)
    return builder.sign(issuer_key, hashes.SHA256())


def ca(path_length=None, *, is_ca=True):
    return x509.BasicConstraints(ca=is_ca, path_length=path_length if is_ca else None), True


def test_a_certificate_of_the_authority_counts():
    certificate = issued()
    assert check(pem(certificate)) == certificate


def test_a_bridge_s_certificate_counts_as_a_server_and_a_gateway_s_does_not():
    bridge = issued(Subject("acme", Role.BRIDGE, "bridge-1", ["127.0.0.1"]))
    assert check(pem(bridge), SERVER_AUTH) == bridge
    with pytest.raises(Poison, match="for another use"):
        check(pem(issued()), SERVER_AUTH)


@pytest.mark.parametrize(
    ("certificate", "why"),
    [
        (issued(at=NOW - timedelta(days=3)), "expired"),
        (issued(at=NOW + timedelta(days=3)), "valid from"),
        (issued(authority=make_authority("acme", NOW)), "not trusted here"),
    ],
)
def test_one_out_of_time_or_of_another_authority_of_the_same_name_is_refused(certificate, why):
    with pytest.raises(Poison, match=why):
        check(pem(certificate))


@pytest.mark.parametrize("shown", [None, "", "text", b"", b"no certificate", b"x" * 20_000, 7])
def test_what_is_no_certificate_is_refused(shown):
    with pytest.raises(Poison, match=r"no (readable )?certificate"):
        check(shown)


def test_certificates_between_lead_to_the_authority_within_its_path_length():
    keys = [make_key() for _ in range(3)]
    root = made(name("root"), keys[0], name("root"), keys[0], ca())
    between = made(name("between"), keys[1], name("root"), keys[0], ca(0))
    leaf = made(name("leaf"), keys[2], name("between"), keys[1])
    authorities = AuthorityCertificates(pem(root))
    assert authorities.check(pem(leaf) + pem(between), CLIENT_AUTH, NOW) == leaf
    with pytest.raises(Poison, match="not trusted here"):
        authorities.check(pem(leaf), CLIENT_AUTH, NOW)
    narrow = AuthorityCertificates(pem(made(name("root"), keys[0], name("root"), keys[0], ca(0))))
    with pytest.raises(Poison, match="not trusted here"):
        narrow.check(pem(leaf) + pem(between), CLIENT_AUTH, NOW)


def test_what_a_gateway_issues_with_its_own_certificate_is_refused():
    """Its key may sign anything, but its certificate is not one of an authority."""
    keys = [make_key() for _ in range(3)]
    root = made(name("root"), keys[0], name("root"), keys[0], ca())
    for basic in ([], [ca(is_ca=False)]):
        gateway = made(name("gw-1"), keys[1], name("root"), keys[0], *basic)
        forged = made(name("gw-2"), keys[2], name("gw-1"), keys[1])
        with pytest.raises(Poison, match="not trusted here"):
            AuthorityCertificates(pem(root)).check(pem(forged) + pem(gateway), CLIENT_AUTH, NOW)


def test_an_authority_that_may_not_sign_certificates_and_an_unknown_critical_extension_are_refused():
    keys = [make_key() for _ in range(2)]
    only_lists = x509.KeyUsage(
        digital_signature=True, key_cert_sign=False, crl_sign=True, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    root = made(name("root"), keys[0], name("root"), keys[0], ca(), (only_lists, True))
    leaf = made(name("leaf"), keys[1], name("root"), keys[0])
    with pytest.raises(Poison, match="not trusted here"):
        AuthorityCertificates(pem(root)).check(pem(leaf), CLIENT_AUTH, NOW)
    constrained = x509.NameConstraints([x509.DNSName("example")], None), True
    root = made(name("root"), keys[0], name("root"), keys[0], ca())
    leaf = made(name("leaf"), keys[1], name("root"), keys[0], constrained)
    with pytest.raises(Poison, match="critical and unknown"):
        AuthorityCertificates(pem(root)).check(pem(leaf), CLIENT_AUTH, NOW)


def test_a_use_that_is_named_must_be_the_one():
    keys = [make_key() for _ in range(2)]
    root = made(name("root"), keys[0], name("root"), keys[0], ca())
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), False
    leaf = made(name("leaf"), keys[1], name("root"), keys[0], usage)
    with pytest.raises(Poison, match="another use"):
        AuthorityCertificates(pem(root)).check(pem(leaf), CLIENT_AUTH, NOW)


def test_of_a_file_with_the_private_key_only_the_certificates_are_shown():
    """`fogline-edge enroll` writes both into one file."""
    certificate = issued()
    shown = certificates_in(b"# issued ...\n" + pem(certificate) + key_pem(make_key()) + pem(ROOT.certificate))
    assert shown == pem(certificate) + pem(ROOT.certificate)
    with pytest.raises(Misconfigured):
        certificates_in(key_pem(make_key()))


def test_a_file_that_holds_no_authority_is_a_mistake_of_the_settings():
    with pytest.raises(Misconfigured):
        AuthorityCertificates(b"nothing")
