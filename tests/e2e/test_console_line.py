"""The page of the line: what is alive, and what is not at the next look."""

import re
from contextlib import AsyncExitStack

from msgspec.structs import replace

from e2e.console_client import log_in, visitor
from e2e.http_api import api, served
from fogline_lab.line.line import serving
from fogline_lab.waiting import until_not


def part(page: str, name: str) -> str:
    found = re.search(rf'<li class="part[^"]*">\s*<h2>{name}</h2>.*?</li>', page, re.DOTALL)
    assert found is not None, page
    return found[0]


async def test_line_shows_its_parts_and_a_bridge_that_is_gone(line):
    async with served(line) as (found, _, bridge, *_), visitor(found) as client:
        await log_in(client, "alice")
        home = await client.get("/console")
        assert home.headers["location"] == "/console/line"
        page = (await client.get("/console/line")).text
        assert "broken" not in page
        assert "never heard" in part(page, "Devices")
        assert "works" in part(page, "Bridges")
        assert f"hono.telemetry.{line.tenant}" in part(page, "Kafka")
        assert 'hx-trigger="every 2s"' in page
        await bridge.listener.close()
        for session in list(found.api.context.logins._sessions.values()):
            session.close()
        gone = part((await client.get("/console/parts/line?page=x")).text, "Bridges")
        assert "broken" in gone
        assert "no bridge answers" in gone
        assert "Restart it" in gone


async def test_gateway_and_bridge_that_stop_are_red_at_the_next_look(line):
    line.cloud = replace(line.cloud, bridge=replace(line.cloud.bridge, metrics="127.0.0.1:0"))
    async with AsyncExitStack() as of_bridge, AsyncExitStack() as of_gateway:
        bridge = await of_bridge.enter_async_context(serving(line))
        outbox = await of_gateway.enter_async_context(line.gateway())
        await line.put(outbox, 1)
        await line.drained(outbox)
        line.cloud = replace(line.cloud, bridge=replace(line.cloud.bridge, metrics=bridge.metrics_address))
        async with api(line) as found, visitor(found) as client:
            await log_in(client, "alice")

            async def lacks(name: str, text: str) -> bool:
                return text not in part((await client.get("/console/parts/line?page=x")).text, name)

            await until_not(lambda: lacks("Gateways", "1 of 1"), "the page does not know the gateway")
            assert await lacks("Gateways", "broken")
            await of_gateway.aclose()
            await until_not(lambda: lacks("Gateways", "gw-1 is not connected"), "the page does not see that it is gone")
            assert await lacks("Bridges", "broken")
            await of_bridge.aclose()
            await until_not(lambda: lacks("Bridges", "the bridge on this machine is not there"), "nor that the bridge is")
