"""`fogline ca`: a certificate authority for gateways, bridges, operators and devices."""

import argparse
import json
import os
from pathlib import Path
from typing import Any

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256

from fogline.address import is_identifier
from fogline.errors import Misconfigured
from fogline.process.console.command_line import add_limit
from fogline.process.console.listing import show_rows, utc
from fogline.process.console.terminal import show
from fogline.process.files.durable_file import write_new
from fogline.process.files.owner import as_owner, become_owner
from fogline_cloud.authority.ca_folder import ROOT, STATES, CaFolder, Known
from fogline_cloud.authority.certificates import Role, Subject, key_pem, make_key, now_utc, pem
from fogline_cloud.cli.common import add_command, add_group
from fogline_cloud.settings import CloudSettings, load

EXAMPLE = """\
examples:
  fogline ca init                                       make the authority, once
  fogline ca issue bridge bridge-1 --host fog.example   a certificate for a bridge that is reached at fog.example
  fogline ca issue gateway gw-1 --out gw-1              a certificate and a key, for the gateway's settings folder
  fogline ca issue operator alice
  fogline ca issue device lamp-1                        a certificate for MQTT over TLS
  fogline ca revoke gw-1                                bridges then close its connection
  fogline ca crl                                        sign the list of revoked certificates anew
  fogline ca list
"""


def register(groups: "argparse._SubParsersAction[Any]") -> None:
    """Add the subcommands."""
    raw: dict[str, Any] = {"epilog": EXAMPLE, "formatter_class": argparse.RawDescriptionHelpFormatter}
    commands = add_group(groups, "ca", "a certificate authority for TLS", description=__doc__, **raw)
    add_command(commands, "init", run_init, "make the authority, once", **raw)
    issue = add_command(commands, "issue", run_issue, "issue a certificate with a new key", **raw)
    issue.add_argument("role", choices=[each.value for each in Role], help="what the owner is")
    issue.add_argument("name", help="the name of the gateway, bridge, operator or device")
    hosts = "host name or address of a bridge, or of a gateway that devices reach by TLS; may be repeated"
    issue.add_argument("--host", action="append", default=[], help=hosts)
    issue.add_argument("--days", type=float, help="days until it ends (default: ca.days of the settings)")
    issue.add_argument("--out", type=Path, default=Path(), help="folder for the files (default: this one)")
    listing = add_command(commands, "list", run_list, "list the certificates", **raw)
    listing.add_argument("--state", choices=STATES, help="only certificates in this state")
    add_limit(listing, 1000, "the newest")
    show = add_command(commands, "show", run_show, "show the certificates of a name", **raw)
    show.add_argument("name", help="a name, or a serial number")
    revoke = add_command(commands, "revoke", run_revoke, "revoke the certificates of a name", **raw)
    revoke.add_argument("name", help="a name, or a serial number")
    add_command(commands, "crl", run_crl, "sign the list of revoked certificates anew", **raw)


def run_init(arguments: argparse.Namespace) -> int:
    """Make the authority."""
    become_owner(arguments.config.parent)
    settings = load(arguments.config, kafka=False)
    folder = CaFolder.make(Path(settings.ca.folder), settings.tenant, now_utc(), settings.ca.crl_days)
    ends = folder.authority.certificate.not_valid_after_utc
    facts = {"folder": str(folder.path), "fingerprint": _fingerprint(folder.authority.certificate), "expires": utc(ends)}
    _print(arguments, facts, f"made the authority of {settings.tenant} in {folder.path}; keep its ca.key secret and safe")
    return 0


def run_issue(arguments: argparse.Namespace) -> int:
    """Issue one certificate, and write it and its key."""
    out, key = arguments.out, make_key()
    certificate, secret = out / f"{arguments.name}.pem", out / f"{arguments.name}.key"
    if os.path.lexists(secret):
        raise Misconfigured(f"{secret} exists already; move it away, or name another folder with --out")
    nearest = next(each for each in (out.absolute(), *out.absolute().parents) if each.exists())
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise Misconfigured(f"cannot write to {nearest}: name another folder with --out. No certificate was issued")
    made = as_owner(arguments.config.parent, lambda: _issue(arguments, key.public_key()), _Issued)
    become_owner(out)
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_new(secret, key_pem(key))
        certificate.write_bytes(made.certificate)
        (out / ROOT).write_bytes(made.root)
    except OSError as error:
        raise Misconfigured(f"--out {out}: cannot write: {error.strerror}") from None
    files = {"certificate": str(certificate), "key": str(secret), "ca": str(out / ROOT)}
    subject = Subject(made.tenant, Role(arguments.role), arguments.name)
    _print(arguments, {**files, "serial": made.serial, "expires": made.expires}, _usage(subject, certificate, secret))
    return 0


class _Issued(msgspec.Struct):
    tenant: str
    certificate: bytes
    root: bytes
    serial: str
    expires: str


def _issue(arguments: argparse.Namespace, key: object) -> _Issued:
    settings = load(arguments.config, kafka=False)
    folder = CaFolder.open(Path(settings.ca.folder))
    subject = _subject(settings, Role(arguments.role), arguments.name, arguments.host)
    made = folder.issue(subject, key, now_utc(), arguments.days or settings.ca.days)
    serial, expires = format(made.serial_number, "x"), utc(made.not_valid_after_utc)
    return _Issued(settings.tenant, pem(made), pem(folder.authority.certificate), serial, expires)


def _usage(subject: Subject, certificate: Path, secret: Path) -> str:
    """Return how the owner uses its files."""
    if subject.role is Role.DEVICE:
        files = f"--cafile {ROOT} --cert {certificate.name} --key {secret.name}"
        command = f"mosquitto_pub {files} -h GATEWAY -p 8883 -q 1 -t telemetry -m '{{}}'"
        return f"# for {subject}, with the files beside it\n{command}"
    tables = {Role.GATEWAY: "[uplink.tls]", Role.BRIDGE: "[bridge.tls]", Role.OPERATOR: "[operator.tls]"}
    lines = [tables[subject.role], f'ca = "{ROOT}"', f'certificate = "{certificate.name}"', f'key = "{secret.name}"']
    return "\n".join([f"# for the settings of {subject}, with the files beside them", *lines])


def _subject(settings: CloudSettings, role: Role, name: str, hosts: list[str]) -> Subject:
    if not is_identifier(name):
        raise Misconfigured(f"name {name!r}: expected up to 64 letters, digits, and . _ : -")
    if role is Role.BRIDGE and not hosts:
        raise Misconfigured("a bridge's certificate needs --host, the name or address at which gateways reach it")
    if hosts and role not in {Role.BRIDGE, Role.GATEWAY}:
        raise Misconfigured(f"--host is for bridges and gateways, not for a {role.value}")
    return Subject(settings.tenant, role, name, hosts)


def run_list(arguments: argparse.Namespace) -> int:
    """Print the certificates."""
    known, now = CaFolder.open(Path(load(arguments.config, kafka=False).ca.folder)).known(), now_utc()
    found = [each for each in known if arguments.state in (None, each.state(now))]
    shown = found[-arguments.limit :]
    _show(arguments, shown, "there is no such certificate", len(found) - len(shown))
    return 0


def run_show(arguments: argparse.Namespace) -> int:
    """Print the certificates of a name. Return 1 if there are none."""
    known = CaFolder.open(Path(load(arguments.config, kafka=False).ca.folder)).known()
    found = [each for each in known if arguments.name in (each.issued.name, each.issued.serial)]
    _show(arguments, found, f"there is no certificate of {arguments.name}")
    return 0 if found else 1


def run_revoke(arguments: argparse.Namespace) -> int:
    """Revoke, and print what was revoked. Return 1 if nothing was valid any more."""
    become_owner(arguments.config.parent)
    settings = load(arguments.config, kafka=False)
    folder = CaFolder.open(Path(settings.ca.folder))
    revoked = folder.revoke(arguments.name, now_utc(), settings.ca.crl_days)
    _show(arguments, revoked, f"no certificate of {arguments.name} is valid any more")
    return 0 if revoked else 1


def run_crl(arguments: argparse.Namespace) -> int:
    """Sign the list of revoked certificates anew."""
    become_owner(arguments.config.parent)
    settings = load(arguments.config, kafka=False)
    folder = CaFolder.open(Path(settings.ca.folder))
    made = folder.write_list(now_utc(), settings.ca.crl_days)
    number = made.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
    until = utc(made.next_update_utc)
    facts = {"number": number, "revoked": len(made), "until": until}
    _print(arguments, facts, f"list {number}: {len(made)} revoked, holds until {until}")
    return 0


def _show(arguments: argparse.Namespace, known: list[Known], empty: str, more: int = 0) -> None:
    now = now_utc()
    found = [
        {
            "serial": each.issued.serial,
            "role": each.issued.role.value,
            "name": each.issued.name,
            "state": each.state(now),
            "expires": utc(each.issued.expires),
        }
        for each in known
    ]
    if arguments.json:
        show(json.dumps(found))
        return
    columns = ("state", "role", "name", "expires", "serial")
    show_rows(columns, [[each[name] for name in columns] for each in found], empty, more)


def _print(arguments: argparse.Namespace, facts: dict[str, Any], text: str) -> None:
    for line in (json.dumps(facts) if arguments.json else text).splitlines():
        show(line)


def _fingerprint(certificate: x509.Certificate) -> str:
    return certificate.fingerprint(SHA256()).hex()
