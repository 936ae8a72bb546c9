"""The files of an MQTT listener or an HTTP server with TLS, and the TLS contexts of its clients, good and bad."""

import ssl
from pathlib import Path
from typing import Any

from fogline.process.files.tls_files import TlsSettings, client_context
from fogline_cloud.authority.ca_folder import LIST, CaFolder
from fogline_cloud.authority.certificates import Role, now_utc
from fogline_edge.listener_settings import HttpTlsSettings, MqttTlsSettings
from fogline_lab.credentials.authority_folder import HERE, AuthorityFolder
from fogline_lab.credentials.mosquitto_passwords import password_file

TENANT = "acme"
PASSWORD = b"one"


class MqttTlsFiles:
    """The files of one gateway, and the authority.

    Users `lamp-1` and `hub` have the password `PASSWORD`; devices may also show certificates.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._other: CaFolder | None = None
        self.site = AuthorityFolder(folder, TENANT)
        self.own = self.site.files(Role.GATEWAY, "gw-1", hosts=[HERE, "localhost"])
        names = {name: PASSWORD.decode() for name in ("lamp-1", "hub")}
        (folder / "mqtt").mkdir()
        self.users = password_file(folder / "mqtt", **names)

    def settings(self, *, users: bool = True, certificates: bool = True, crl: bool = True, **more: Any) -> dict[str, Any]:
        """Return the settings of an MQTT listener that speaks TLS only."""
        tls = MqttTlsSettings(host=HERE, port=0, **self._files(certificates=certificates, crl=crl))
        return {"port": None, "tls": tls, **({"users": self.users} if users else {}), **more}

    def http_settings(self, *, users: bool = True, certificates: bool = True, **more: Any) -> dict[str, Any]:
        """Return the settings of an HTTP server that speaks TLS only."""
        tls = HttpTlsSettings(host=HERE, port=0, **self._files(certificates=certificates, crl=True))
        return {"port": None, "tls": tls, **({"users": self.users} if users else {}), **more}

    def _files(self, *, certificates: bool, crl: bool) -> dict[str, str]:
        assert self.own.certificate is not None
        assert self.own.key is not None
        files = {"certificate": self.own.certificate, "key": self.own.key}
        if certificates:
            files["ca"] = self.own.ca
        if certificates and crl:
            files["crl"] = str(self.site.ca.path / LIST)
        return files

    def trusting(self) -> ssl.SSLContext:
        """Return the TLS context of a client without a certificate."""
        return self.site.context()

    def device(self, name: str = "lamp-2", **how: Any) -> ssl.SSLContext:
        """Return the TLS context of a device with a new certificate. `how`: see `AuthorityFolder.files`."""
        return showing(self.site.files(Role.DEVICE, name, **how))

    def other(self) -> CaFolder:
        """Return another authority."""
        if self._other is None:
            self._other = CaFolder.make(self.folder / "other", TENANT, now_utc(), 1)
        return self._other


def showing(files: TlsSettings) -> ssl.SSLContext:
    """Return the TLS context of a client that shows the certificate in `files`."""
    return client_context(files, "client")


def tls_1_1(context: ssl.SSLContext) -> ssl.SSLContext:
    """Let a client speak no newer version than TLS 1.1."""
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    return context
