"""Settings of a router or a broker between gateways and bridges: both sides connect out to it (docs/way-out.md)."""

from enum import StrEnum
from pathlib import Path

import msgspec

from fogline.process.files.tls_files import TlsSettings, resolve_tls


class ViaKind(StrEnum):
    """A kind of what is between."""

    ROUTER = "router"
    """It passes the receiver's outcome on, and gives credit while there is a receiver (skupper-router, Qpid Dispatch)."""
    BROKER = "broker"
    """It stores messages, and answers for itself (Artemis)."""


IN_CLEAR_TEXT = ("amqp://", "ws://")
"""Beginnings of a URL without TLS."""


class ViaSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A router or a broker to which gateways and bridges connect, instead of the gateways to the bridges."""

    url: str
    """`amqps://host:port`, or `wss://host/path` for AMQP over WebSocket; `user@` before the host for a login by password.
    Without TLS, `amqp://` and `ws://` are for loopback only."""
    kind: ViaKind = ViaKind.ROUTER
    """`router`: it passes the bridge's outcomes on (skupper-router, Qpid Dispatch). `broker`: it stores messages (Artemis)."""
    password_file: str | None = None
    """File whose first line is the password. Only its owner may read it (mode 600)."""
    tls: TlsSettings | None = None
    """TLS with the router or the broker. Default: the files by which this side proves its name to the other side."""


def resolve_via(via: ViaSettings, folder: Path) -> ViaSettings:
    """Return the settings with absolute paths."""
    password_file = None if via.password_file is None else str(folder / via.password_file)
    tls = None if via.tls is None else resolve_tls(via.tls, folder)
    return msgspec.structs.replace(via, password_file=password_file, tls=tls)
