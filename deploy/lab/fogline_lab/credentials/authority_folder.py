"""A tenant's certificate authority in a folder, with the files of a bridge and its peers."""

import ssl
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import msgspec

from fogline.amqp.login import EXTERNAL, Login
from fogline.amqp.security import ClientSecurity
from fogline.process.files.durable_file import write_new
from fogline.process.files.tls_files import TlsSettings, client_context
from fogline_cloud.authority.ca_folder import ROOT, CaFolder
from fogline_cloud.authority.certificates import Role, Subject, key_pem, make_key, now_utc, pem
from fogline_cloud.bridge.door.passwords import password_line
from fogline_edge.settings import EdgeSettings

HERE = "127.0.0.1"
PASSWORD = "correct horse"  # noqa: S105 - of a test


class AuthorityFolder:
    """The files of an authority, a bridge and its peers in one folder. Operator `alice` has the password `PASSWORD`."""

    def __init__(self, folder: Path, tenant: str) -> None:
        self.folder, self.tenant = folder, tenant
        self.ca = CaFolder.make(folder / "ca", tenant, now_utc(), 1)
        self.users = folder / "users"
        write_new(self.users, password_line("alice", PASSWORD).encode())

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
        write_new(place / "key", key_pem(key))
        (place / "certificate").write_bytes(pem(made))
        root = str(self.ca.path / ROOT)
        return TlsSettings(ca=root, certificate=str(place / "certificate"), key=str(place / "key"))

    def client(self, role: Role, name: str) -> ClientSecurity:
        """Return the security of a client with a new certificate."""
        return certified(self.files(role, name))

    def context(self) -> ssl.SSLContext:
        """Return the TLS context of a client without a certificate."""
        return client_context(TlsSettings(ca=str(self.ca.path / ROOT)), "client")


def certified(files: TlsSettings) -> ClientSecurity:
    """Return the security of a client that shows the certificate in `files`."""
    return ClientSecurity(Login(EXTERNAL), client_context(files, "client"))


def with_tls(settings: EdgeSettings, tls: TlsSettings) -> EdgeSettings:
    """Return a gateway's settings with another certificate."""
    return msgspec.structs.replace(settings, uplink=msgspec.structs.replace(settings.uplink, tls=tls))
