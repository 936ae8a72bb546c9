"""The page of the line: what is alive, and what is not at the next look."""

import re

from e2e.console_client import log_in, visitor
from e2e.http_api import served


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
