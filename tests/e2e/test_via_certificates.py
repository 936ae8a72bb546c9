"""Behind a router a bridge checks the certificate in a hello as it does in TLS, and says what is wrong."""

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from fogline.amqp.client import AmqpClient
from fogline.amqp.outcome import DeliveryState
from fogline.amqp.security import ClientSecurity
from fogline.errors import Misconfigured
from fogline.events.codec import Beacon
from fogline.gateway.hello import HELLO_CONTENT_TYPE, PROTOCOL, Hello, encode_hello
from fogline.gateway.message_signature import GatewayName
from fogline.message import Message
from fogline.process.files.tls_files import TlsSettings
from fogline_cloud.authority.ca_folder import CaFolder
from fogline_cloud.authority.certificates import Role, now_utc
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.uplink.via.identity import GatewayIdentity
from fogline_edge.uplink.via.signed_line import SignedLine
from fogline_lab.amqp import within
from fogline_lab.credentials.authority_folder import HERE, AuthorityFolder
from fogline_lab.intermediary.router import Router
from fogline_lab.line.line import Line, serving
from fogline_lab.line.via_line import behind
from fogline_lab.waiting import until

Files = Callable[[AuthorityFolder], TlsSettings]


def foreign(site: AuthorityFolder) -> TlsSettings:
    folder = site.folder / "foreign"
    folder.mkdir()
    return site.files(Role.GATEWAY, "gw-1", ca=CaFolder.make(folder / "ca", site.tenant, now_utc(), 1))


def revoked(site: AuthorityFolder) -> TlsSettings:
    files = site.files(Role.GATEWAY, "gw-7")
    site.ca.revoke("gw-7", now_utc(), 1)
    return files


def with_another_key(site: AuthorityFolder) -> TlsSettings:
    own, other = site.files(Role.GATEWAY, "gw-1"), site.files(Role.GATEWAY, "gw-2")
    return TlsSettings(ca=own.ca, certificate=own.certificate, key=other.key)


WRONG: dict[str, tuple[Files, str, str]] = {
    "another authority's": (foreign, "gw-1", "of an authority that is not trusted here"),
    "expired": (lambda site: site.files(Role.GATEWAY, "gw-1", later_days=-2), "gw-1", "has expired"),
    "not yet valid": (lambda site: site.files(Role.GATEWAY, "gw-1", later_days=1), "gw-1", "is valid from"),
    "revoked": (revoked, "gw-7", "it is revoked"),
    "another gateway's": (lambda site: site.files(Role.GATEWAY, "gw-2"), "gw-1", "is of gateway"),
    "an operator's": (lambda site: site.files(Role.OPERATOR, "gw-1"), "gw-1", "is for role operator"),
    "a device's": (lambda site: site.files(Role.DEVICE, "gw-1"), "gw-1", "is for role device"),
    "a bridge's": (lambda site: site.files(Role.BRIDGE, "gw-1"), "gw-1", "is for role bridge"),
    "another key": (with_another_key, "gw-1", "its signature is wrong"),
}


def hello(line: Line, files: TlsSettings, name: str, challenge: str = "") -> Message:
    """Return a hello in the name of a gateway, signed with the key in these files."""
    signed = SignedLine(GatewayIdentity(GatewayName(line.tenant, name), files), uuid.uuid4().hex, print)
    body = Hello(
        protocol=PROTOCOL, version="1", gateway=name, beacon=Beacon("b1", 1), streams=[], epoch=signed.epoch, journal="j"
    )
    message = Message(body=encode_hello(body), content_type=HELLO_CONTENT_TYPE, correlation_id=uuid.uuid4())
    return signed.hello(message, challenge)


async def test_a_hello_with_a_wrong_certificate_or_an_old_answer_is_refused_with_the_reason(line):
    async with Router() as router:
        _, site = behind(line, router.port)
        made = {kind: (files(site), name, why) for kind, (files, name, why) in WRONG.items()}
        async with serving(line) as bridge, AmqpClient("stranger", {}, ClientSecurity()) as client:
            await client.open(HERE, router.port)
            client.attach("hello", f"hello/{line.tenant}")

            async def refused(message: Message) -> str:
                outcome = await within(client.send(message), "no outcome")
                assert outcome.state is DeliveryState.REJECTED
                return outcome.description

            for kind, (files, name, why) in made.items():
                assert why in await refused(hello(line, files, name)), kind
            own = site.files(Role.GATEWAY, "gw-1")
            assert "does not answer a challenge" in await refused(hello(line, own, "gw-1", "1.made-up"))
            assert "shows no certificate" in await refused(Message(content_type=HELLO_CONTENT_TYPE))
            assert "no hello of it counts here" in await refused(Message(body=b"report"))
            assert bridge.gateways.names == []
        async with serving(line), line.gateway() as outbox:
            await line.put(outbox, 1)
            await line.drained(outbox)


@pytest.mark.parametrize("chain", [b"", b"x"])
def test_a_certificate_that_cannot_be_read_is_a_mistake_of_the_gateway_s_own_files(line, chain):
    _, site = behind(line, 1)
    files = site.files(Role.GATEWAY, "gw-1")
    Path(str(files.certificate)).write_bytes(chain)
    with pytest.raises(Misconfigured):
        GatewayIdentity(GatewayName(line.tenant, "gw-1"), files)


@pytest.mark.fault("S1", "S6")
async def test_gateway_behind_a_router_that_is_revoked_is_told_and_refused_when_it_comes_back(line, monkeypatch):
    monkeypatch.setattr("fogline_cloud.bridge.bridge.FILES_S", 0.05)
    async with Router() as router:
        _, site = behind(line, router.port)
        async with line.bridge() as bridge:
            outbox = Outbox.open(line.settings())
            async with line.uplink(outbox) as uplink:
                await line.put(outbox, *range(100))
                await line.drained(outbox)
                site.ca.revoke("gw-1", now_utc(), 1)
                await until(lambda: bridge.gateways.names == [], "a revoked gateway stays connected")
                await until(lambda: "it is revoked" in uplink.state.why and "hello" in uplink.state.why, "it is not refused")
                await line.put(outbox, 100)
            await outbox.close()
    assert line.landed() == list(range(100))
