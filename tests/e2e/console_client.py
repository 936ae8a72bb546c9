"""A visitor of the operator's page without a browser: keeps cookies, and finds the tokens of forms."""

import re
from urllib.parse import urlsplit

import httpx

from e2e.http_api import Served
from fogline_lab.credentials.authority_folder import PASSWORD

_TOKEN = re.compile(r'name="csrf" value="([^"]+)"')


def visitor(found: Served, **more) -> httpx.AsyncClient:
    """A client with cookies of its own."""
    return httpx.AsyncClient(base_url=found.url, timeout=60, verify=more.pop("verify", True), **more)


def origin(client: httpx.AsyncClient) -> dict[str, str]:
    """The header by which a browser says which site's page has the form."""
    parts = urlsplit(str(client.base_url))
    return {"origin": f"{parts.scheme}://{parts.netloc}"}


async def token(client: httpx.AsyncClient, path: str = "/console/login") -> str:
    """The token of the first form of a page."""
    found = _TOKEN.search((await client.get(path)).text)
    assert found is not None, f"{path} has no form"
    return found[1]


async def log_in(client: httpx.AsyncClient, name: str, password: str = PASSWORD, **more: str) -> httpx.Response:
    """Log in by the form. The status is 303 if that succeeds."""
    fields = {"csrf": await token(client), "name": name, "password": password, **more}
    return await client.post("/console/login", data=fields, headers=origin(client))
