"""Who may speak for a device, and get its commands, and the rule for listening beyond this machine: pure."""

from fogline.errors import Misconfigured
from fogline.transport.loopback import is_loopback
from fogline_edge.adapters.coap.exchanges import Exchange
from fogline_edge.credentials.credential_store import CredentialStore
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


def still_speaks(credentials: CredentialStore, device: str, exchange: Exchange) -> bool:
    """Return True if a request that was served may still be answered with a command of the device.

    Keys change while a device waits: one without protection may have got a key since, and a sealed one may have lost its key.
    """
    if exchange.protection is not None:
        return any(each.number == exchange.protection.key_number for each in credentials.keys(device))
    return bool(exchange.sender) or not credentials.is_protected(device)
