"""Certificates for a run: one for each name, from an authority of its own, with the key in the same file."""

from collections.abc import Sequence
from pathlib import Path

from fogline.process.files.durable_file import write_new
from fogline.process.files.tls_files import TlsSettings
from fogline_cloud.authority.ca_folder import ROOT, CaFolder
from fogline_cloud.authority.certificates import Role, Subject, key_pem, make_key, now_utc, pem

BRIDGE = "bridge"


def make_certificates(folder: Path, tenant: str, gateways: Sequence[str]) -> None:
    """Make them in `folder`, unless they are there."""
    if folder.exists():
        return
    ca = CaFolder.make(folder, tenant, now_utc(), 1)
    for role, name in ((Role.BRIDGE, BRIDGE), *((Role.GATEWAY, each) for each in gateways)):
        key, hosts = make_key(), ["127.0.0.1"] if role is Role.BRIDGE else []
        made = ca.issue(Subject(tenant, role, name, hosts), key.public_key(), now_utc(), 1)
        write_new(folder / f"{name}.pem", pem(made) + key_pem(key))


def files(folder: Path, name: str) -> TlsSettings:
    """The files of a name."""
    own = str(folder / f"{name}.pem")
    return TlsSettings(ca=str(folder / ROOT), certificate=own, key=own)


def lines(folder: Path, name: str, prefix: str) -> list[str]:
    """The same as settings."""
    found = files(folder, name)
    return [f'{prefix}.{key} = "{getattr(found, key)}"' for key in ("ca", "certificate", "key")]
