"""Clients that others wrote log in over TLS, by certificate and by password: rhea, Qpid JMS, Qpid Proton for Python."""

import asyncio
import subprocess
from pathlib import Path
from urllib.parse import quote

import proton
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key, pkcs12
from msgspec.structs import replace
from proton.utils import BlockingConnection

from contracts.foreign.clients import Id, Note, Sent
from contracts.foreign.java import QpidJms
from contracts.foreign.javascript import Rhea, rhea_security
from fogline.process.files.tls_files import TlsSettings
from fogline_cloud.authority.certificates import Role
from fogline_lab.amqp import within
from fogline_lab.credentials.authority_folder import HERE, PASSWORD
from fogline_lab.device.command_device import CommandDevice
from fogline_lab.line.line import commandable, serving
from fogline_lab.line.secure_line import secure

STORE = "of the store"
ID: Id = ("string", "switch-1")


def jms_security(files: TlsSettings, how: str, folder: Path) -> str:
    """As options of its URL. Java reads certificates from stores only."""
    trusted, own = folder / "trusted.p12", folder / "own.p12"
    command = ["keytool", "-importcert", "-noprompt", "-file", files.ca, "-keystore", trusted, "-storepass", STORE]
    subprocess.run([*map(str, command), "-storetype", "PKCS12"], check=True, capture_output=True, timeout=60)
    options = f"&transport.trustStoreLocation={trusted}&transport.trustStorePassword={quote(STORE)}"
    if how == "password":
        return f"{options}&jms.username=alice&jms.password={quote(PASSWORD)}&amqp.saslMechanisms=PLAIN"
    assert files.certificate is not None
    assert files.key is not None
    key = load_pem_private_key(Path(files.key).read_bytes(), None)
    certificate = x509.load_pem_x509_certificate(Path(files.certificate).read_bytes())
    encryption = BestAvailableEncryption(STORE.encode())
    own.write_bytes(pkcs12.serialize_key_and_certificates(b"alice", key, certificate, None, encryption))
    return f"{options}&transport.keyStoreLocation={own}&transport.keyStorePassword={quote(STORE)}&amqp.saslMechanisms=EXTERNAL"


@pytest.mark.parametrize("how", ["certificate", "password"])
@pytest.mark.parametrize("name", ["rhea", "qpid-jms"])
async def test_an_operator_s_client_logs_in_and_its_command_is_answered(line, name, how, request, folder):
    line, site = secure(line)
    files = site.files(Role.OPERATOR, "alice")
    async with commandable(line) as (_, _, downlink):
        device = CommandDevice(downlink)
        downlink.reachable("lamp-1", device)
        if name == "rhea":
            client: Rhea | QpidJms = Rhea(line.port, line.tenant, rhea_security(files, how))
        else:
            classes = request.getfixturevalue("jvm")
            client = QpidJms(line.port, line.tenant, classes, jms_security(files, how, folder))
        outcomes, replies = await client.commands("lamp-1", [ID])
    assert outcomes == [Sent("accepted")]
    assert [(each.status, each.state) for each in replies] == [(200, "SUCCEEDED")]


@pytest.mark.parametrize("how", ["certificate", "password"])
async def test_rhea_over_websocket_logs_in_and_its_command_is_answered(line, how):
    line, site = secure(line)
    line.cloud = replace(line.cloud, bridge=replace(line.cloud.bridge, websocket=f"{HERE}:0"))
    async with commandable(line) as (bridge, _, downlink):
        device = CommandDevice(downlink)
        downlink.reachable("lamp-1", device)
        security = rhea_security(site.files(Role.OPERATOR, "alice"), how)
        del security["transport"]  # ws brings its own
        client = Rhea(bridge.websocket_address[1], line.tenant, security, websocket=True)
        outcomes, replies = await client.commands("lamp-1", [ID])
    assert outcomes == [Sent("accepted")]
    assert [(each.status, each.state) for each in replies] == [(200, "SUCCEEDED")]


@pytest.mark.parametrize("how", ["certificate", "password"])
async def test_proton_logs_in_and_its_event_lands(line, how):
    line, site = secure(line)
    files = site.files(Role.OPERATOR, "alice")
    async with serving(line):
        await within(asyncio.to_thread(send_by_proton, line.port, f"telemetry/{line.tenant}/meter-1", files, how), "no outcome")
    assert [each.value for each in line.records()] == [b'{"w": 1}']


def send_by_proton(port: int, address: str, files: TlsSettings, how: str) -> None:
    domain = proton.SSLDomain(proton.SSLDomain.MODE_CLIENT)
    domain.set_trusted_ca_db(files.ca)
    domain.set_peer_authentication(proton.SSLDomain.VERIFY_PEER)  # proton compares no addresses with a certificate
    login = {"user": "alice", "password": PASSWORD, "allowed_mechs": "PLAIN"}
    if how == "certificate":
        domain.set_credentials(files.certificate, files.key, None)
        login = {"allowed_mechs": "EXTERNAL"}
    connection = BlockingConnection(f"amqps://127.0.0.1:{port}", timeout=60, ssl_domain=domain, **login)
    try:
        delivery = connection.create_sender(address).send(proton.Message(body=b'{"w": 1}', inferred=True))
        assert delivery.remote_state == proton.Delivery.ACCEPTED
    finally:
        connection.close()


async def test_rhea_reports_a_wrong_password(line):
    line, site = secure(line)
    security = {**rhea_security(site.files(Role.OPERATOR, "alice"), "password"), "password": "guess"}
    async with line.bridge():
        with pytest.raises(AssertionError, match="Failed to authenticate"):
            await Rhea(line.port, line.tenant, security).send(f"telemetry/{line.tenant}/meter-1", Note("x"))
    assert line.records() == []
