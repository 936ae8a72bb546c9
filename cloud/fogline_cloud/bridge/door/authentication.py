"""Establishes who a peer is: by its certificate or its password; without TLS, on loopback only, by its own claim."""

import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final
from weakref import WeakKeyDictionary

from cryptography import x509
from cryptography.x509.oid import NameOID

from fogline.address import is_identifier, shown
from fogline.amqp.driver import AmqpConnection, Handler
from fogline.amqp.engine import Engine
from fogline.amqp.events import AmqpPeer
from fogline.amqp.login import EXTERNAL, PLAIN, Login, LoginVerdict
from fogline.amqp.security import ServerSecurity
from fogline.errors import Misconfigured, Poison
from fogline.gateway import hello
from fogline.gateway.enrolment import PRODUCT, USER_PREFIX
from fogline.gateway.shown_certificate import CLIENT_AUTH, AuthorityCertificates
from fogline.process.files.tls_files import ReadAgain, server_context
from fogline.process.log_throttle import LogThrottle
from fogline.process.rates import DeviceRates
from fogline_cloud.access.principal import ASSERTED, KAFKA, Principal, PrincipalKind
from fogline_cloud.authority.ca_folder import CaFolder
from fogline_cloud.authority.certificates import Role, now_utc, subject_of
from fogline_cloud.authority.revocation import RevocationList, read_revocation_list
from fogline_cloud.bridge.door.passwords import Passwords, UserHash
from fogline_cloud.bridge.peers.upstream import FORWARDED_BY
from fogline_cloud.settings import CloudSettings

CAPABILITIES = ("ANONYMOUS-RELAY",)
_KINDS = {hello.PRODUCT: PrincipalKind.GATEWAY, PRODUCT: PrincipalKind.ENROLLEE}
_ROLES = {
    Role.GATEWAY: (PrincipalKind.GATEWAY, PrincipalKind.ENROLLEE),
    Role.OPERATOR: (PrincipalKind.CLIENT,),
    Role.DEVICE: (PrincipalKind.DEVICE,),
}
_PROOFS = ("certificate", "password", KAFKA)
GUESSES: Final = 20
"""Wrong tokens of one address that are answered with "wrong", and logged. A further one may follow each `GUESS_S`."""
GUESS_S: Final = 3.0
_log = logging.getLogger("fogline.bridge.tokens")
_log.addFilter(LogThrottle(variable=re.compile(r"gateway \S+")))  # whoever guesses names gateways as it likes


class NotAuthenticated(Exception):
    """A peer has not proven its name. The text says why."""


class Authentication:
    """Makes the server's side of each connection, and names its peer. The files of TLS are read again when they change.

    Raises `Misconfigured`.
    """

    def __init__(self, settings: CloudSettings) -> None:
        bridge = settings.bridge
        if bridge.enrolment and bridge.tls is None:
            raise Misconfigured("bridge.enrolment needs [bridge.tls]")
        self._tenant, self._name = settings.tenant, bridge.name
        self._listed = bridge.gateways
        self._passwords = Passwords(bridge.users) if bridge.users is not None else None
        self._proofs: WeakKeyDictionary[AmqpConnection, PasswordProof] = WeakKeyDictionary()
        self._tokens = CaFolder.open(Path(settings.ca.folder)).tokens if bridge.enrolment else None
        self._guesses = DeviceRates(1 / GUESS_S, GUESSES)
        takes_plain = self._passwords is not None or self._tokens is not None
        self._tls = None
        self._authorities: ReadAgain[AuthorityCertificates] | None = None
        self.revoked: ReadAgain[RevocationList] | None = None
        """The list of revoked certificates, if there is one."""
        self._mechanisms: tuple[str, ...] = ("ANONYMOUS",)
        if (tls := bridge.tls) is not None:
            self._mechanisms = (EXTERNAL, PLAIN) if takes_plain else (EXTERNAL,)
            paths = [each for each in (tls.ca, tls.certificate, tls.key) if each is not None]
            read = partial(server_context, tls, "bridge.tls", passwords=takes_plain)
            self._tls = ReadAgain(read, paths)
            self._authorities = ReadAgain(lambda: AuthorityCertificates(Path(tls.ca).read_bytes()), [tls.ca])
            if bridge.crl is not None:
                self._crl, self._ca = bridge.crl, tls.ca
                self.revoked = ReadAgain(self._read_list, [bridge.crl, tls.ca], signed=[bridge.crl, tls.ca])

    def _read_list(self) -> RevocationList:
        former = self.revoked.get() if self.revoked is not None else None
        return read_revocation_list(self._crl, self._ca, former)

    def connection(
        self,
        handler: Handler,
        hold: Callable[[int], bool],
        connected: Callable[[AmqpConnection, str], None],
        *,
        websocket: bool,
    ) -> AmqpConnection:
        """Return a new connection of a server, for a socket that was accepted. `hold`, `connected`: see engine and driver.

        `websocket`: the socket is of the listener for AMQP over WebSocket.
        """
        security = ServerSecurity(self._mechanisms, self._tls.get() if self._tls is not None else None, websocket)
        engine = Engine(self._name, capabilities=CAPABILITIES, security=security, hold=hold)
        proof = PasswordProof()
        connection = AmqpConnection(engine, handler, partial(self.check_password, proof), connected)
        self._proofs[connection] = proof
        return connection

    def check_password(
        self, proof: "PasswordProof", login: Login, address: str, answer: Callable[[LoginVerdict], None]
    ) -> None:
        """Check a password, or the token of a gateway, that a peer at `address` shows. `proof`: notes a right password."""
        if login.user.startswith(USER_PREFIX):
            answer(self._check_token(login.user.removeprefix(USER_PREFIX), login.password, address))
        elif self._passwords is None:
            answer(LoginVerdict.REFUSED)
        else:
            proof.user = login.user
            self._passwords.check(login, address, answer, partial(setattr, proof, "hash"))

    def _check_token(self, gateway: str, secret: str, address: str) -> LoginVerdict:
        try:
            why = "no tokens here" if self._tokens is None else self._tokens.doubt(gateway, secret, now_utc())
        except Misconfigured as error:
            _log.error("tokens cannot be checked: %s", error)
            return LoginVerdict.BUSY
        if why is None:
            return LoginVerdict.ACCEPTED
        now_s = time.monotonic()
        if not self._guesses.bucket(address, now_s).take(now_s):
            return LoginVerdict.BUSY
        _log.warning("gateway %s may not enrol: %s", shown(gateway), why)
        return LoginVerdict.REFUSED

    def principal(self, remote: AmqpPeer) -> Principal:
        """Return who the peer is. Raises `NotAuthenticated`."""
        tenant = str(remote.properties.get("tenant", self._tenant))
        kind = _KINDS.get(str(remote.properties.get("product")), PrincipalKind.CLIENT)
        if self._tls is None:
            if kind is PrincipalKind.ENROLLEE:
                raise NotAuthenticated("a gateway enrols over TLS only")
            is_of_kafka = kind is PrincipalKind.CLIENT and FORWARDED_BY in remote.properties and _proof(remote) == KAFKA
            return Principal(kind, tenant, remote.container, KAFKA if is_of_kafka else ASSERTED)
        if remote.login.mechanism == PLAIN:
            return _by_password(remote.login.user, kind, tenant)
        if remote.certificate is None:
            raise NotAuthenticated("the peer has no certificate")
        return self._certified(x509.load_der_x509_certificate(remote.certificate), kind, remote)

    def forwarded_by(self, remote: AmqpPeer) -> str:
        """Return the bridge that has opened the connection for another peer, "" for none. Only a bridge may say so."""
        if self._tls is not None:
            subject = subject_of(x509.load_der_x509_certificate(remote.certificate)) if remote.certificate is not None else None
            if subject is None or subject.role is not Role.BRIDGE:
                return ""
        return str(remote.properties.get(FORWARDED_BY, ""))

    def _forwarded(self, remote: AmqpPeer) -> Principal:
        """Return the principal for which another bridge has opened the connection, and whose name it has established."""
        kind, proof = remote.properties.get("kind"), _proof(remote)
        is_kind = kind in (PrincipalKind.CLIENT, PrincipalKind.DEVICE)
        if not is_kind or proof not in _PROOFS or not is_identifier(remote.container):
            raise NotAuthenticated(f"a bridge has no peer of kind {shown(str(kind))} named {shown(remote.container)}")
        return Principal(PrincipalKind(str(kind)), self._tenant, remote.container, proof)

    def _certified(self, certificate: x509.Certificate, kind: PrincipalKind, remote: AmqpPeer) -> Principal:
        subject = subject_of(certificate)
        name = subject.name if subject is not None else _common_name(certificate)
        if self.revoked is not None and (why := self.revoked.get().doubt(certificate, now_utc())) is not None:
            raise NotAuthenticated(f"the certificate of {shown(name)}: {why}")
        if subject is not None and subject.tenant != self._tenant:
            raise NotAuthenticated(f"the certificate of {shown(name)} is of tenant {shown(subject.tenant)}")
        if subject is not None and subject.role is Role.BRIDGE and kind is PrincipalKind.CLIENT:
            return self._forwarded(remote)
        if subject is not None and subject.role is Role.DEVICE and kind is PrincipalKind.CLIENT:
            kind = PrincipalKind.DEVICE
        allowed = _ROLES.get(subject.role, ()) if subject is not None else self._kinds_of_listed(name)
        if kind not in allowed:
            role = f"role {subject.role}" if subject is not None else "no role here (see bridge.gateways)"
            raise NotAuthenticated(f"the certificate of {shown(name)} is for {role}, and the peer is a {kind}")
        if kind in _ROLES[Role.GATEWAY] and remote.container != name:
            raise NotAuthenticated(f"the certificate is of gateway {shown(name)}, and the peer says {shown(remote.container)}")
        return Principal(kind, self._tenant, name, "certificate")

    def _kinds_of_listed(self, name: str) -> tuple[PrincipalKind, ...]:
        """Return the kinds of a peer whose certificate is of another authority, which knows no roles of ours."""
        return (PrincipalKind.GATEWAY,) if self._listed is not None and name in self._listed else ()

    def of_message(self, shown_certificate: object, name: str) -> tuple[Principal, x509.Certificate]:
        """Return the gateway whose certificate a message shows, checked as TLS does it. `name`: as the message says.

        Raises `NotAuthenticated`.
        """
        if self._authorities is None:
            raise NotAuthenticated("this bridge has no [bridge.tls]")
        try:
            certificate = self._authorities.get().check(shown_certificate, CLIENT_AUTH, now_utc())
        except Poison as error:
            raise NotAuthenticated(str(error)) from None
        return self._certified(certificate, PrincipalKind.GATEWAY, AmqpPeer(name, "", {})), certificate

    def login_ended(self, connection: object) -> str | None:
        """Return why the password by which a connection was opened does not count any more; None if it does."""
        proof = self._proofs.get(connection) if isinstance(connection, AmqpConnection) else None
        if proof is None or proof.hash is None or self._passwords is None:
            return None
        known = self._passwords.of(proof.user)
        if known == proof.hash:
            return None
        return "the user was deleted" if known is None else "the user's password was changed"

    def has_ended(self, certificate: x509.Certificate) -> str | None:
        """Return why a certificate, with which a peer has connected, does not count any more; None if it does."""
        if self.revoked is not None and self.revoked.get().revokes(certificate):
            return "it is revoked"
        return "it has expired" if certificate.not_valid_after_utc <= now_utc() else None


@dataclass(slots=True)
class PasswordProof:
    """The user of a connection, and what the password was compared with: None before it was found right."""

    user: str = ""
    hash: UserHash | None = None


def _proof(remote: AmqpPeer) -> str:
    return str(remote.properties.get("proof"))


def _by_password(user: str, kind: PrincipalKind, tenant: str) -> Principal:
    """Return the principal of a user whose password, or token, was accepted. Raises `NotAuthenticated`."""
    by_token = user.startswith(USER_PREFIX)
    if by_token != (kind is PrincipalKind.ENROLLEE) or kind is PrincipalKind.GATEWAY:
        what = "a token" if by_token else "a password"
        raise NotAuthenticated(f"a {kind} cannot log in by {what}; a gateway needs a certificate")
    return Principal(kind, tenant, user.removeprefix(USER_PREFIX), "token" if by_token else "password")


def _common_name(certificate: x509.Certificate) -> str:
    found = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    name = str(found[0].value) if found else ""
    if not is_identifier(name):
        raise NotAuthenticated(f"the common name {shown(name)} of the certificate is no identifier")
    return name
