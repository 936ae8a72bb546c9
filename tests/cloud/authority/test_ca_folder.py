"""The authority's folder: what it issues and revokes is known after a kill at any byte, and its files are private."""

import stat
from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from fogline.errors import Misconfigured
from fogline_cloud.authority.ca_folder import KEY, LIST, LOG, ROOT, CaFolder
from fogline_cloud.authority.certificates import Role, Subject, make_key, now_utc, subject_of
from fogline_cloud.authority.revocation import read_revocation_list

NOW = now_utc()
GW_1 = Subject("acme", Role.GATEWAY, "gw-1")


@pytest.fixture
def ca(folder) -> CaFolder:
    return CaFolder.make(folder / "ca", "acme", NOW, 7)


def issue(ca: CaFolder, subject: Subject = GW_1, days: float = 30) -> x509.Certificate:
    return ca.issue(subject, make_key().public_key(), NOW, days)


def revocations(ca: CaFolder, former=None):
    return read_revocation_list(str(ca.path / LIST), str(ca.path / ROOT), former)


def test_certificate_has_its_owner_and_its_end(ca):
    made = issue(ca, Subject("acme", Role.BRIDGE, "b-1", ["fog.example", "10.0.0.5"]))
    assert subject_of(made) == Subject("acme", Role.BRIDGE, "b-1")
    assert made.not_valid_after_utc == NOW + timedelta(days=30)
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(each.value) for each in names] == ["fog.example", "10.0.0.5"]
    made.verify_directly_issued_by(ca.authority.certificate)
    assert issue(ca, days=36_500).not_valid_after_utc == ca.authority.certificate.not_valid_after_utc


def test_the_key_is_for_its_owner_only_and_a_key_for_everybody_is_refused(ca):
    assert stat.S_IMODE((ca.path / KEY).stat().st_mode) == 0o600
    (ca.path / KEY).chmod(0o644)
    with pytest.raises(Misconfigured, match="chmod 600"):
        CaFolder.open(ca.path)


def test_a_second_authority_in_the_same_folder_is_refused(ca):
    with pytest.raises(Misconfigured, match="there is an authority already"):
        CaFolder.make(ca.path, "acme", NOW, 7)


def test_list_has_revoked_certificates_only(ca):
    first, second, other = issue(ca), issue(ca), issue(ca, Subject("acme", Role.GATEWAY, "gw-2"))
    assert len(ca.revoke("gw-1", NOW, 7)) == 2
    assert ca.revoke("gw-1", NOW, 7) == [], "they are revoked already"
    listed = revocations(ca)
    assert [listed.doubt(each, NOW) for each in (first, second, other)] == ["it is revoked", "it is revoked", None]
    assert [each.state(NOW) for each in CaFolder.open(ca.path).known()] == ["revoked", "revoked", "valid"]


def test_one_serial_number_can_be_revoked(ca):
    first, second = issue(ca), issue(ca)
    (revoked,) = ca.revoke(format(first.serial_number, "x"), NOW, 7)
    assert revoked.issued.serial == format(first.serial_number, "x")
    assert revocations(ca).doubt(second, NOW) is None


def test_an_unknown_name_is_named(ca):
    with pytest.raises(Misconfigured, match="'gw-9' is neither"):
        ca.revoke("gw-9", NOW, 7)


def test_a_list_that_is_out_of_date_refuses_everybody(ca):
    made = issue(ca)
    assert "out of date" in revocations(ca).doubt(made, NOW + timedelta(days=8))
    assert not revocations(ca).revokes(made), "open connections stay"


def test_a_list_is_never_replaced_by_an_older_one(ca):
    old = (ca.path / LIST).read_bytes()
    issue(ca)
    ca.revoke("gw-1", NOW, 7)
    newest = revocations(ca)
    (ca.path / LIST).write_bytes(old)
    with pytest.raises(Misconfigured, match="older than number 2"):
        revocations(ca, newest)


def test_a_list_of_another_authority_is_refused(ca, folder):
    other = CaFolder.make(folder / "other", "acme", NOW, 7)
    with pytest.raises(Misconfigured, match="no authority in"):
        read_revocation_list(str(other.path / LIST), str(ca.path / ROOT))


def test_a_certificate_of_an_authority_without_a_list_is_refused(ca, folder):
    other = CaFolder.make(folder / "other", "umbrella", NOW, 7)
    assert "no list" in revocations(ca).doubt(issue(other), NOW)


def test_a_kill_at_any_byte_of_a_note_loses_that_note_only(ca):
    issue(ca)
    before = (ca.path / LOG).read_bytes()
    issue(ca)
    after = (ca.path / LOG).read_bytes()
    for size in range(len(before), len(after)):
        (ca.path / LOG).write_bytes(after[:size])
        assert len(ca.known()) == 1
    issue(ca)
    assert len(ca.known()) == 2


def test_a_damaged_line_is_named_with_its_number(ca):
    issue(ca)
    (ca.path / LOG).write_bytes(b"{}\n" + (ca.path / LOG).read_bytes())
    with pytest.raises(Misconfigured, match=r"certificates\.jsonl:1"):
        ca.known()


def test_a_renewed_certificate_has_the_hosts_of_the_one_before(ca):
    def hosts(made: x509.Certificate) -> list[str]:
        return [str(each.value) for each in made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value]

    issue(ca, Subject("acme", Role.GATEWAY, "gw-1", ["gw-1.local"]))
    issue(ca, Subject("acme", Role.BRIDGE, "gw-1", ["fog.example"]))
    again = ca.renew(GW_1, make_key().public_key(), NOW, 30)
    assert hosts(again) == ["gw-1.local"]
    assert hosts(ca.renew(GW_1, make_key().public_key(), NOW, 30)) == ["gw-1.local"]
    with pytest.raises(x509.ExtensionNotFound):
        hosts(ca.renew(Subject("acme", Role.GATEWAY, "gw-2"), make_key().public_key(), NOW, 30))


def test_a_certificate_of_a_server_may_be_one_and_no_other(ca):
    def serves(made: x509.Certificate) -> bool:
        usage = made.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        return ExtendedKeyUsageOID.SERVER_AUTH in usage

    assert serves(issue(ca, Subject("acme", Role.GATEWAY, "gw-1", ["gw-1.local"])))
    assert not any(serves(issue(ca, Subject("acme", role, "x"))) for role in (Role.GATEWAY, Role.DEVICE, Role.OPERATOR))
