"""Signed documents: who may sign, and that nothing else than what was signed is read."""

import hmac
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import UTC, datetime, timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from fogline.errors import Misconfigured, Poison
from fogline_cloud.authority.certificates import Role, Subject, key_pem, make_authority, make_key, pem
from fogline_cloud.authority.revocation import RevocationList
from fogline_cloud.authority.signed_document import MAX_BYTES, DocumentSigner, read_signed, read_signer, sign

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
BODY = b'{"complete": true}'
AUTHORITY = make_authority("acme", NOW - timedelta(days=1))


def signer_of(role=Role.BRIDGE, authority=AUTHORITY, at=NOW, days=30.0):
    key = make_key()
    return DocumentSigner(authority.issue(Subject("acme", role, "cloud-1"), key.public_key(), at, days), key)


BRIDGE = signer_of()
SIGNED = sign(BODY, "proof", BRIDGE, NOW)


def refusal(text, *, kind="proof", authorities=(AUTHORITY.certificate,), revoked=None):
    with pytest.raises(Poison) as refused:
        read_signed(text, kind, authorities, revoked)
    return refused.value.reason


def test_a_signed_document_is_read_with_its_signer_and_time():
    found = read_signed(SIGNED, "proof", [make_authority("other", NOW).certificate, AUTHORITY.certificate])
    assert (found.body, found.tenant, found.signer, found.signed) == (BODY, "acme", "bridge cloud-1", NOW)


def test_another_library_can_check_it():
    """Compact form, ES256, header `x5c`: RFC 7515. Here the parts are taken apart by hand."""
    head, body, _ = SIGNED.split(".")
    header = json.loads(urlsafe_b64decode(head + "=="))
    assert header["alg"] == "ES256"
    assert urlsafe_b64decode(body + "==") == BODY
    assert header["x5c"]


@given(st.integers(0, len(SIGNED) - 1), st.characters(codec="ascii"))
def test_a_document_in_which_one_character_is_another_is_refused_or_the_same(at, other):
    """Base64 has spare bits at its end: what is read may be equal, never different."""
    changed = SIGNED[:at] + other + SIGNED[at + 1 :]
    try:
        found = read_signed(changed, "proof", [AUTHORITY.certificate])
    except Poison:
        return
    assert (found.body, found.signed) == (BODY, NOW)


@given(st.text(max_size=300) | st.from_regex(r"[A-Za-z0-9_-]*\.[A-Za-z0-9_-]*\.[A-Za-z0-9_-]*", fullmatch=True))
def test_what_is_no_signed_document_is_refused_with_a_reason(text):
    assert refusal(text) == "form"


@pytest.mark.parametrize("role", [each for each in Role if each is not Role.BRIDGE])
def test_only_the_service_may_sign(role, folder):
    signer = signer_of(role)
    assert refusal(sign(BODY, "proof", signer, NOW)) == "role"
    certificate, key = files_of(signer, folder)
    with pytest.raises(Misconfigured, match="ca issue bridge"):
        read_signer(certificate, key)


def test_a_document_of_another_authority_with_the_same_name_is_refused():
    assert refusal(sign(BODY, "proof", signer_of(authority=make_authority("acme", NOW)), NOW)) == "issuer"


def test_a_document_of_another_kind_is_refused():
    assert refusal(sign(BODY, "invoice", BRIDGE, NOW)) == "kind"


@pytest.mark.parametrize("at", [NOW - timedelta(days=1), NOW + timedelta(days=31)])
def test_a_time_at_which_the_certificate_was_not_valid_is_refused(at):
    assert refusal(sign(BODY, "proof", BRIDGE, at)) == "time"


def test_a_document_whose_certificate_has_ended_since_is_still_right():
    old = signer_of(at=NOW - timedelta(hours=20), days=0.5)
    assert read_signed(sign(BODY, "proof", old, NOW - timedelta(hours=15)), "proof", [AUTHORITY.certificate]).body == BODY


def test_a_document_of_a_revoked_certificate_is_refused_whatever_its_time():
    revoked = AUTHORITY.revocation_list([(BRIDGE.certificate.serial_number, NOW + timedelta(days=1))], 1, NOW, 7)
    found = RevocationList({AUTHORITY.certificate.subject: revoked})
    assert refusal(SIGNED, revoked=found) == "revoked"
    assert read_signed(sign(BODY, "proof", signer_of(), NOW), "proof", [AUTHORITY.certificate], found).body == BODY


def test_a_signature_by_another_algorithm_is_refused():
    """None at all, and a public key that is used as the secret of HMAC (CVE-2015-9235 and its like)."""
    header = json.loads(urlsafe_b64decode(SIGNED.split(".")[0] + "=="))
    public = BRIDGE.certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    content = f"{encoded(json.dumps({**header, 'alg': 'HS256'}).encode())}.{encoded(BODY)}"
    assert refusal(f"{content}.{encoded(hmac.digest(public, content.encode(), 'sha256'))}") == "signature"
    unsigned = f"{encoded(json.dumps({**header, 'alg': 'none'}).encode())}.{encoded(BODY)}."
    assert refusal(unsigned) == "signature"


def encoded(data):
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def test_a_certificate_with_the_key_of_somebody_else_is_refused():
    impostor = DocumentSigner(BRIDGE.certificate, ec.generate_private_key(ec.SECP256R1()))
    assert refusal(sign(BODY, "proof", impostor, NOW)) == "signature"


@pytest.mark.parametrize("iat", [None, "soon", 10**30, -(10**30), [1], float(2**70), True])
def test_a_time_that_no_calendar_has_is_refused(iat):
    head = json.loads(urlsafe_b64decode(SIGNED.split(".")[0] + "=="))
    changed = encoded(json.dumps({**head, "iat": iat}).encode())
    assert refusal(".".join([changed, *SIGNED.split(".")[1:]])) in {"form", "signature"}


def test_a_document_of_any_length_is_read_in_bounded_time():
    assert refusal("A" * (MAX_BYTES + 1)) == "size"


def test_files_that_do_not_belong_together_are_named(folder):
    certificate, _ = files_of(BRIDGE, folder)
    (folder / "other.key").write_bytes(key_pem(make_key()))
    (folder / "other.key").chmod(0o600)
    with pytest.raises(Misconfigured, match=r"other\.key is not the key of .*cert\.pem"):
        read_signer(certificate, str(folder / "other.key"))
    assert read_signer(*files_of(BRIDGE, folder)).certificate == BRIDGE.certificate


def files_of(signer, folder):
    certificate, key = folder / "cert.pem", folder / "key.pem"
    certificate.write_bytes(pem(signer.certificate))
    key.write_bytes(key_pem(signer.key))
    key.chmod(0o600)
    return str(certificate), str(key)
