"""A tenant whose bridge speaks TLS, with an authority of its own."""

import ssl
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import msgspec

from e2e.parts import Line
from fogline.amqp.login import EXTERNAL, Login
from fogline.amqp.security import ClientSecurity
from fogline.process.tls_files import TlsSettings, client_context
from fogline_cloud.authority.ca_folder import LIST, ROOT, CaFolder, write_private
from fogline_cloud.authority.certificates import Role, Subject, key_pem, make_key, now_utc, pem
from fogline_cloud.bridge.passwords import password_line
from fogline_edge.settings import EdgeSettings

HERE = "127.0.0.1"
PASSWORD = "correct horse"


class Site:
    """The files of an authority, a bridge and its peers in one folder."""

    def __init__(self, folder: Path, tenant: str) -> None:
        self.folder, self.tenant = folder, tenant
        self.ca = CaFolder.make(folder / "ca", tenant, now_utc(), 1)
        self.users = folder / "users"
        write_private(self.users, password_line("alice", PASSWORD).encode())

    def files(
        self,
        role: Role,
        name: str,
        *,
        ca: CaFolder | None = None,
        later_days: float = 0,
        days: float = 1,
        hosts: Sequence[str] = (),
    ) -> TlsSettings:
        """Issue a certificate from `later_days` on, and write it with its key and the root that its owner trusts."""
        key, hosts = make_key(), [HERE] if role is Role.BRIDGE else hosts
        made = (ca or self.ca).issue(
            Subject(self.tenant, role, name, hosts), key.public_key(), now_utc() + timedelta(days=later_days), days
        )
        place = self.folder / f"{role}-{name}-{made.serial_number:x}"
        place.mkdir()
        write_private(place / "key", key_pem(key))
        (place / "certificate").write_bytes(pem(made))
        root = str(self.ca.path / ROOT)
        return TlsSettings(ca=root, certificate=str(place / "certificate"), key=str(place / "key"))

    def client(self, role: Role, name: str) -> ClientSecurity:
        """A client that shows a certificate of its own."""
        return certified(self.files(role, name))

    def context(self) -> ssl.SSLContext:
        """What a client without a certificate trusts."""
        return client_context(TlsSettings(ca=str(self.ca.path / ROOT)), "client")


def certified(files: TlsSettings) -> ClientSecurity:
    """A client that shows the certificate in `files`."""
    return ClientSecurity(Login(EXTERNAL), client_context(files, "client"))


def secure(line: Line) -> tuple[Line, Site]:
    """Return the tenant with TLS at its bridge and its gateway `gw-1`."""
    site = Site(line.folder, line.tenant)
    bridge = msgspec.structs.replace(
        line.cloud.bridge, tls=site.files(Role.BRIDGE, "bridge-1"), crl=str(site.ca.path / LIST), users=str(site.users)
    )
    line.cloud = msgspec.structs.replace(line.cloud, bridge=bridge)
    line.uplink_tls = site.files(Role.GATEWAY, "gw-1")
    return line, site


def with_tls(settings: EdgeSettings, tls: TlsSettings) -> EdgeSettings:
    """Return a gateway's settings with another certificate."""
    return msgspec.structs.replace(settings, uplink=msgspec.structs.replace(settings.uplink, tls=tls))
