"""Notes in the audit that a client deploys a parser. The HTTP API asks here before each deployment, in the client's name.

So the bridge decides about it like about everything else, and no deployment is without a record. It does not see the parser.
"""

import re

from fogline.address import Address, ParserAddress, shown
from fogline.amqp.events import Delivery, Link
from fogline.amqp.outcome import ACCEPTED
from fogline.errors import Poison
from fogline.message import Message
from fogline_cloud.bridge.peers.audit_trail import AuditTrail
from fogline_cloud.bridge.peers.peer import LinkHandler, Peer

CREDIT = 10
_DECISIONS = {"deploy": "DEPLOYMENT ALLOWED", "rollback": "ROLLBACK ALLOWED"}
_DIGEST = re.compile(r"([0-9a-f]{64})?", re.ASCII)


class DeploymentHandler(LinkHandler):
    """Serves `parser/{tenant}/{parser}`: the subject of a message says what is done, its property `digest` with which wheel."""

    def __init__(self, audit: AuditTrail) -> None:
        self._audit = audit

    def attach(self, peer: Peer, link: Link, address: Address) -> None:
        """See `LinkHandler`."""
        peer.accept_link(link, address, CREDIT)

    def received(self, peer: Peer, delivery: Delivery, message: Message, address: Address) -> None:
        """See `LinkHandler`."""
        assert isinstance(address, ParserAddress)
        decision, digest = _DECISIONS.get(message.subject or ""), message.properties.get("digest")
        if decision is None or not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
            raise Poison("malformed", f"a deployment: subject {shown(message.subject or '')} or its digest is not understood")
        peer.check_quota()
        peer.count(commands=1)
        self._audit.note(peer.principal, decision, f"wheel {digest}" if digest else "no wheel", name=str(address))
        peer.settle(delivery, ACCEPTED)
