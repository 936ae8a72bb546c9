"""Guesses of tokens: they cost little, are limited by address, and keep nobody out who has a token."""

import logging

import pytest

from fogline.amqp.login import PLAIN, Login, LoginVerdict
from fogline.gateway.enrolment import USER_PREFIX
from fogline.process.files.durable_file import write_new
from fogline.process.files.tls_files import TlsSettings
from fogline_cloud.authority.ca_folder import ROOT, CaFolder
from fogline_cloud.authority.certificates import Role, Subject, key_pem, make_key, now_utc, pem
from fogline_cloud.bridge.door.authentication import GUESSES, Authentication, PasswordProof
from fogline_cloud.settings import BridgeSettings, CaSettings, CloudSettings

ATTACKER, GATEWAY = "192.0.2.1", "192.0.2.2"


@pytest.fixture
def ca(folder) -> CaFolder:
    return CaFolder.make(folder / "ca", "acme", now_utc(), 7)


@pytest.fixture
def authentication(ca, folder) -> Authentication:
    key = make_key()
    certificate = ca.issue(Subject("acme", Role.BRIDGE, "b-1", ["127.0.0.1"]), key.public_key(), now_utc(), 1)
    (folder / "b.pem").write_bytes(pem(certificate))
    write_new(folder / "b.key", key_pem(key))
    tls = TlsSettings(ca=str(ca.path / ROOT), certificate=str(folder / "b.pem"), key=str(folder / "b.key"))
    bridge = BridgeSettings(enrolment=True, tls=tls)
    return Authentication(CloudSettings(tenant="acme", bridge=bridge, ca=CaSettings(folder=str(ca.path))))


def shown_at(authentication, address, gateway, secret) -> LoginVerdict:
    verdicts: list[LoginVerdict] = []
    login = Login(PLAIN, USER_PREFIX + gateway, secret)
    authentication.check_password(PasswordProof(), login, address, verdicts.append)
    (verdict,) = verdicts
    return verdict


@pytest.mark.fault("S7")
def test_guesses_are_limited_by_address_and_the_right_token_is_accepted(ca, authentication, caplog):
    token = ca.tokens.make("acme", "gw-1", b"", now_utc(), 15)
    with caplog.at_level(logging.WARNING):
        told = [shown_at(authentication, ATTACKER, f"gw-{number}", f"guess {number}") for number in range(500)]
    assert told[:GUESSES] == [LoginVerdict.REFUSED] * GUESSES
    assert told.count(LoginVerdict.BUSY) >= 400, "some may be answered on a slow machine: one each 3 s"
    assert shown_at(authentication, GATEWAY, "gw-1", "guess") is LoginVerdict.REFUSED
    for address in (ATTACKER, GATEWAY):
        assert shown_at(authentication, address, "gw-1", token.secret) is LoginVerdict.ACCEPTED
    lines = [record.getMessage() for record in caplog.records if "may not enrol" in record.getMessage()]
    assert len(lines) <= 3, "the log has one line for all of them"
