"""`fogline-edge doctor` and the errors of the uplink name the router, and say whether a bridge is behind it."""

import asyncio

import pytest
from msgspec.structs import replace

from fogline.errors import Misconfigured
from fogline.gateway.message_signature import GatewayName
from fogline.process.checkup import Grade
from fogline.process.files.via_settings import ViaSettings
from fogline_edge.operate.via_check import check_via
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.uplink.way import require_bridge, way_to
from fogline_lab.gateway.connected_gateway import running_uplink
from fogline_lab.intermediary.router import Router
from fogline_lab.kafka_broker import free_port
from fogline_lab.line.line import serving
from fogline_lab.line.via_line import behind
from fogline_lab.waiting import until


def told(line):
    return [(each.grade, each.subject) for each in check_via(line.settings())]


async def test_doctor_tells_whether_the_router_answers_and_whether_a_bridge_is_behind_it(line):
    async with Router() as router:
        behind(line, router.port)
        alone = await asyncio.to_thread(told, line)
        assert alone[-2:] == [(Grade.OK, "login"), (Grade.FAIL, "bridge")]
        async with serving(line):
            assert (await asyncio.to_thread(told, line))[-2:] == [(Grade.OK, "login"), (Grade.OK, "bridge")]
    assert (await asyncio.to_thread(told, line))[-1] == (Grade.FAIL, "router")


async def test_status_blames_the_router_that_does_not_answer(line):
    port = free_port()
    behind(line, port)
    outbox = Outbox.open(line.settings())
    async with running_uplink(outbox, line.settings().uplink) as uplink:
        await until(lambda: uplink.state.why, "no reason")
        assert uplink.state.why.startswith(f"the router at 127.0.0.1:{port}: cannot connect")
    await outbox.close()


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("amqp://router.example:5672", "without TLS only loopback"),
        ("router.example:5671", "expected amqps://host:port"),
        ("amqps://gw:secret@router.example", "no password here"),
        ("amqps://gw@router.example", "needs both"),
        ("amqps://router.example/path", "expected amqps://host:port"),
        ("http://router.example", "expected amqps://host:port"),
    ],
)
def test_a_mistake_in_the_address_of_a_router_names_the_key(line, url, why):
    behind(line, 1)
    settings = line.settings()
    uplink = replace(settings.uplink, via=ViaSettings(url=url))
    with pytest.raises(Misconfigured, match=r"uplink\.via") as found:
        way_to("", uplink, GatewayName(line.tenant, "gw-1"))
    assert why in str(found.value)


def test_a_certificate_is_not_renewed_by_way_of_a_router(line):
    behind(line, 1)
    with pytest.raises(Misconfigured, match="not by way of the router"):
        require_bridge(line.settings().uplink, "uplink.renew")
