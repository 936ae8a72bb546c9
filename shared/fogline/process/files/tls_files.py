"""TLS contexts from the files that the settings name. Files are read again when they change."""

import logging
import ssl
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import msgspec

from fogline.errors import Misconfigured

QUIET_S = 2.0
"""Time for which a file must not have changed before it is read again: an editor, or a copy, may still be writing it."""

_log = logging.getLogger("fogline.tls")
T = TypeVar("T")


class TlsFiles(Protocol):
    """The files of one side of TLS: `TlsSettings`, or those of a server that may do without an authority."""

    @property
    def ca(self) -> str | None:
        """The authorities that this side trusts."""

    @property
    def certificate(self) -> str | None:
        """The certificate of this side."""

    @property
    def key(self) -> str | None:
        """Its private key."""


class TlsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Files in PEM for TLS, relative to the settings file."""

    ca: str
    """File with the certificates of the authorities that this side trusts."""
    certificate: str | None = None
    """File with the certificate of this side, and those between it and the authority's."""
    key: str | None = None
    """File with the private key of `certificate`. Only its owner may read it (mode 600)."""


def resolve_tls(tls: TlsSettings, folder: Path) -> TlsSettings:
    """Return the settings with absolute paths."""
    certificate = None if tls.certificate is None else str(folder / tls.certificate)
    key = None if tls.key is None else str(folder / tls.key)
    return TlsSettings(ca=str(folder / tls.ca), certificate=certificate, key=key)


def require_tls(tls: TlsFiles | None, where: str, *, insecure_dev: bool) -> None:
    """Raise `Misconfigured` if there is no TLS and the user has not asked to go without it; if so, log a warning."""
    if tls is not None:
        return
    if not insecure_dev:
        raise Misconfigured(
            f"[{where}] is missing. Make certificates with `fogline ca`; or try it on one machine: --insecure-dev"
        )
    _log.warning("--insecure-dev: no TLS, and every program on this machine may take any name")


def server_context(tls: TlsFiles, where: str, *, passwords: bool = False, crl: str | None = None) -> ssl.SSLContext:
    """Return a server's context. Peers must show a certificate of `tls.ca`, unless they may log in with `passwords`.

    `crl`: a file with the authority's list of revoked certificates, if OpenSSL is to check it.

    Raises `Misconfigured`, whose text names `where` (the table of the settings), the key and the file.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if tls.certificate is None or tls.key is None:
        raise Misconfigured(f"[{where}] needs `certificate` and `key`. Make them with: fogline ca issue")
    _load(context, tls, where)
    if tls.ca is not None:
        context.verify_mode = ssl.CERT_OPTIONAL if passwords else ssl.CERT_REQUIRED
    elif not passwords:
        raise Misconfigured(f"[{where}] needs `ca`, the authorities whose certificates peers show")
    if crl is not None:
        _load_authorities(context, crl, f"{where}.crl")
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    context.num_tickets = 0  # a resumed session would keep a certificate from being looked at again
    context.options |= ssl.OP_NO_TICKET
    return context


def client_context(tls: TlsSettings, where: str) -> ssl.SSLContext:
    """Return a client's context, which checks the server's name. Raises `Misconfigured` like `server_context`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _load(context, tls, where)
    return context


def trusting(ca: bytes, where: str) -> ssl.SSLContext:
    """Return a client's context that trusts the certificate `ca` (DER). Raises `Misconfigured`, which names `where`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_verify_locations(cadata=ca)
    except (ValueError, ssl.SSLError) as error:
        raise Misconfigured(f"{where} holds no certificate: {error}") from None
    return context


def _load(context: ssl.SSLContext, tls: TlsFiles, where: str) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if tls.ca is not None:
        _load_authorities(context, tls.ca, f"{where}.ca")
    if tls.certificate is None:
        return
    if tls.key is None:
        raise Misconfigured(f"[{where}] has a `certificate` but no `key`")
    check_private(tls.key, f"{where}.key")
    try:
        context.load_cert_chain(tls.certificate, tls.key)
    except (OSError, ssl.SSLError) as error:
        raise _unreadable(f"{where}.certificate", f"{tls.certificate} with key {tls.key}", error) from None


def _load_authorities(context: ssl.SSLContext, path: str, where: str) -> None:
    try:
        context.load_verify_locations(path)
    except (OSError, ssl.SSLError) as error:
        raise _unreadable(where, path, error) from None


def _unreadable(where: str, path: str, error: OSError) -> Misconfigured:
    why = error.reason.replace("_", " ").lower() if isinstance(error, ssl.SSLError) and error.reason else error.strerror
    return Misconfigured(f"{where}: cannot use {path}: {why or error}")


def check_private(path: str, where: str) -> None:
    """Raise `Misconfigured` if a file with a secret is missing, or may be read by others than its owner and group."""
    try:
        mode = Path(path).stat().st_mode
    except OSError as error:
        raise Misconfigured(f"{where}: cannot read {path}: {error.strerror}") from None
    if mode & 0o007:
        raise Misconfigured(f"{where}: everybody may read {path}. Run: chmod 600 {path}")


class ReadAgain(Generic[T]):
    """What `read` makes of files, made again when one of them has changed, and then not for `QUIET_S`. Never raises after that.

    The former result stays if the files cannot be read, and if `doubt`, which gets the former result and the new one, returns
    why the new one must not replace it. `read` raises `Misconfigured`; the constructor passes it on. `signed`: files whose
    signature shows that they are whole; a change of these counts at once.
    """

    def __init__(
        self,
        read: Callable[[], T],
        paths: Sequence[str],
        doubt: Callable[[T, T], str] = lambda _former, _new: "",
        *,
        signed: Collection[str] = (),
    ) -> None:
        self._read, self._paths, self._doubt, self._signed = read, paths, doubt, signed
        self._seen = self._stamps()
        self._changed: tuple[_Stamps, float] | None = None
        """A change that was not read yet, and the monotonic time at which it was seen first."""
        self.value = read()
        """The result for the files as they were at the last `get`."""

    def get(self, *, at_once: bool = False) -> T:
        """Return the result for the files as they are now, or for the former ones if somebody may still be writing them.

        `at_once`: nobody is writing them.
        """
        seen = self._stamps()
        if seen == self._seen:
            self._changed = None
        elif at_once or self._is_quiet(seen):
            self._seen, self._changed = seen, None
            self._adopt()
        return self.value

    def _is_quiet(self, seen: "_Stamps") -> bool:
        seen = self._unsigned(seen)
        if seen == self._unsigned(self._seen):
            return True
        if self._changed is None or self._changed[0] != seen:
            self._changed = seen, time.monotonic()
        newest_ns = max((max(stamp[:2]) for stamp in seen if stamp is not None), default=0)
        # By the file system's clock, too: a process that looks seldom need not look twice.
        return time.monotonic() - self._changed[1] >= QUIET_S or time.time_ns() - newest_ns >= QUIET_S * 1e9

    def _adopt(self) -> None:
        names = ", ".join(self._paths)
        try:
            new = self._read()
        except Exception as error:  # noqa: BLE001 - whatever somebody has written there must not end a process that runs
            _log.error("the changed file is not used: %s", str(error) or f"{names}: {type(error).__name__}")
            return
        if why := self._doubt(self.value, new):
            _log.error("the changed file is not used: %s: %s", names, why)
            return
        self.value = new
        _log.info("read again: %s", names)

    def _unsigned(self, stamps: "_Stamps") -> "_Stamps":
        return [stamp for path, stamp in zip(self._paths, stamps, strict=True) if path not in self._signed]

    def _stamps(self) -> "_Stamps":
        return [_stamp(each) for each in self._paths]


_Stamps = list[tuple[int, int, int, int] | None]


def _stamp(path: str) -> tuple[int, int, int, int] | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino
