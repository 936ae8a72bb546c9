"""A gateway enrols with a token that works once, renews by itself, and loses nothing when its certificate ends."""

import asyncio
import ssl
import time
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from msgspec.structs import replace

from e2e.enrolling import enrolled, serial, token_of
from fogline.errors import FoglineError, Misconfigured, Poison, Unreachable
from fogline.gateway.enrolment import MAX_REQUEST_BYTES, REQUEST_TYPE, decode_token
from fogline.message import Message
from fogline_cloud.authority.ca_folder import LIST, CaFolder
from fogline_cloud.authority.certificates import Role, Subject, make_key, now_utc, pem
from fogline_cloud.settings import CaSettings
from fogline_edge.operate import enrolment
from fogline_edge.operate.enrolment import _converse as converse
from fogline_edge.operate.enrolment import check_certificate, renew
from fogline_edge.operate.first_settings import CERTIFICATE, FirstSettings, write_first
from fogline_edge.operate.renewal import LOOK_S, _renew, due_in_s, pause_s, read_times, renew_in_time, times_line
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.settings import load
from fogline_lab.amqp import within
from fogline_lab.credentials.authority_folder import HERE, AuthorityFolder
from fogline_lab.line.line import Line
from fogline_lab.waiting import until_not


@asynccontextmanager
async def running(line: Line, config: Path):
    """A gateway by the settings that it was given, without its adapters."""
    settings = load(config)
    outbox = Outbox.open(settings)
    async with line.uplink(outbox, settings=settings.uplink):
        yield outbox
    await outbox.close()


async def test_a_gateway_enrols_by_a_token_and_its_events_land(issuing, folder):
    line, site = issuing
    async with line.bridge() as bridge:
        config = await enrolled(line, token_of(site), folder / "pi")
        assert (folder / "pi" / CERTIFICATE).stat().st_mode & 0o077 == 0
        async with running(line, config) as outbox:
            await line.put(outbox, *range(100))
            await line.drained(outbox)
            assert bridge.gateways.get("gw-9").principal.proof == "certificate"
    assert line.landed() == list(range(100))


def hosts(folder: Path) -> list[str]:
    certificate = x509.load_pem_x509_certificate((folder / CERTIFICATE).read_bytes())
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    if ExtendedKeyUsageOID.SERVER_AUTH not in usage:
        return []
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(each.value) for each in names]


async def test_a_gateway_with_host_names_has_them_in_every_certificate(issuing, folder):
    """Devices check them when they connect by TLS. The gateway itself cannot ask for any."""
    line, site = issuing
    root = site.ca.authority.certificate.public_bytes(Encoding.DER)
    token = site.ca.tokens.make(site.tenant, "gw-9", root, now_utc(), 15, hosts=["gw-9.local", "192.0.2.7"])
    async with line.bridge():
        config = await enrolled(line, token, folder / "pi")
        assert hosts(folder / "pi") == ["gw-9.local", "192.0.2.7"]
        await asyncio.to_thread(renew, load(config))
        assert hosts(folder / "pi") == ["gw-9.local", "192.0.2.7"]
        await enrolled(line, token_of(site, "gw-8"), folder / "other")
        assert hosts(folder / "other") == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('tenant = "{tenant}"\ngateway = "gw-1"\ndata = "d"\n', "is of gateway gw-1 of .*, and the token is for gw-9"),
        ('tenant = "{tenant}"\ngateway = "gw-9"\ndata = "d"\n[mqtt]\n', r"has no \[uplink.tls\]"),
    ],
)
async def test_settings_that_would_not_use_the_certificate_use_no_token_up(issuing, folder, text, says):
    line, site = issuing
    token = token_of(site)
    (folder / "pi").mkdir()
    (folder / "pi" / "edge.toml").write_text(text.format(tenant=line.tenant))
    async with line.bridge():
        with pytest.raises(Misconfigured, match=says):
            await enrolled(line, token, folder / "pi")
        (folder / "pi" / "edge.toml").unlink()
        write_first(folder / "pi" / "edge.toml", FirstSettings(line.tenant, "gw-9", f"{HERE}:{line.port}"), tls=True)
        config = await enrolled(line, token, folder / "pi")
    assert load(config).uplink.tls is not None


async def test_a_token_works_once(issuing, folder):
    line, site = issuing
    token = token_of(site)
    async with line.bridge():
        answers = await asyncio.gather(
            *(enrolled(line, token, folder / f"pi-{number}") for number in range(5)), return_exceptions=True
        )
    assert sum(isinstance(each, Path) for each in answers) == 1
    assert all(isinstance(each, Path | Misconfigured | Unreachable) for each in answers)
    assert len([each for each in site.ca.known() if each.issued.name == "gw-9"]) == 1


@pytest.mark.parametrize(
    ("change", "minutes"),
    [({"gateway": "gw-1"}, 0), ({"secret": "guess"}, 0), ({}, 16)],
    ids=["of another gateway", "guessed", "too old"],
)
async def test_a_token_that_does_not_count_gets_nothing(issuing, folder, change, minutes):
    line, site = issuing
    token = replace(token_of(site, age_min=minutes), **change)
    known = len(site.ca.known())
    async with line.bridge():
        with pytest.raises(Unreachable, match="refuses the password"):
            await enrolled(line, token, folder / "pi")
    assert len(site.ca.known()) == known
    assert not (folder / "pi" / CERTIFICATE).exists()


async def test_a_token_is_not_shown_to_a_bridge_of_another_authority(issuing, folder):
    line, site = issuing
    other = CaFolder.make(folder / "other", site.tenant, now_utc(), 1)
    async with line.bridge():
        with pytest.raises(Unreachable, match="certificate is refused"):
            await enrolled(line, token_of(site, ca=other), folder / "pi")
        await enrolled(line, token_of(site, "gw-8"), folder / "pi")


@pytest.mark.parametrize("word", ["", "fogline1.", "fogline1.AAAA", "hunter2", "fogline1.ü"])
def test_a_damaged_token_is_named(word):
    with pytest.raises(Poison, match="token"):
        decode_token(word)


@pytest.mark.parametrize("body", [b"", b"-----BEGIN", bytes(MAX_REQUEST_BYTES + 1)], ids=["empty", "no PEM", "too large"])
async def test_a_request_that_is_none_uses_no_token_up(issuing, folder, monkeypatch, body):
    line, site = issuing
    token = token_of(site)
    async with line.bridge():
        with monkeypatch.context() as patch:
            bad = Message(body=body, content_type=REQUEST_TYPE)
            patch.setattr(enrolment, "_converse", lambda way, who, _: converse(way, who, bad))
            with pytest.raises(Misconfigured, match="certificate signing request"):
                await enrolled(line, token, folder / "pi")
        await enrolled(line, token, folder / "pi")


async def test_a_request_for_a_key_of_another_type_uses_no_token_up(issuing, folder, monkeypatch):
    line, site = issuing
    token = token_of(site)
    key = rsa.generate_private_key(public_exponent=65_537, key_size=2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "gw-9")])
    request = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    async with line.bridge():
        with monkeypatch.context() as patch:
            bad = Message(body=request.public_bytes(Encoding.PEM), content_type=REQUEST_TYPE)
            patch.setattr(enrolment, "_converse", lambda way, who, _: converse(way, who, bad))
            with pytest.raises(Misconfigured, match="EC P-256"):
                await enrolled(line, token, folder / "pi")
        await enrolled(line, token, folder / "pi")


async def test_a_gateway_renews_until_it_is_revoked(issuing, folder):
    line, site = issuing
    async with line.bridge():
        config = await enrolled(line, token_of(site), folder / "pi")
        first = serial(folder / "pi")
        await asyncio.to_thread(renew, load(config))
        second = serial(folder / "pi")
        assert second != first
        site.ca.revoke("gw-9", now_utc(), 1)
        with pytest.raises(FoglineError, match="revoked"):
            await asyncio.to_thread(renew, load(config))
    assert serial(folder / "pi") == second


async def test_a_bridge_that_issues_nothing_says_so(issuing, folder):
    line, site = issuing
    async with line.bridge():
        config = await enrolled(line, token_of(site), folder / "pi")
    line.cloud = replace(line.cloud, bridge=replace(line.cloud.bridge, enrolment=False))
    async with line.bridge():
        with pytest.raises(Unreachable, match="issues no certificates"):
            await asyncio.to_thread(renew, load(config))


async def test_a_bridge_with_the_authority_keeps_the_list_of_revoked_certificates_fresh(issuing, monkeypatch):
    monkeypatch.setattr("fogline_cloud.bridge.bridge.FILES_S", 0.05)
    line, site = issuing
    line.cloud = replace(line.cloud, ca=replace(line.cloud.ca, crl_days=1 / 86_400))
    path = site.ca.path / LIST

    async def old() -> bool:
        return x509.load_pem_x509_crl(path.read_bytes()).extensions.get_extension_for_class(x509.CRLNumber).value.crl_number < 4

    async with line.bridge():
        await until_not(old, "the list is not signed anew")
        async with line.gateway() as outbox:
            await line.put(outbox, 1)
            await line.drained(outbox)


async def test_enrolment_needs_tls(line, folder):
    site = AuthorityFolder(folder, line.tenant)
    line.cloud = replace(line.cloud, ca=CaSettings(folder=str(site.ca.path)), bridge=replace(line.cloud.bridge, enrolment=True))
    with pytest.raises(Misconfigured, match=r"enrolment needs \[bridge.tls\]"):
        async with line.bridge():
            pass


async def test_certificates_that_end_every_few_seconds_lose_and_double_nothing(issuing, folder, monkeypatch):
    monkeypatch.setattr("fogline_cloud.bridge.bridge.FILES_S", 0.1)
    line, site = issuing
    async with line.bridge():
        config = await enrolled(line, token_of(site), folder / "pi")
        began_s = time.monotonic()
        assert not await _renew(config)
        life_s = max(6.0, 8 * (time.monotonic() - began_s))
    line.cloud = replace(line.cloud, ca=replace(line.cloud.ca, days=life_s / 86_400))
    async with line.bridge() as bridge:
        assert not await _renew(config)
        serials = {serial(folder / "pi")}
        renewing = asyncio.create_task(renew_in_time(str(folder / "pi" / CERTIFICATE), config))
        async with running(line, config) as outbox:
            connections, number = set(), 0

            async def too_few() -> bool:
                nonlocal number
                await line.put(outbox, number)
                number += 1
                serials.add(serial(folder / "pi"))
                if (peer := bridge.gateways.get("gw-9")) is not None:
                    connections.add(peer)
                return len(connections) < 3

            await until_not(too_few, "the connection is not replaced", 20 * life_s)
            await line.drained(outbox)
        renewing.cancel()
        with suppress(asyncio.CancelledError):
            await renewing
    print(f"{len(serials)} certificates, {len(connections)} connections, {number} events")
    assert len(serials) >= 2
    assert line.landed() == list(range(number))


async def test_renewal_goes_on_after_the_file_was_not_readable_for_a_while(folder, monkeypatch, caplog):
    monkeypatch.setattr("fogline_edge.operate.renewal.LOOK_S", 0.01)
    renewed = asyncio.Event()

    async def renew(_: Path) -> str:
        renewed.set()
        return ""

    monkeypatch.setattr("fogline_edge.operate.renewal._renew", renew)
    file = folder / CERTIFICATE
    renewing = asyncio.create_task(renew_in_time(str(file), folder / "edge.toml"))

    async def silent() -> bool:
        return "cannot read" not in caplog.text

    await until_not(silent, "nothing is logged")
    beside = folder / "new"
    beside.write_text(times_line(now_utc() - timedelta(minutes=4), now_utc() + timedelta(minutes=1)))
    beside.replace(file)
    await within(renewed.wait(), "it does not renew")
    renewing.cancel()


def test_a_certificate_is_due_after_two_thirds_of_its_time(folder):
    now = now_utc()
    assert due_in_s(now, now + timedelta(days=30), now) == timedelta(days=20).total_seconds()
    assert due_in_s(now - timedelta(days=21), now + timedelta(days=9), now) < 0
    assert pause_s(now, now + timedelta(days=30)) == LOOK_S, "each attempt is a process of its own"
    assert pause_s(now, now + timedelta(minutes=5)) == 5
    assert pause_s(now, now + timedelta(seconds=6)) == 1
    other = folder / "other.pem"
    other.write_text(ssl.DER_cert_to_PEM_cert(b"x"))
    with pytest.raises(Misconfigured, match="cannot be renewed"):
        read_times(str(other))


def test_a_certificate_that_would_shut_the_gateway_out_is_not_taken(folder):
    """A bridge answers a renewal with a certificate of another key, one that has ended, or none."""
    ca, key = CaFolder.make(folder / "ca", "acme", now_utc(), 1), make_key()

    def issued(for_key, days: float = 1) -> str:
        early = now_utc() - timedelta(days=max(0, -2 * days))
        return pem(ca.issue(Subject("acme", Role.GATEWAY, "gw-1"), for_key.public_key(), early, abs(days))).decode()

    assert check_certificate(issued(key), key.public_key()) is not None
    for text in (issued(make_key()), issued(key, -1), "", "hunter2", "\ud7ff", issued(key)[:200]):
        with pytest.raises(Unreachable, match="the bridge's answer is"):
            check_certificate(text, key.public_key())
