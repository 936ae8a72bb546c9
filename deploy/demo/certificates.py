"""Certificates of a run: an authority in the workspace's folder, and one certificate for each part and the operator."""

from collections.abc import Sequence
from pathlib import Path

from fogline.process.tls_files import TlsSettings, resolve_tls
from fogline_cloud.authority.ca_folder import LIST, ROOT, CaFolder, write_private
from fogline_cloud.authority.certificates import Role, Subject, key_pem, make_key, now_utc, pem
from fogline_cloud.settings import OperatorSettings

HOST = "127.0.0.1"
OPERATOR = "operator-1"
CA = "ca"
DAYS = 7.0


def make_certificates(folder: Path, tenant: str, bridges: Sequence[str], gateways: Sequence[str]) -> None:
    """Make the authority and a certificate and a key for each part, named after it, in `folder`. Raises `Misconfigured`."""
    ca = CaFolder.make(folder / CA, tenant, now_utc(), DAYS)
    owners = [*((Role.BRIDGE, name) for name in bridges), *((Role.GATEWAY, name) for name in gateways)]
    for role, name in [*owners, (Role.OPERATOR, OPERATOR)]:
        key, hosts = make_key(), [HOST] if role is Role.BRIDGE else []
        made = ca.issue(Subject(tenant, role, name, hosts), key.public_key(), now_utc(), DAYS)
        write_private(folder / f"{name}.key", key_pem(key))
        (folder / f"{name}.pem").write_bytes(pem(made))


def tls_table(table: str, name: str) -> str:
    """Return the table of a settings file that names the files of a part."""
    return f'[{table}]\nca = "{CA}/{ROOT}"\ncertificate = "{name}.pem"\nkey = "{name}.key"\n'


def crl_line() -> str:
    """Return the line of `[bridge]` that names the list of revoked certificates."""
    return f'crl = "{CA}/{LIST}"\n'


def operator_settings(folder: Path) -> OperatorSettings:
    """Return the settings of the operator, with absolute paths."""
    files = TlsSettings(ca=f"{CA}/{ROOT}", certificate=f"{OPERATOR}.pem", key=f"{OPERATOR}.key")
    return OperatorSettings(tls=resolve_tls(files, folder))
