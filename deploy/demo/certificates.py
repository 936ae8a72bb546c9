"""Certificates of a run: an authority in the workspace's folder, and the commands by which a user enrols, renews and revokes.

The functions that run commands block, and raise `Misconfigured` if one fails.
"""

import json
import secrets
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509

from fogline.errors import Misconfigured
from fogline.process.files.durable_file import write_new
from fogline.process.files.tls_files import TlsSettings, resolve_tls
from fogline_cloud.authority.ca_folder import LIST, ROOT, CaFolder
from fogline_cloud.authority.certificates import Role, Subject, key_pem, make_key, now_utc, pem
from fogline_cloud.bridge.door.passwords import password_line
from fogline_cloud.settings import OperatorSettings
from fogline_edge.operate.first_settings import CA, CERTIFICATE
from fogline_lab.supervisor import find_script, run_to_end

HOST = "127.0.0.1"
OPERATOR = "operator-1"
USER = "operator"
"""The user who logs in at the operator's page."""
USERS = "users"
PASSWORD = "password"  # noqa: S105 - the name of the file that has it
FOLDER = "ca"
DAYS = 7.0


def make_certificates(folder: Path, tenant: str, bridges: Sequence[str]) -> None:
    """Make the authority, certificate and key of each bridge and the operator, and a user with a password, in `folder`.

    Raises `Misconfigured`.
    """
    password = secrets.token_urlsafe(9)
    write_new(folder / PASSWORD, password.encode())
    write_new(folder / USERS, password_line(USER, password).encode())
    ca = CaFolder.make(folder / FOLDER, tenant, now_utc(), DAYS)
    for role, name in [*((Role.BRIDGE, name) for name in bridges), (Role.OPERATOR, OPERATOR)]:
        key, hosts = make_key(), [HOST] if role is Role.BRIDGE else []
        made = ca.issue(Subject(tenant, role, name, hosts), key.public_key(), now_utc(), DAYS)
        write_new(folder / f"{name}.key", key_pem(key))
        (folder / f"{name}.pem").write_bytes(pem(made))


def bridge_tables(bridge: str, days: float) -> str:
    """Return lines for the end of `[bridge]`, and the tables behind it. `days`: validity of gateways' certificates."""
    return f"""\
crl = "{FOLDER}/{LIST}"
enrolment = true
users = "{USERS}"

[bridge.tls]
ca = "{FOLDER}/{ROOT}"
certificate = "{bridge}.pem"
key = "{bridge}.key"

[operator.tls]
ca = "{FOLDER}/{ROOT}"

[ca]
days = {days}
"""


def uplink_tables() -> str:
    """Return lines for the end of a gateway's `[uplink]`, and the table behind it, as `fogline-edge enroll` writes them."""
    return f"""\
renew = true

[uplink.tls]
ca = "{CA}"
certificate = "{CERTIFICATE}"
key = "{CERTIFICATE}"
"""


def operator_settings(folder: Path) -> OperatorSettings:
    """Return the settings of the operator, with absolute paths."""
    files = TlsSettings(ca=f"{FOLDER}/{ROOT}", certificate=f"{OPERATOR}.pem", key=f"{OPERATOR}.key")
    return OperatorSettings(tls=resolve_tls(files, folder))


def enrol(gateway: str, folder: Path, bridge_port: int, cloud: Path, log: Path) -> None:
    """Make a token, and let the gateway enrol with it at a bridge that runs. `folder`: the gateway's. `cloud`: settings."""
    token = _run(log, [find_script("fogline"), "gateway", "add", gateway, "--config", cloud])
    command = [find_script("fogline-edge"), "enroll", "-", "--bridge", f"{HOST}:{bridge_port}", "--out", folder]
    _run(log, command, typed=token)


def renew(edge: Path, log: Path) -> None:
    """Renew the certificate of the gateway with the settings file `edge`."""
    _run(log, [find_script("fogline-edge"), "renew", "--config", edge])


def revoke(gateway: str, cloud: Path, log: Path) -> None:
    """Revoke the certificates of a gateway."""
    _run(log, [find_script("fogline"), "ca", "revoke", gateway, "--config", cloud])


def audited(gateway: str, cloud: Path, log: Path) -> frozenset[str]:
    """Verify the audit, and return its decisions about a gateway."""
    fogline = find_script("fogline")
    _run(log, [fogline, "audit", "verify", "--config", cloud])
    lines = _run(log, [fogline, "audit", "show", "--about", gateway, "--json", "--config", cloud]).splitlines()
    return frozenset(json.loads(line)["decision"] for line in lines)


def issue_bridge(name: str, out: Path, cloud: Path, log: Path) -> None:
    """Issue another certificate with a new key to a bridge, in the folder `out`."""
    command = [find_script("fogline"), "ca", "issue", "bridge", name, "--host", HOST, "--days", DAYS]
    _run(log, [*command, "--out", out, "--config", cloud])


def serial_number(certificate: Path) -> str:
    """Return the serial number of the certificate in a file, in hexadecimal digits as `fogline ca list` has it."""
    return format(x509.load_pem_x509_certificate(certificate.read_bytes()).serial_number, "x")


def _run(log: Path, command: Sequence[object], typed: str = "") -> str:
    status, printed = run_to_end(command, log, typed=typed)
    if status:
        lines = log.read_text("utf-8", "replace").strip().splitlines()
        raise Misconfigured(f"`{Path(str(command[0])).name} {command[1]}` failed: {lines[-1] if lines else status} ({log})")
    return printed
