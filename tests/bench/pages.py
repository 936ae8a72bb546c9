"""Open pages of operators beside commands: what they cost the API in memory, and commands in time."""

import asyncio
import time
from contextlib import AsyncExitStack

from commands import EVERY_S, LIMIT_S, WARM, connected, http_command, until_reached
from http_request import HttpConnection
from processes import Bench, Failed, cpu_s, peak_rss_mib, quantile

from fogline_cloud.commands.client.operator import Operator
from fogline_cloud.console.live_pages import EVERY_S as RENEW_S
from fogline_cloud.console.live_pages import MAX_PAGES

COMMANDS = 200
SETTLE_S = 4 * RENEW_S


def measure(bench: Bench) -> dict[str, float]:
    """Commands over HTTP through one API process, without pages and with as many as it takes."""
    cloud = bench.cloud(f"pages{bench.number}", 2)
    with bench.bridge(cloud) as (_, port), bench.api(cloud, port) as (api, http_port):
        return asyncio.run(_measured(bench, cloud.stem, port, api, http_port))


async def _measured(bench, tenant, port, api, http_port) -> dict[str, float]:
    async with AsyncExitStack() as stack:
        _, mqtt_port = stack.enter_context(bench.gateway("gw-pages", port, tenant))
        device = await stack.enter_async_context(connected(mqtt_port, "lamp-pages"))
        operator = await stack.enter_async_context(Operator("127.0.0.1", port, tenant))
        await device.take_commands()
        await device.publish("telemetry", b"1")
        await until_reached(operator, "lamp-pages")
        http = HttpConnection(http_port)
        await http.open()
        stack.push_async_callback(http.close)
        await _until_served(http)
        for _ in range(WARM):
            await http_command(http, "lamp-pages")
        bench.say("pages, none open")
        alone_s, memory = await _commands(http), peak_rss_mib(api)
        bench.say(f"pages, {MAX_PAGES} open")
        url = f"http://127.0.0.1:{http_port}"
        readers = stack.enter_context(bench.child("readers", *bench.program("page_readers"), url, MAX_PAGES))
        await asyncio.to_thread(readers.next_line)
        before_s = cpu_s(api)
        await asyncio.sleep(SETTLE_S)  # a rate cannot be waited for
        busy = (cpu_s(api) - before_s) / SETTLE_S
        await http.close()  # the API has closed it: it was idle for long
        await http.open()
        beside_s = await _commands(http)
        readers.tell("end")
        answers = await asyncio.to_thread(readers.next_line)
    if answers.get("others") or not answers.get("pages"):
        raise Failed(f"not every page renewed itself: {answers}")
    found = {f"pages.alone_p{each}": quantile(alone_s, each / 100) * 1000 for each in (50, 99)}
    found |= {f"pages.beside_p{each}": quantile(beside_s, each / 100) * 1000 for each in (50, 99)}
    ratio = found["pages.beside_p99"] / found["pages.alone_p99"]
    return {**found, "pages.ratio": ratio, "pages.mib": peak_rss_mib(api) - memory, "pages.cpu": busy}


async def _until_served(http: HttpConnection) -> None:
    """Until the API has read what Kafka has."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            await http_command(http, "lamp-pages")
        except Failed:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.05)
        else:
            return


async def _commands(http: HttpConnection) -> list[float]:
    taken_s = []
    for _ in range(COMMANDS):
        taken_s.append(await http_command(http, "lamp-pages"))
        await asyncio.sleep(max(0.0, EVERY_S - taken_s[-1]))
    return taken_s
