"""Requests of an operator's commands to the HTTP API."""

import base64
import http.client
import ssl
from typing import Any
from urllib.parse import urlencode, urlsplit

import msgspec

from fogline.errors import Misconfigured, Unreachable
from fogline.process.files.tls_files import check_private
from fogline.process.files.user_file import read_password
from fogline.transport.loopback import is_loopback
from fogline_cloud.settings import CloudSettings, OperatorSettings

TIMEOUT_S = 120.0
"""Time for a response: the check of a parser takes up to a minute and a half."""
_REMEDIES = {
    401: "Check operator.user and operator.password_file",
    403: "See bridge.access at the bridge (docs/access.md)",
}


def request(
    settings: CloudSettings, method: str, path: str, *, query: dict[str, str] | None = None, body: bytes | None = None
) -> dict[str, Any]:
    """Return the JSON of a response. Raises `Misconfigured` with the API's own sentence, and `Unreachable`."""
    url = settings.operator.api
    if url is None:
        raise Misconfigured("operator.api is not set: give the address of the HTTP API, for example https://fog.example:8443")
    target = f"{urlsplit(url).path.rstrip('/')}{path}{f'?{urlencode(query)}' if query else ''}"
    headers = {**_login(settings.operator), "content-type": "application/octet-stream"}
    connection = _connection(settings.operator, url)
    try:
        connection.request(method, target, body, headers)
        response = connection.getresponse()
        status, data = response.status, response.read()
    except (OSError, http.client.HTTPException) as error:
        raise Unreachable(f"{url} does not answer: {error}") from None
    finally:
        connection.close()
    return _answer(url, status, data)


def _answer(url: str, status: int, data: bytes) -> dict[str, Any]:
    try:
        answer = msgspec.json.decode(data, type=dict[str, Any])
    except msgspec.MsgspecError:
        raise Misconfigured(f"{url} answers with status {status}, and no JSON: is it the API of Fogline?") from None
    if status < 400:
        return answer
    detail = str(answer.get("detail", f"status {status}"))
    if status == 503:
        raise Unreachable(detail)
    raise Misconfigured(f"{detail}. {_REMEDIES[status]}" if status in _REMEDIES else detail)


def _connection(settings: OperatorSettings, url: str) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    if parts.scheme == "https" and parts.hostname:
        context = ssl.create_default_context(cafile=None if settings.tls is None else settings.tls.ca)
        return http.client.HTTPSConnection(parts.hostname, parts.port, timeout=TIMEOUT_S, context=context)
    if parts.scheme == "http" and parts.hostname and is_loopback(parts.hostname):
        return http.client.HTTPConnection(parts.hostname, parts.port, timeout=TIMEOUT_S)
    raise Misconfigured(f"operator.api = {url!r}: expected https://host:port, or http://127.0.0.1:port")


def _login(settings: OperatorSettings) -> dict[str, str]:
    if settings.user is None:
        return {}
    password = ""
    if settings.password_file is not None:
        check_private(settings.password_file, "operator.password_file")
        password = read_password(settings.password_file, "operator.password_file")
    return {"authorization": "Basic " + base64.b64encode(f"{settings.user}:{password}".encode()).decode()}
