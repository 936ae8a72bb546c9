"""TLS to a real broker: who is trusted, and who is not."""

import datetime as dt
import ipaddress

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fogline_lab.port import MemoryPort


def make_certificate(folder, *, address):
    """A certificate that signs itself, for `address`, and its key; as files."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "site broker")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / "broker.pem").write_bytes(certificate.public_bytes(pem))
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "broker.key").write_bytes(private)
    return str(folder / "broker.pem"), str(folder / "broker.key")


@pytest.fixture
def secured(mosquitto, folder):
    """Starts a broker that speaks TLS as `address`; gives it and the certificate."""

    def secured(address="127.0.0.1"):
        certificate, key = make_certificate(folder, address=address)
        return mosquitto(f"certfile {certificate}", f"keyfile {key}"), certificate

    return secured


async def test_messages_come_through_tls_also_when_one_record_holds_many(secured, connecting, eventually):
    broker, certificate = secured()
    port = MemoryPort()
    trust = ("--cafile", certificate)
    async with connecting(port, broker, tls=True, ca_file=certificate) as client:
        await broker.publish("plant/p1/x", *[str(each) * 100 for each in range(500)], more=trust)
        await port.until_stored(500)
        assert [each.data for each in port.arrivals] == [str(each).encode() * 100 for each in range(500)]
        await eventually(lambda: client.counters.acknowledged == 500, "all are acknowledged")


async def test_broker_of_an_unknown_authority_is_refused(secured, connecting, eventually):
    broker, _ = secured()
    async with connecting(MemoryPort(), broker, wait=False, tls=True) as client:
        await eventually(lambda: client.problem is not None, "it is refused")
        assert "its certificate is not accepted: self-signed certificate; see ca_file" in client.problem


async def test_a_certificate_for_another_host_is_refused(secured, connecting, eventually):
    broker, certificate = secured("192.0.2.1")
    async with connecting(MemoryPort(), broker, wait=False, tls=True, ca_file=certificate) as client:
        await eventually(lambda: client.problem is not None, "it is refused")
        assert "its certificate is not accepted: IP address mismatch" in client.problem


async def test_tls_to_a_broker_without_tls_is_reported(broker, connecting, eventually):
    async with connecting(MemoryPort(), broker, wait=False, tls=True) as client:
        await eventually(lambda: client.problem is not None, "it is noticed")
        assert f"127.0.0.1:{broker.port}" in client.problem
