"""Whether the processes of the line on this machine, and Kafka, are there just now: a look that takes a second at most each.

A process that was killed closes its sockets and gives back its locks at once, so this says it before anything is late.
"""

import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec

from fogline.errors import Misconfigured
from fogline.process.files.settings_file import split_endpoint
from fogline_cloud.flows.start.lease import is_held
from fogline_cloud.settings import CloudSettings

LIMIT_S: Final = 1.0
"""The time that a process has to take a connection."""
MAX_SERVERS: Final = 8
"""Bootstrap servers that are looked at, the first ones."""


class Liveness(msgspec.Struct, frozen=True):
    """Why a part is not there; "" if it is, or if nothing here can tell."""

    kafka: str = ""
    bridge: str = ""
    flow: str = ""


def look(settings: CloudSettings) -> Liveness:
    """Look at all parts at once. Takes `LIMIT_S` at most; on a thread."""
    servers = str(settings.kafka.get("bootstrap.servers", "")).split(",")[:MAX_SERVERS]
    watched = [each for each in (settings.bridge.metrics, settings.flow.metrics) if each is not None]
    endpoints = [each.strip().rpartition("://")[2] for each in (*servers, *watched) if each.strip()]
    with ThreadPoolExecutor(len(endpoints) or 1) as pool:
        refusals = dict(zip(endpoints, pool.map(refusal, endpoints), strict=True))
    kafka = [f"{each}: {refusals[each]}" for each in endpoints[: len(endpoints) - len(watched)] if refusals[each]]
    return Liveness(
        "; ".join(kafka),
        _named("bridge.metrics", settings.bridge.metrics, refusals),
        _named("flow.metrics", settings.flow.metrics, refusals) or _lease(settings),
    )


def refusal(endpoint: str) -> str:
    """Return why nothing takes a connection at `host:port`, "" if something does."""
    try:
        host, port = split_endpoint(endpoint, "endpoint")
        socket.create_connection((host, port), LIMIT_S).close()
    except Misconfigured:
        return ""  # a form of librdkafka's that is not ours to judge
    except OSError as error:
        return error.strerror or str(error) or type(error).__name__
    return ""


def _named(key: str, endpoint: str | None, refusals: dict[str, str]) -> str:
    why = "" if endpoint is None else refusals[endpoint.strip()]
    return f"nothing listens at {endpoint} ({key}): {why}" if why else ""


def _lease(settings: CloudSettings) -> str:
    """Return that no flow holds the checkpoint, if that is on this machine, and a flow once held it."""
    gone = settings.flow.metrics is None and is_held(settings.flow.checkpoint) is False
    return f"no flow holds its checkpoint {settings.flow.checkpoint}" if gone else ""
