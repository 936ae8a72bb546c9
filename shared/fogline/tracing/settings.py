"""The table `[tracing]` of the settings of gateway and cloud side."""

from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

from fogline.errors import Misconfigured
from fogline.transport.loopback import is_loopback


class TracingSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Spans for OpenTelemetry, of events whose device sent a `traceparent` (docs/operations.md). Without this table: none."""

    endpoint: str = "http://127.0.0.1:4318/v1/traces"
    """URL at which an OpenTelemetry collector takes traces (OTLP over HTTP, JSON). If it is away, spans are dropped; events
    never wait for it."""
    plain_on_lan: bool = False
    """`true`: `endpoint` may be `http://` on another machine, although names of devices and topics cross the network in clear
    text."""
    ca: str | None = None
    """File with the authorities that `https://` trusts (PEM). Default: those of the system."""


class CollectorAddress(NamedTuple):
    """The parts of `tracing.endpoint`."""

    secure: bool
    host: str
    port: int
    path: str

    def __str__(self) -> str:
        """Return the host and the port."""
        return f"{self.host}:{self.port}"


def collector_address(settings: TracingSettings) -> CollectorAddress:
    """Return the address of the collector. Raises `Misconfigured` if it is not a URL, or not safe."""
    where = f"tracing.endpoint = {settings.endpoint!r}"
    try:
        url = urlsplit(settings.endpoint)
        secure, host, port = url.scheme == "https", url.hostname, url.port
    except ValueError as error:
        raise Misconfigured(f"{where}: {error}") from None
    has_secret = url.username is not None or bool(url.query)  # logs and archives show the settings
    if url.scheme not in {"http", "https"} or not host or has_secret or not settings.endpoint.isascii():
        raise Misconfigured(f"{where}: expected a URL such as http://127.0.0.1:4318/v1/traces")
    if not secure and not settings.plain_on_lan and not is_loopback(host):
        raise Misconfigured(f"{where}: beyond this machine use https://, or set tracing.plain_on_lan")
    if not secure and settings.ca is not None:
        raise Misconfigured(f"{where}: tracing.ca has no effect without TLS. Write https://, or remove it")
    return CollectorAddress(secure, host, port or (443 if secure else 80), url.path or "/")


def resolve_tracing(tracing: TracingSettings | None, folder: Path) -> TracingSettings | None:
    """Return the settings with an absolute path."""
    if tracing is None or tracing.ca is None:
        return tracing
    return msgspec.structs.replace(tracing, ca=str(folder / tracing.ca))
