"""Gets a certificate from a bridge, by a token or by the certificate that the gateway has (see `fogline.gateway.enrolment`)."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fogline.address import EnrollAddress
from fogline.amqp.client import AmqpClient, Inbox
from fogline.amqp.login import PLAIN, Login
from fogline.amqp.security import ClientSecurity
from fogline.documents.json_document import read_document
from fogline.errors import Misconfigured, Poison, Unreachable
from fogline.gateway.enrolment import PRODUCT, REQUEST_TYPE, REVOKE_TYPE, USER_PREFIX, Enrolled, EnrolmentToken
from fogline.message import Message
from fogline.process.files.bridge_address import parse_bridge
from fogline.process.files.durable_file import replace_file
from fogline.process.files.tls_files import trusting
from fogline.transport.proxy.proxy_address import ProxyAddress
from fogline_edge.operate.first_settings import CA, CERTIFICATE, FILE, FirstSettings, write_first
from fogline_edge.operate.renewal import times_line
from fogline_edge.settings import EdgeSettings, ProxySettings, load
from fogline_edge.uplink.way import proxy_of, require_bridge, uplink_proxy, uplink_security

LIMIT_S = 30.0
T = TypeVar("T")


class Identity(NamedTuple):
    """Certificate and key of the gateway in one text (PEM), and the authority's certificate."""

    pair: bytes
    ca: str


class _Way(NamedTuple):
    """The way to a bridge (`host:port`), and what the gateway shows there."""

    bridge: str
    security: ClientSecurity
    proxy: ProxyAddress | None


def enroll(token: EnrolmentToken, bridge: str, folder: Path, proxy: ProxySettings | None = None) -> Path:
    """Get the first certificate, and write it and settings that run to `folder`. Returns the settings file.

    `proxy`: on the way to the bridge; the settings name it too. Settings that exist are kept; a certificate there is an error.
    Raises `Misconfigured`, `Unreachable`.
    """
    certificate, settings = folder / CERTIFICATE, folder / FILE
    if certificate.exists():
        why = "this gateway is enrolled. `fogline-edge renew` replaces its certificate; one that has ended must be moved away"
        raise Misconfigured(f"{certificate} exists: {why}")
    if settings.exists():
        _check_kept(settings, token)
    login = Login(PLAIN, USER_PREFIX + token.gateway, token.secret)
    security = ClientSecurity(login, trusting(token.ca, "the token"))
    through = proxy_of(proxy, "--proxy")
    try:
        folder.mkdir(parents=True, exist_ok=True)  # before the token is used up
        found = asyncio.run(_request(_Way(bridge, security, through), token.tenant, token.gateway))
        (folder / CA).write_text(found.ca)
        replace_file(certificate, found.pair)
        if not settings.exists():
            write_first(settings, FirstSettings(token.tenant, token.gateway, bridge), tls=True, proxy=proxy)
    except OSError as error:
        raise Misconfigured(f"{folder}: cannot write: {error.strerror}") from None
    return settings


def _check_kept(path: Path, token: EnrolmentToken) -> None:
    """Raise `Misconfigured` if settings that exist would not use the certificate."""
    settings = load(path)
    if (settings.tenant, settings.gateway) != (token.tenant, token.gateway):
        of, new = f"{settings.gateway} of {settings.tenant}", f"{token.gateway} of {token.tenant}"
        raise Misconfigured(f"{path} is of gateway {of}, and the token is for {new}: move it away, or name another --out")
    if settings.uplink.tls is None:
        raise Misconfigured(f"{path} has no [uplink.tls]: move it away, and `fogline-edge enroll` writes one that has")


def renew(settings: EdgeSettings) -> None:
    """Get a new certificate by the present one, and write it in its place. Raises `Misconfigured`, `Unreachable`."""
    tls = settings.uplink.tls
    if tls is None or tls.certificate is None or tls.certificate != tls.key:
        raise Misconfigured("only a gateway that was enrolled can renew: uplink.tls.certificate and key name one file")
    found = asyncio.run(_renewed(settings))
    try:
        replace_file(Path(tls.certificate), found.pair)
    except OSError as error:
        raise Misconfigured(f"{tls.certificate}: cannot write: {error.strerror}") from None


async def _renewed(settings: EdgeSettings) -> Identity:
    """Return a new certificate of the first bridge that issues one. Raises `Unreachable`, `Misconfigured`."""
    return await _first(settings, lambda way: _request(way, settings.tenant, settings.gateway))


async def _first(settings: EdgeSettings, ask: Callable[[_Way], Awaitable[T]]) -> T:
    """Return the answer of the first bridge that can be reached. Raises `Unreachable`, and what `ask` raises."""
    reasons: list[str] = []
    require_bridge(settings.uplink, "a certificate by the bridge")
    security, proxy = uplink_security(settings.uplink), uplink_proxy(settings.uplink)
    for bridge in settings.uplink.bridges:
        try:
            return await ask(_Way(bridge, security, proxy))
        except Unreachable as error:
            reasons.append(f"{bridge}: {error}")
    raise Unreachable("; ".join(reasons))


def revoke(settings: EdgeSettings) -> str:
    """Have the gateway's certificate revoked. Returns its serial number. Raises `Unreachable`, `Misconfigured`."""
    who = EnrollAddress(settings.tenant, settings.gateway)
    answer = asyncio.run(_first(settings, lambda way: _converse(way, who, Message(content_type=REVOKE_TYPE))))
    if not answer.revoked:
        raise Misconfigured(f"the bridge revokes nothing: {answer.refused}")
    return answer.revoked


async def _request(way: _Way, tenant: str, gateway: str) -> Identity:
    """Return a new key with its certificate. Raises `Unreachable`, `Misconfigured`."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, gateway)])
    request = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    message = Message(body=request.public_bytes(serialization.Encoding.PEM), content_type=REQUEST_TYPE)
    answer = await _converse(way, EnrollAddress(tenant, gateway), message)
    if answer.refused:
        raise Misconfigured(f"the bridge at {way.bridge} issues no certificate: {answer.refused}")
    encoding, kind = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    secret = key.private_bytes(encoding, kind, serialization.NoEncryption())
    certificate = check_certificate(answer.certificate, key.public_key())
    return Identity(_times(certificate).encode() + answer.certificate.encode() + secret, answer.ca)


async def _converse(way: _Way, who: EnrollAddress, message: Message) -> Enrolled:
    """Return the answer of a bridge to one message. Raises `Unreachable`. Safe to cancel: the bridge may have the message."""
    address = parse_bridge(way.bridge, "--bridge", tls=True)
    security = msgspec.structs.replace(way.security, websocket=address.websocket)
    client = AmqpClient(who.gateway, {"tenant": who.tenant, "product": PRODUCT}, security)
    try:
        async with client, asyncio.timeout(LIMIT_S):
            await client.open(address.host, address.port, way.proxy)
            inbox = Inbox(client, "certificates", str(who), credit=1)
            client.attach("requests", str(who))
            client.send(message)
            return read_document((await inbox.next()).body, Enrolled, "the answer")
    except TimeoutError:
        raise Unreachable(f"the bridge at {way.bridge} does not answer in {LIMIT_S:.0f} s") from None
    except Poison as error:
        raise Unreachable(f"the answer cannot be read: {error}") from None
    except Unreachable:
        if client.condition is None:
            raise
        raise Unreachable(f"the bridge refuses the link: {client.condition}") from None


def check_certificate(text: str, key: ec.EllipticCurvePublicKey) -> x509.Certificate:
    """Return the certificate in a bridge's answer, for `key` only: it replaces one that works. Raises `Unreachable`."""
    try:
        found = x509.load_pem_x509_certificate(text.encode())
        its_key = found.public_key()
    except Exception as error:  # noqa: BLE001 - whatever a library finds wrong in a peer's bytes
        raise Unreachable(f"the bridge's answer is no certificate: {str(error)[:200]}") from None
    if its_key != key or found.not_valid_after_utc <= datetime.now(UTC):
        raise Unreachable("the bridge's answer is a certificate of another key, or one that has ended")
    return found


def _times(certificate: x509.Certificate) -> str:
    return times_line(datetime.now(UTC), certificate.not_valid_after_utc)
