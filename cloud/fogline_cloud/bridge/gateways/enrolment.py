"""Issues certificates to gateways that log in by a token or by the certificate that they have (`fogline.gateway.enrolment`).

It revokes the certificate of a gateway that is given up and asks for it. It also signs the list of revoked certificates anew
in time: a bridge with an old list refuses everybody.
"""

import asyncio
import logging
from collections.abc import Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
from cryptography import x509

from fogline.address import Address
from fogline.amqp.events import Delivery, Link
from fogline.amqp.outcome import ACCEPTED, NOT_IMPLEMENTED, Condition, Outcome
from fogline.amqp.scheduler import Share
from fogline.amqp.sending import Sender
from fogline.errors import FoglineError, Misconfigured, Unreachable
from fogline.gateway.enrolment import MAX_REQUEST_BYTES, REVOKE_TYPE, Enrolled
from fogline.message import Message
from fogline_cloud.authority.ca_folder import CaFolder, check_key
from fogline_cloud.authority.certificates import Role, Subject, now_utc, pem
from fogline_cloud.bridge.peers.audit_trail import AuditTrail
from fogline_cloud.bridge.peers.peer import LinkHandler, Peer
from fogline_cloud.settings import CloudSettings

_log = logging.getLogger("fogline.bridge")


class EnrolmentHandler(LinkHandler):
    """Serves the two links of a gateway that enrols. Without `bridge.enrolment` it refuses them. Raises `Misconfigured`."""

    def __init__(self, settings: CloudSettings, audit: AuditTrail) -> None:
        self._audit = audit
        self._tenant = settings.tenant
        self._days = settings.ca.days
        self.ca = CaFolder.open(Path(settings.ca.folder)) if settings.bridge.enrolment else None
        self._senders: dict[Peer, Sender] = {}
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._crl_days = settings.ca.crl_days
        self._list_due = now_utc()  # a list that is there already may be old

    def attach(self, peer: Peer, link: Link, address: Address) -> None:
        """Accept the link for requests, or the one for answers."""
        if self.ca is None:
            why = "this bridge issues no certificates (bridge.enrolment)"
            peer.connection.refuse_link(link, Condition(NOT_IMPLEMENTED, why))
        elif not link.sending:
            peer.accept_link(link, address, 1)
        elif (sender := peer.connection.accept_link(link, share=Share())) is not None:
            self._senders[peer] = sender

    def detached(self, link: Link | None) -> None:  # noqa: ARG002 - of any connection
        """Forget the links of connections that have ended."""
        self._senders = {peer: sender for peer, sender in self._senders.items() if not sender.closed}

    def received(self, peer: Peer, delivery: Delivery, message: Message, address: Address) -> None:  # noqa: ARG002 - its own name
        """Take a request, and answer when the certificate is on the authority's disk."""
        peer.connection.settle(delivery, ACCEPTED)  # without credit for another one: it takes another connection
        self._run(self._answer(peer, message), "enrolment")

    def keep_list(self) -> None:
        """Sign the list of revoked certificates anew if half of its time has passed."""
        if self.ca is not None and now_utc() >= self._list_due:
            self._list_due = now_utc() + timedelta(days=self._crl_days / 2)
            self._run(self._sign_list(self.ca), "list of revoked certificates")

    async def _sign_list(self, ca: CaFolder) -> None:
        try:
            await asyncio.to_thread(ca.write_list, now_utc(), self._crl_days)
        except (FoglineError, OSError) as error:
            self._list_due = now_utc() + timedelta(days=self._crl_days / 20)
            _log.error("the list of revoked certificates is not signed anew: %s", error)

    def _run(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, peer: Peer, message: Message) -> None:
        async with self._turn:  # a token counts once, however many connections show it
            try:
                if message.content_type == REVOKE_TYPE:
                    answer = await asyncio.to_thread(self._revoke, peer.serial)
                    _log.warning("%s has asked to revoke its certificate %s: done", peer.principal, answer.revoked)
                    self._audit.note(peer.principal, "CERTIFICATE REVOKED", answer.revoked)
                else:
                    answer = await asyncio.to_thread(self._issue, peer.principal.name, peer.secret, bytes(message.body))
                    _log.info("a certificate was issued to %s", peer.principal)
                    self._audit.note(peer.principal, "CERTIFICATE ISSUED")
            except (FoglineError, OSError) as error:
                answer = Enrolled(refused=str(error))
                _log.warning("a request of %s about its certificate is refused: %s", peer.principal, error)
                self._audit.note(peer.principal, "CERTIFICATE REFUSED", str(error))
        if (sender := self._senders.get(peer)) is not None and not sender.closed:
            reply = Message(body=msgspec.json.encode(answer), content_type="application/json")
            sender.send(reply).add_done_callback(_note_failure)

    def _revoke(self, serial: str) -> Enrolled:
        """Revoke the one certificate by which the gateway has logged in: another one may be in use at a restored copy."""
        assert self.ca is not None
        if not serial:
            raise Misconfigured("a gateway revokes the certificate by which it logs in, and this one has none")
        self.ca.revoke(serial, now_utc(), self._crl_days)
        return Enrolled(revoked=serial)

    def _issue(self, gateway: str, secret: str, request: bytes) -> Enrolled:
        assert self.ca is not None
        now = now_utc()
        public_key, subject = _public_key(request), Subject(self._tenant, Role.GATEWAY, gateway)
        check_key(public_key)  # before the token is used up
        if secret:
            hosts = self.ca.tokens.use(gateway, secret, now)
            made = self.ca.issue(msgspec.structs.replace(subject, hosts=hosts), public_key, now, self._days)
        else:
            made = self.ca.renew(subject, public_key, now, self._days)
        return Enrolled(pem(made).decode(), pem(self.ca.authority.certificate).decode())


def _public_key(request: bytes) -> object:
    """Return the key of a request that its owner has signed. All else in it is ignored: the login says the name."""
    if len(request) > MAX_REQUEST_BYTES:
        raise Misconfigured(f"the certificate signing request has more than {MAX_REQUEST_BYTES} bytes")
    try:
        found = x509.load_pem_x509_csr(request)
        signed, key = found.is_signature_valid, found.public_key()
    except Exception as error:  # noqa: BLE001 - whatever a library finds wrong in a peer's bytes
        raise Misconfigured(f"the certificate signing request cannot be read: {str(error)[:200]}") from None
    if not signed:
        raise Misconfigured("the certificate signing request is not signed by its key")
    return key


def _note_failure(sent: "asyncio.Future[Outcome]") -> None:
    if not sent.cancelled() and not isinstance(sent.exception(), Unreachable | None):
        _log.error("an answer to an enrolment failed: %s", sent.exception())
