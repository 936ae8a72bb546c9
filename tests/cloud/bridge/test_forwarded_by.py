"""Only a bridge may say that it has opened a connection for another peer: the audit names it."""

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from fogline.amqp.events import AmqpPeer
from fogline_cloud.authority.ca_folder import CaFolder
from fogline_cloud.authority.certificates import Role, Subject, make_key, now_utc
from fogline_cloud.bridge.door.authentication import Authentication
from fogline_cloud.settings import CloudSettings


@pytest.mark.parametrize(
    ("role", "by"),
    [(Role.BRIDGE, "b-9"), (Role.OPERATOR, ""), (Role.DEVICE, ""), (None, "")],
    ids=["bridge", "operator", "device", "password"],
)
def test_over_tls_only_the_certificate_of_a_bridge_says_so(folder, role, by):
    certificate = None
    if role is not None:
        ca = CaFolder.make(folder / "ca", "acme", now_utc(), 7)
        made = ca.issue(Subject("acme", role, "b-9"), make_key().public_key(), now_utc(), 1)
        certificate = made.public_bytes(Encoding.DER)
    authentication = Authentication(CloudSettings(tenant="acme"))
    peer = AmqpPeer("op-1", "", {"forwarded-by": "b-9"}, certificate=certificate)
    assert authentication.forwarded_by(peer) == "b-9", "without TLS nobody has proven a name"
    authentication._tls = object()
    assert authentication.forwarded_by(peer) == by
