"""An authority, the files of a listener with TLS, and clients of it, good and bad."""

import ssl
from pathlib import Path
from typing import Any

from e2e.secure_line import HERE, Site
from edge.mqtt.test_listener import password_file
from fogline.process.tls_files import TlsSettings, client_context
from fogline_cloud.authority.ca_folder import LIST, CaFolder
from fogline_cloud.authority.certificates import Role, now_utc
from fogline_edge.settings import MqttTlsSettings

TENANT = "acme"
PASSWORD = b"one"


class Secured:
    """The files. Users `lamp-1` and `hub` have the password `PASSWORD`; devices may also show certificates."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.site = Site(folder, TENANT)
        self.own = self.site.files(Role.GATEWAY, "gw-1", hosts=[HERE, "localhost"])
        names = {name: PASSWORD.decode() for name in ("lamp-1", "hub")}
        (folder / "mqtt").mkdir()
        self.users = password_file(folder / "mqtt", **names)

    def settings(self, *, users: bool = True, certificates: bool = True, crl: bool = True, **more: Any) -> dict[str, Any]:
        """Settings of a listener that speaks TLS only."""
        assert self.own.certificate is not None
        assert self.own.key is not None
        ca, revoked = (self.own.ca, str(self.site.ca.path / LIST)) if certificates else (None, None)
        files = {"certificate": self.own.certificate, "key": self.own.key, "ca": ca, "crl": revoked if crl else None}
        tls = MqttTlsSettings(host=HERE, port=0, **files)
        return {"port": None, "tls": tls, **({"users": self.users} if users else {}), **more}

    def trusting(self) -> ssl.SSLContext:
        """A client without a certificate."""
        return self.site.context()

    def device(self, name: str = "lamp-2", **how: Any) -> ssl.SSLContext:
        """A client with the certificate of a device. `how`: see `Site.files`."""
        return showing(self.site.files(Role.DEVICE, name, **how))

    def other(self) -> CaFolder:
        """Another authority."""
        return CaFolder.make(self.folder / "other", TENANT, now_utc(), 1)


def showing(files: TlsSettings) -> ssl.SSLContext:
    """A client that shows the certificate in `files`."""
    return client_context(files, "client")


def tls_1_1(context: ssl.SSLContext) -> ssl.SSLContext:
    """A client that speaks no newer version than 1.1."""
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    return context
