"""Settings of the HTTP API. docs/reference/settings.md is generated from them."""

import os
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta


class ApiTlsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Files in PEM for HTTPS, relative to the settings file."""

    certificate: str
    """File with the certificate of the API, and those between it and the authority's. `fogline ca issue bridge` makes one."""
    key: str
    """File with the private key of `certificate`. Only its owner may read it (mode 600)."""

    @property
    def ca(self) -> None:
        """No authority: users log in with names and passwords."""


class ApiSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The HTTP API (`fogline api run`). It reaches the bridge by `operator.bridge` and `operator.tls`."""

    listen: str = "127.0.0.1:8080"
    """Address to listen on as `host:port`. Beyond loopback it needs `api.tls`, and a bridge with TLS and `users`."""
    metrics: str | None = None
    """Address of `/metrics` and `/healthz` as `host:port`, for example `127.0.0.1:9467`. Only loopback. Default: none."""
    max_connections: Annotated[int, Meta(ge=1, le=10_000)] = 500
    """Largest number of HTTP connections. Further ones are closed at once."""
    max_streams: Annotated[int, Meta(ge=1, le=1000)] = 100
    """Largest number of event streams, each of which is a connection. Further ones get 503."""
    max_commands: Annotated[int, Meta(ge=1000)] = 50_000
    """Commands that can be listed and read: the newest ones, of all devices."""
    rollouts: str | None = None
    """Folder (relative to the settings file) of the roll-outs of the operator's page. Default: none, and it offers none."""
    tls: ApiTlsSettings | None = None


def resolve_api(api: ApiSettings, path: Path) -> ApiSettings:
    """Return the settings with absolute paths, which start at the folder of the settings file `path`. No link is followed."""

    def beside(file: str) -> str:
        return os.path.normpath((path.parent / file).absolute())

    tls = api.tls and ApiTlsSettings(certificate=beside(api.tls.certificate), key=beside(api.tls.key))
    return msgspec.structs.replace(api, rollouts=api.rollouts and beside(api.rollouts), tls=tls)
