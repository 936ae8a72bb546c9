"""The rules of the settings for listening and logging in, and the files of users and of TLS."""

import ssl
from functools import partial
from pathlib import Path

from fogline.errors import Misconfigured
from fogline.process.files.settings_file import is_loopback
from fogline.process.files.tls_files import ReadAgain, server_context
from fogline_edge.adapters.users import UserSecret, load_users
from fogline_edge.settings import MqttSettings, MqttTlsSettings


class ListenerAccess:
    """Checks passwords, and has the TLS context for new connections. Files are read again when they change.

    Raises `Misconfigured`, also for settings by which a peer beyond this machine would need no login.
    """

    def __init__(self, settings: MqttSettings) -> None:
        _check(settings)
        users, tls = settings.users, settings.tls
        self._users = None if users is None else ReadAgain(partial(load_users, Path(users), "mqtt.users"), [users])
        self._tls = None if tls is None else _context(tls, passwords=users is not None)

    def tls_context(self) -> ssl.SSLContext:
        """Return the context for a new connection. Only with `[mqtt.tls]`."""
        assert self._tls is not None
        return self._tls.get()

    def secret_of(self, name: str) -> UserSecret | None:
        """Return what a user's password is compared with now; None for an unknown user, and without `users`."""
        return self._users.get().secret_of(name) if self._users is not None else None

    def verify(self, name: str, password: bytes) -> bool:
        """Return True if this is the user's password. It is slow on purpose: call it in a thread. Only with `users`."""
        assert self._users is not None
        return self._users.get().verify(name, password)


def _context(tls: MqttTlsSettings, *, passwords: bool) -> ReadAgain[ssl.SSLContext]:
    read = partial(server_context, tls, "mqtt.tls", passwords=passwords, crl=tls.crl)
    paths = [each for each in (tls.certificate, tls.key, tls.ca, tls.crl) if each is not None]
    return ReadAgain(read, paths, signed=[tls.crl] if tls.crl is not None else [])


def _check(settings: MqttSettings) -> None:
    tls = settings.tls
    certified = tls is not None and tls.ca is not None
    if settings.plain_port is not None and not is_loopback(settings.host):
        _check_lan(settings)
    if tls is not None and not certified and settings.users is None:
        raise Misconfigured(
            "[mqtt.tls] says nothing of how devices log in: set `users` in [mqtt] (a file of mosquitto_passwd), or `ca` in "
            "[mqtt.tls] (the authority of their certificates), or both"
        )
    if tls is not None and tls.crl is not None and not certified:
        raise Misconfigured("mqtt.tls.crl needs mqtt.tls.ca, the authority whose certificates it revokes")
    if settings.acl and settings.users is None and not certified:
        raise Misconfigured("mqtt.acl names users, and nobody logs in: set mqtt.users or mqtt.tls.ca")


def _check_lan(settings: MqttSettings) -> None:
    where = f"mqtt.host = {settings.host!r}"
    if settings.users is None:
        raise Misconfigured(
            f"{where}: without a login only loopback is safe. Use 127.0.0.1, or set mqtt.users and [mqtt.tls] "
            "(docs/two-machines.md)"
        )
    if not settings.plain_on_lan:
        raise Misconfigured(
            f"{where}: passwords and events would cross the network in clear text. Use 127.0.0.1 and [mqtt.tls] "
            "(docs/two-machines.md), or accept it with plain_on_lan = true in [mqtt]"
        )
