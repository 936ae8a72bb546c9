"""Settings by which somebody beyond this machine could get in without a login: refused, for each listener in the same words."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from fogline.errors import Misconfigured
from fogline.transport.loopback import is_loopback
from fogline_edge.listener_settings import ListenerTlsSettings


class ListenerSettings(Protocol):
    """The settings of a listener that decide who gets in: those of `[mqtt]` or `[http]`."""

    @property
    def host(self) -> str:
        """Address to listen on without TLS."""

    @property
    def plain_port(self) -> int | None:
        """The port without TLS; None if only TLS is spoken."""

    @property
    def plain_on_lan(self) -> bool:
        """True if the user accepts clear text on a network."""

    @property
    def users(self) -> str | None:
        """The password file."""

    @property
    def acl(self) -> Mapping[str, Sequence[str]]:
        """Further devices that a user speaks for."""

    @property
    def tls(self) -> ListenerTlsSettings | None:
        """The settings of TLS."""


def check_access(table: str, settings: ListenerSettings) -> None:
    """Check the settings in `table`. Raises `Misconfigured`."""
    tls = settings.tls
    certified = tls is not None and tls.ca is not None
    if settings.plain_port is not None:
        check_plain(table, f"{table}.host", settings.host, settings)
    if tls is not None and not certified and settings.users is None:
        raise Misconfigured(
            f"[{table}.tls] says nothing of how devices log in: set `users` in [{table}] (a file of mosquitto_passwd), or `ca` "
            f"in [{table}.tls] (the authority of their certificates), or both"
        )
    if tls is not None and tls.crl is not None and not certified:
        raise Misconfigured(f"{table}.tls.crl needs {table}.tls.ca, the authority whose certificates it revokes")
    if settings.acl and settings.users is None and not certified:
        raise Misconfigured(f"{table}.acl names users, and nobody logs in: set {table}.users or {table}.tls.ca")


def check_plain(table: str, key: str, host: str, settings: ListenerSettings) -> None:
    """Check an address without TLS, the value of `key`. Raises `Misconfigured`."""
    if is_loopback(host):
        return
    where = f"{key} = {host!r}"
    if settings.users is None:
        raise Misconfigured(
            f"{where}: without a login only loopback is safe. Use 127.0.0.1, or set {table}.users and [{table}.tls] "
            "(docs/two-machines.md)"
        )
    if not settings.plain_on_lan:
        raise Misconfigured(
            f"{where}: passwords and events would cross the network in clear text. Use 127.0.0.1 and [{table}.tls] "
            f"(docs/two-machines.md), or accept it with plain_on_lan = true in [{table}]"
        )
