"""The part of `fogline-edge doctor` about a router or a broker on the way to the bridge."""

import asyncio
from collections.abc import Iterator
from importlib.metadata import version

from fogline.address import HelloAddress
from fogline.amqp.client import AmqpClient
from fogline.amqp.login_check import try_login
from fogline.errors import Unreachable
from fogline.gateway.hello import PRODUCT
from fogline.gateway.message_signature import GatewayName
from fogline.message import Property
from fogline.process.checkup import Finding, Grade, check_bridge
from fogline.process.files.via_settings import ViaKind
from fogline_edge.settings import EdgeSettings
from fogline_edge.uplink.way import Way, way_to

CREDIT_S = 5.0
"""Time that a router has to give credit if a bridge is there."""


def check_via(settings: EdgeSettings) -> Iterator[Finding]:
    """Reach the router or broker, log in, and look for a bridge behind a router. Disturbs no gateway that runs."""
    way = way_to("", settings.uplink, GatewayName(settings.tenant, settings.gateway))
    found = [
        each._replace(subject=str(way.kind)) if each.subject == "bridge" else each
        for each in check_bridge(str(way.address), "uplink.via.url", way.security.tls, way.proxy)
    ]
    yield from found
    if all(each.grade is not Grade.FAIL for each in found):
        yield from asyncio.run(_visit(way, settings))


async def _visit(way: Way, settings: EdgeSettings) -> list[Finding]:
    host, port = way.address.host, way.address.port
    properties: dict[str, Property] = {"tenant": settings.tenant, "product": PRODUCT, "version": version("fogline-edge")}
    if why := await try_login(host, port, AmqpClient(settings.gateway, properties, way.security), way.proxy):
        remedy = "Check [uplink.via]: user and password_file, or the certificate that the router or broker expects"
        return [Finding(Grade.FAIL, "login", f"{way.place} does not let gateway {settings.gateway} in: {why}", remedy)]
    findings = [Finding(Grade.OK, "login", f"{way.place} lets gateway {settings.gateway} in")]
    if way.kind is ViaKind.ROUTER:
        async with AmqpClient(settings.gateway, properties, way.security) as client:
            findings.append(await _look_for_bridge(client, way, settings.tenant))
    return findings


async def _look_for_bridge(client: AmqpClient, way: Way, tenant: str) -> Finding:
    """Return whether a bridge listens: a router gives credit then, and only then."""
    has_credit = asyncio.Event()
    try:
        await client.open(way.address.host, way.address.port, way.proxy)
        sender = client.attach("hello", str(HelloAddress(tenant)))
        sender.on_credit = has_credit.set
        async with asyncio.timeout(CREDIT_S):
            await has_credit.wait()
    except (TimeoutError, Unreachable):
        remedy = "Check [[bridge.via]] in the bridge's cloud.toml, and its log"
        return Finding(Grade.FAIL, "bridge", f"no bridge of tenant {tenant} is connected to {way.place}", remedy)
    return Finding(Grade.OK, "bridge", f"a bridge of tenant {tenant} is connected to {way.place}")
