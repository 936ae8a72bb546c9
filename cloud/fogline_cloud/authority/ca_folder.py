"""The authority's folder: `ca.pem`, `ca.key`, `crl.pem`, and `certificates.jsonl` with a line for each change."""

import fcntl
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal, get_args

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from fogline.documents.document_error import explained
from fogline.errors import Misconfigured
from fogline.process.files.durable_file import replace_file, write_new
from fogline.process.files.tls_files import check_private
from fogline_cloud.authority.append_log import append_line, read_lines
from fogline_cloud.authority.certificates import Authority, Key, Role, Subject, key_pem, make_authority, pem
from fogline_cloud.authority.tokens import Tokens

ROOT, KEY, LIST, LOG = "ca.pem", "ca.key", "crl.pem", "certificates.jsonl"


class Issued(msgspec.Struct, frozen=True, tag="issued", tag_field="change"):
    """A certificate was issued. `serial`: in hexadecimal digits. `hosts`: names and addresses of a server."""

    serial: str
    role: Role
    name: str
    issued: datetime
    expires: datetime
    hosts: Sequence[str] = ()


class Revoked(msgspec.Struct, frozen=True, tag="revoked", tag_field="change"):
    """A certificate was revoked."""

    serial: str
    revoked: datetime


State = Literal["valid", "expired", "revoked"]
STATES = get_args(State)


class Known(msgspec.Struct, frozen=True):
    """One certificate of the authority, and its state now."""

    issued: Issued
    revoked: datetime | None = None

    def state(self, now: datetime) -> State:
        """Return the state at `now`."""
        return "revoked" if self.revoked is not None else "expired" if self.issued.expires <= now else "valid"


_decode = msgspec.json.Decoder(Issued | Revoked).decode


class CaFolder:
    """An authority's files. Several processes may use them at a time."""

    def __init__(self, folder: Path, authority: Authority) -> None:
        self.path = folder
        self.authority = authority
        self.tokens = Tokens(folder)

    @classmethod
    def make(cls, folder: Path, tenant: str, now: datetime, list_days: float) -> "CaFolder":
        """Make a new authority. Raises `Misconfigured` if there is one."""
        if (folder / ROOT).exists() or (folder / KEY).exists():
            raise Misconfigured(f"{folder}: there is an authority already; whoever trusts it would not trust a new one")
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            authority = make_authority(tenant, now)
            write_new(folder / KEY, key_pem(authority.key))
            replace_file(folder / ROOT, pem(authority.certificate), 0o644)
        except OSError as error:
            raise Misconfigured(f"{folder}: cannot write the authority: {error.strerror}") from None
        made = cls(folder, authority)
        made.write_list(now, list_days)
        return made

    @classmethod
    def open(cls, folder: Path) -> "CaFolder":
        """Open the authority. Raises `Misconfigured`."""
        if not (folder / ROOT).exists():
            raise Misconfigured(f"{folder}: there is no authority. Make one with: fogline ca init")
        check_private(str(folder / KEY), "ca.folder")
        try:
            certificate = x509.load_pem_x509_certificate((folder / ROOT).read_bytes())
            key = load_pem_private_key((folder / KEY).read_bytes(), None)
        except (OSError, ValueError) as error:
            raise Misconfigured(f"{folder}: the authority cannot be read: {error}") from None
        if not isinstance(key, Key) or key.public_key() != certificate.public_key():
            raise Misconfigured(f"{folder}: {KEY} is not the key of {ROOT}")
        return cls(folder, Authority(certificate, key))

    def issue(self, subject: Subject, public_key: object, now: datetime, days: float) -> x509.Certificate:
        """Issue a certificate and note it. Raises `Misconfigured`."""
        key = check_key(public_key)
        made = self.authority.issue(subject, key, now, days)
        serial = format(made.serial_number, "x")
        times = made.not_valid_before_utc, made.not_valid_after_utc
        issued = Issued(serial, subject.role, subject.name, *times, subject.hosts)
        append_line(self.path / LOG, msgspec.json.encode(issued))
        return made

    def renew(self, subject: Subject, public_key: object, now: datetime, days: float) -> x509.Certificate:
        """Issue a certificate for the same hosts as the subject's latest one. Raises `Misconfigured`."""
        former = [each.issued for each in self.known() if (each.issued.role, each.issued.name) == (subject.role, subject.name)]
        hosts = former[-1].hosts if former else ()
        return self.issue(msgspec.structs.replace(subject, hosts=hosts), public_key, now, days)

    def known(self) -> list[Known]:
        """Return every certificate, oldest first. Raises `Misconfigured`."""
        found: dict[str, Known] = {}
        for number, line in enumerate(read_lines(self.path / LOG)[0], 1):
            try:
                change = _decode(line)
            except msgspec.DecodeError as error:
                raise Misconfigured(
                    f"{self.path / LOG}:{number}: cannot be read: {explained(error, Issued | Revoked)}"
                ) from None
            if isinstance(change, Issued):
                found[change.serial] = Known(change)
            elif change.serial in found:
                found[change.serial] = Known(found[change.serial].issued, change.revoked)
        return list(found.values())

    def revoke(self, text: str, now: datetime, list_days: float) -> list[Known]:
        """Revoke the valid certificates of a name, or the one with a serial number. Returns them. Raises `Misconfigured`."""
        wanted = [each for each in self.known() if text in (each.issued.name, each.issued.serial)]
        if not wanted:
            raise Misconfigured(f"{text!r} is neither the name nor the serial number of a certificate. See: fogline ca list")
        taken = [each for each in wanted if each.state(now) == "valid"]
        for each in taken:
            append_line(self.path / LOG, msgspec.json.encode(Revoked(each.issued.serial, now)))
        self.write_list(now, list_days)
        return [Known(each.issued, now) for each in taken]

    def write_list(self, now: datetime, days: float) -> x509.CertificateRevocationList:
        """Sign the list of revoked certificates anew, and write it. Raises `Misconfigured`, `OSError`."""
        with (self.path / "lock").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            revoked = [(int(each.issued.serial, 16), each.revoked) for each in self.known() if each.revoked is not None]
            made = self.authority.revocation_list(revoked, self._list_number() + 1, now, days)
            replace_file(self.path / LIST, pem(made), 0o644)
        return made

    def _list_number(self) -> int:
        try:
            former = x509.load_pem_x509_crl((self.path / LIST).read_bytes())
        except FileNotFoundError:
            return 0
        except ValueError as error:
            raise Misconfigured(f"{self.path / LIST}: cannot be read: {error}") from None
        return former.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number


def check_key(public_key: object) -> ec.EllipticCurvePublicKey:
    """Return a key that certificates are issued for, EC P-256. Raises `Misconfigured` for any other."""
    if not isinstance(public_key, ec.EllipticCurvePublicKey) or not isinstance(public_key.curve, ec.SECP256R1):
        raise Misconfigured("expected a key of type EC P-256")
    return public_key
