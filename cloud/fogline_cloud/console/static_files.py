"""The files of the operator's page that are the same for all: our own style and script, and those of the libraries."""

import hashlib
from functools import cache
from importlib.resources import files
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from fogline_cloud.api.problems import Problem

ROUTE: Final = "/console/static/{digest}/{name:path}"
_TYPES: Final = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml", "txt": "text/plain"}
_FOLDER = files("fogline_cloud.console") / "static"
_FOR_EVER: Final = "public, max-age=31536000, immutable"  # another content has another address


@cache
def _content_of(name: str) -> bytes:
    return (_FOLDER / name).read_bytes()


@cache
def _names() -> frozenset[str]:
    """Return the files that may be asked for."""
    found = [each.name for each in _FOLDER.iterdir() if each.is_file()]
    found += [f"vendor/{each.name}" for each in (_FOLDER / "vendor").iterdir() if each.is_file()]
    return frozenset(each for each in found if each.rpartition(".")[2] in _TYPES)


@cache
def address_of(name: str) -> str:
    """Return the address of a file, which changes with its content."""
    return f"/console/static/{hashlib.sha256(_content_of(name)).hexdigest()[:16]}/{name}"


async def serve_file(request: Request) -> Response:
    """Send a file. Raises `Problem` (404)."""
    name = str(request.path_params["name"])
    if name not in _names() or request.url.path != address_of(name):
        raise Problem(404, "there is no such file")
    return Response(_content_of(name), media_type=_TYPES[name.rpartition(".")[2]], headers={"cache-control": _FOR_EVER})
