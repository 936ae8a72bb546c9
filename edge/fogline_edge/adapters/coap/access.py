"""The rule for listening beyond this machine: pure."""

from fogline.errors import Misconfigured
from fogline.transport.loopback import is_loopback
from fogline_edge.settings import CoapSettings


def check_coap(settings: CoapSettings) -> None:
    """Raise `Misconfigured` if others than this machine's programs could send, and the user has not accepted that."""
    if settings.plain_port is not None and not settings.oscore and not allows_unprotected(settings):
        raise Misconfigured(
            f"coap.host = {settings.host!r}: CoAP without DTLS has neither login nor encryption, so everybody in that network "
            "could speak for any device. Use [coap.dtls], or oscore = true, or 127.0.0.1 (only loopback), or accept it with "
            "plain_on_lan = true in [coap]"
        )


def allows_unprotected(settings: CoapSettings) -> bool:
    """Return True if requests without DTLS and OSCORE are served, for devices without keys."""
    return settings.plain_on_lan or is_loopback(settings.host)
