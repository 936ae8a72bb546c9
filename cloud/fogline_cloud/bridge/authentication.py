"""Establishes who a peer is: by its certificate or its password; without TLS, on loopback only, by its own claim."""

import logging
from functools import partial

from cryptography import x509
from cryptography.x509.oid import NameOID

from fogline import hello
from fogline.address import is_identifier, shown
from fogline.amqp.driver import AmqpConnection, CheckPassword, Handler
from fogline.amqp.engine import Engine
from fogline.amqp.events import AmqpPeer
from fogline.amqp.sasl import EXTERNAL, PLAIN
from fogline.amqp.security import ServerSecurity
from fogline.principal import Principal, PrincipalKind
from fogline.process.tls_files import ReadAgain, server_context
from fogline_cloud.authority.certificates import Role, now_utc, subject_of
from fogline_cloud.authority.revocation import RevocationList, read_revocation_list
from fogline_cloud.bridge.passwords import Passwords
from fogline_cloud.settings import CloudSettings

CAPABILITIES = ("ANONYMOUS-RELAY",)
_ROLES = {Role.GATEWAY: PrincipalKind.GATEWAY, Role.OPERATOR: PrincipalKind.CLIENT}
_log = logging.getLogger("fogline.bridge")


class NotAuthenticated(Exception):
    """A peer has not proven its name. The text says why."""


class Authentication:
    """Makes the server's side of each connection, and names its peer. The files of TLS are read again when they change.

    Raises `Misconfigured`.
    """

    def __init__(self, settings: CloudSettings) -> None:
        bridge = settings.bridge
        self._tenant, self._name = settings.tenant, bridge.name
        self._listed = bridge.gateways
        self._passwords = Passwords(bridge.users) if bridge.users is not None else None
        self._tls = self._revoked = None
        self._mechanisms: tuple[str, ...] = ("ANONYMOUS",)
        if (tls := bridge.tls) is not None:
            self._mechanisms = (EXTERNAL, PLAIN) if self._passwords is not None else (EXTERNAL,)
            paths = [each for each in (tls.ca, tls.certificate, tls.key) if each is not None]
            read = partial(server_context, tls, "bridge.tls", passwords=self._passwords is not None)
            self._tls = ReadAgain(read, paths)
            if bridge.crl is not None:
                self._crl, self._ca = bridge.crl, tls.ca
                self._revoked = ReadAgain(self._read_list, [bridge.crl, tls.ca])

    def _read_list(self) -> RevocationList:
        former = self._revoked.get() if self._revoked is not None else None
        return read_revocation_list(self._crl, self._ca, former)

    def connection(self, handler: Handler) -> AmqpConnection:
        """Return a new connection of a server, for a socket that was accepted."""
        security = ServerSecurity(self._mechanisms, self._tls.get() if self._tls is not None else None)
        engine = Engine(self._name, server=True, capabilities=CAPABILITIES, security=security)
        check: CheckPassword | None = self._passwords.check if self._passwords is not None else None
        return AmqpConnection(engine, handler, check)

    def principal(self, remote: AmqpPeer) -> Principal:
        """Return who the peer is. Raises `NotAuthenticated`."""
        tenant = str(remote.properties.get("tenant", self._tenant))
        kind = PrincipalKind.GATEWAY if remote.properties.get("product") == hello.PRODUCT else PrincipalKind.CLIENT
        if self._tls is None:
            return Principal(kind, tenant, remote.container, "asserted")
        if remote.login.mechanism == PLAIN:
            if kind is PrincipalKind.GATEWAY:
                raise NotAuthenticated("a gateway needs a certificate, a password is not enough")
            return Principal(kind, tenant, remote.login.user, "password")
        if remote.certificate is None:
            raise NotAuthenticated("the peer has no certificate")
        return self._certified(x509.load_der_x509_certificate(remote.certificate), kind, remote.container)

    def _certified(self, certificate: x509.Certificate, kind: PrincipalKind, container: str) -> Principal:
        subject = subject_of(certificate)
        name = subject.name if subject is not None else _common_name(certificate)
        if self._revoked is not None and (why := self._revoked.get().doubt(certificate, now_utc())) is not None:
            raise NotAuthenticated(f"the certificate of {shown(name)}: {why}")
        if subject is not None and subject.tenant != self._tenant:
            raise NotAuthenticated(f"the certificate of {shown(name)} is of tenant {shown(subject.tenant)}")
        allowed = _ROLES.get(subject.role) if subject is not None else self._kind_of_listed(name)
        if allowed is not kind:
            role = f"role {subject.role}" if subject is not None else "no role here (see bridge.gateways)"
            raise NotAuthenticated(f"the certificate of {shown(name)} is for {role}, and the peer is a {kind}")
        if kind is PrincipalKind.GATEWAY and container != name:
            raise NotAuthenticated(f"the certificate is of gateway {shown(name)}, and the peer says {shown(container)}")
        return Principal(kind, self._tenant, name, "certificate")

    def _kind_of_listed(self, name: str) -> PrincipalKind | None:
        """Return the kind of a peer whose certificate is of another authority, which knows no roles of ours."""
        return PrincipalKind.GATEWAY if self._listed is not None and name in self._listed else None

    def is_revoked(self, certificate: bytes) -> bool:
        """Return True if a peer's certificate (DER) was revoked after it had connected."""
        return self._revoked is not None and self._revoked.get().revokes(x509.load_der_x509_certificate(certificate))


def _common_name(certificate: x509.Certificate) -> str:
    found = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    name = str(found[0].value) if found else ""
    if not is_identifier(name):
        raise NotAuthenticated(f"the common name {shown(name)} of the certificate is no identifier")
    return name
