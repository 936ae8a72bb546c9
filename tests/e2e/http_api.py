"""A bridge, a gateway with a device, and the HTTP API with the operator's page in front of them, on real sockets."""

import base64
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx
from msgspec.structs import replace

from fogline_cloud.api.api import Api
from fogline_cloud.api_settings import ApiSettings
from fogline_cloud.console.console import console_routes
from fogline_lab.line.line import commandable
from fogline_lab.waiting import until_not

COMMANDS = "/v1/devices/lamp-1/commands"
SWITCH = {"name": "switch", "data": {"on": True}}


@dataclass
class Served:
    """One API, and a client of it."""

    api: Api
    url: str
    http: httpx.AsyncClient


@asynccontextmanager
async def api(line, port=None, *, auth=None, verify=True, **settings):
    """The API in front of a bridge on `port`, once it has read what Kafka has."""
    operator = replace(line.cloud.operator, bridge=f"127.0.0.1:{port or line.port}")
    settings_of_api = ApiSettings(**{"listen": "127.0.0.1:0", **settings})
    made = Api(replace(line.cloud, operator=operator, api=settings_of_api), console_routes)
    host, bound = await made.start()
    scheme = "https" if settings.get("tls") else "http"

    async def behind() -> bool:
        return not made.context.tail_loaded

    try:
        await until_not(behind, "the API does not read Kafka")
        url = f"{scheme}://{host}:{bound}"
        async with httpx.AsyncClient(base_url=url, timeout=60, auth=auth, verify=verify) as http:
            yield Served(made, url, http)
    finally:
        await made.close()


@asynccontextmanager
async def served(line, **more):
    """A bridge, a gateway whose device `lamp-1` has been heard of, and the API."""
    async with commandable(line) as (bridge, outbox, downlink), api(line, **more) as found:
        yield found, downlink, bridge, outbox


def basic(user, password):
    """The header of a login."""
    return {"authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}
