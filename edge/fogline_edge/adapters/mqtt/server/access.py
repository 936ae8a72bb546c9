"""The files of users and of TLS, read again when they change."""

import ssl
from functools import partial
from pathlib import Path

from fogline.errors import Misconfigured
from fogline.process.files.tls_files import ReadAgain
from fogline_edge.adapters.sockets.access_rules import check_access, check_plain
from fogline_edge.adapters.sockets.listener_tls import listener_context
from fogline_edge.adapters.users import UserSecret, load_users
from fogline_edge.settings import MqttSettings


class ListenerAccess:
    """Checks passwords, and has the TLS context for new connections. Files are read again when they change.

    Raises `Misconfigured`, also for settings by which a peer beyond this machine would need no login.
    """

    def __init__(self, settings: MqttSettings) -> None:
        check_access("mqtt", settings)
        users, tls = settings.users, settings.tls
        if settings.subscribers and users is None and (tls is None or tls.ca is None):
            raise Misconfigured("mqtt.subscribers names users, and nobody logs in: set mqtt.users or mqtt.tls.ca")
        self._users = None if users is None else ReadAgain(partial(load_users, Path(users), "mqtt.users"), [users])
        self._tls = None if tls is None else listener_context(tls, "mqtt.tls", passwords=users is not None)
        web, self._web_tls = settings.websocket, None
        if web is None:
            return
        if settings.websocket_tls is None:
            check_plain("mqtt", "mqtt.websocket.host", settings.websocket_host, settings)
        else:
            passwords, protocols = users is not None, ("http/1.1",)
            self._web_tls = listener_context(settings.websocket_tls, "mqtt.tls", passwords=passwords, protocols=protocols)

    def tls_context(self) -> ssl.SSLContext:
        """Return the context for a new connection. Only with `[mqtt.tls]`."""
        assert self._tls is not None
        return self._tls.get()

    def websocket_context(self) -> ssl.SSLContext:
        """Return the context for a new connection of WebSocket. Only with `[mqtt.websocket]` over TLS."""
        assert self._web_tls is not None
        return self._web_tls.get()

    def secret_of(self, name: str) -> UserSecret | None:
        """Return what a user's password is compared with now; None for an unknown user, and without `users`."""
        return self._users.get().secret_of(name) if self._users is not None else None

    def verify(self, name: str, password: bytes) -> bool:
        """Return True if this is the user's password. It is slow on purpose: call it in a thread. Only with `users`."""
        assert self._users is not None
        return self._users.get().verify(name, password)
