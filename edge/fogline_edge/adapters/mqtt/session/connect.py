"""CONNECT and CONNACK (3.1, 3.2): refusals and granted limits. Pure functions."""

from fogline_edge.adapters.mqtt.protocol.packets import Connack, Connect
from fogline_edge.adapters.mqtt.protocol.primitives import V3, V5, Reason
from fogline_edge.adapters.mqtt.protocol.properties import NONE, Properties
from fogline_edge.adapters.mqtt.session.inbound import TOPIC_ALIASES
from fogline_edge.adapters.mqtt.session.sessions import MAX_EXPIRY_S
from fogline_edge.settings import MqttSettings

_MAX_CLIENT_ID = 256
_V3_CODES = {
    Reason.UNSUPPORTED_PROTOCOL_VERSION: 1,
    Reason.CLIENT_IDENTIFIER_NOT_VALID: 2,
    Reason.QUOTA_EXCEEDED: 3,
    Reason.SERVER_BUSY: 3,
    Reason.BAD_USER_NAME_OR_PASSWORD: 4,
    Reason.NOT_AUTHORIZED: 5,
}


def unacceptable(connect: Connect) -> Reason | None:
    """Return the reason to refuse a CONNECT before authentication (5: 3.1.4), or `None`."""
    client_id = connect.client_id
    if connect.properties.authentication_method is not None:
        return Reason.BAD_AUTHENTICATION_METHOD
    if not client_id and connect.version == V3 and not connect.clean_start:
        return Reason.CLIENT_IDENTIFIER_NOT_VALID
    if len(client_id) > _MAX_CLIENT_ID or not client_id.isprintable():
        return Reason.CLIENT_IDENTIFIER_NOT_VALID
    return None


def refusal(version: int, code: Reason) -> bytes:
    """Encode the CONNACK of a refusal. It is empty if 3.1.1 has no return code for it (3.2.2.3)."""
    return_code = code if version == V5 else _V3_CODES.get(code)
    return b"" if return_code is None else Connack(code=return_code).encode(version)


def keep_alive_s(connect: Connect, longest_s: int) -> int:
    """Return the effective Keep Alive, 0 for none. Only a 5 client accepts a Server Keep Alive (5: 3.2.2.3.14)."""
    if connect.version == V5 and not 0 < connect.keep_alive_s <= longest_s:
        return longest_s
    return connect.keep_alive_s


def expiry_s(connect: Connect) -> int:
    """Return the Session Expiry Interval: as requested (5), or the longest if not Clean Session (3.1.1), but bounded."""
    if connect.version == V5:
        return min(connect.properties.session_expiry_s or 0, MAX_EXPIRY_S)
    return 0 if connect.clean_start else MAX_EXPIRY_S


def granted(
    settings: MqttSettings, connect: Connect, client_id: str, keep_alive: int, expiry: int, *, most_bytes: int
) -> Properties:
    """Return the properties of CONNACK (5: 3.2.2.3): this server's limits, and values that differ from the request."""
    if connect.version == V3:
        return NONE
    requested_s = connect.properties.session_expiry_s or 0
    return Properties(
        receive_maximum=settings.receive_maximum,
        maximum_packet_bytes=most_bytes,
        topic_alias_maximum=TOPIC_ALIASES,
        shared_subscriptions=0,
        assigned_client_id=None if connect.client_id else client_id,
        server_keep_alive_s=None if keep_alive == connect.keep_alive_s else keep_alive,
        session_expiry_s=None if expiry == requested_s else expiry,
    )
