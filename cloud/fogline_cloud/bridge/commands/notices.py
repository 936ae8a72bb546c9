"""Notes in the audit what a client is about to do beside the bridge: deploy a parser, or have events parsed again.

The HTTP API and the operator's page ask here before each of these, in the client's name. So the bridge decides about it like
about everything else, and nothing of it is without a record. It does not see the parser, nor the events.
"""

import re

from fogline.address import Address, FlowAddress, ParserAddress, shown
from fogline.amqp.events import Delivery, Link
from fogline.amqp.outcome import ACCEPTED
from fogline.errors import Poison
from fogline.message import Message
from fogline_cloud.bridge.peers.audit_trail import AuditTrail
from fogline_cloud.bridge.peers.peer import LinkHandler, Peer

CREDIT = 10
MAX_CHARS = 1000
"""Characters of the text that says which events are parsed again."""
_DECISIONS = {"deploy": "DEPLOYMENT ALLOWED", "rollback": "ROLLBACK ALLOWED"}
_REDRIVE = "redrive"
_DIGEST = re.compile(r"([0-9a-f]{64})?", re.ASCII)


class NoticeHandler(LinkHandler):
    """Serves `parser/{tenant}/{parser}` and `flow/{tenant}/{flow}`.

    The subject of a message says what is done. Of a deployment, the property `digest` says with which wheel; of a redrive,
    the property `which` says of which events.
    """

    def __init__(self, audit: AuditTrail) -> None:
        self._audit = audit

    def attach(self, peer: Peer, link: Link, address: Address) -> None:
        """See `LinkHandler`."""
        peer.accept_link(link, address, CREDIT)

    def received(self, peer: Peer, delivery: Delivery, message: Message, address: Address) -> None:
        """See `LinkHandler`."""
        assert isinstance(address, ParserAddress | FlowAddress)
        decision, why = _deployment(message) if isinstance(address, ParserAddress) else _redrive(message)
        peer.check_quota()
        peer.count(commands=1)
        self._audit.note(peer.principal, decision, why, name=str(address))
        peer.settle(delivery, ACCEPTED)


def _deployment(message: Message) -> tuple[str, str]:
    decision, digest = _DECISIONS.get(message.subject or ""), message.properties.get("digest")
    if decision is None or not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise Poison("malformed", f"a deployment: subject {shown(message.subject or '')} or its digest is not understood")
    return decision, f"wheel {digest}" if digest else "no wheel"


def _redrive(message: Message) -> tuple[str, str]:
    which = message.properties.get("which")
    if message.subject != _REDRIVE or not isinstance(which, str) or len(which) > MAX_CHARS:
        raise Poison("malformed", f"a redrive: subject {shown(message.subject or '')} or its text is not understood")
    return "REDRIVE ALLOWED", which
