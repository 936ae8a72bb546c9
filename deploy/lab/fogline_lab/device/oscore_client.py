"""A CoAP device that seals its messages with OSCORE (RFC 8613), as client and as server: a test sends them."""

from fogline.gateway.device_credentials import OSCORE_GATEWAY_ID, OscoreKey
from fogline_edge.adapters.coap.oscore.context import OscoreInput, RequestId, SecurityContext
from fogline_edge.adapters.coap.oscore.object_security import OSCORE, ObjectSecurity, decode_option, encode_option, encode_piv
from fogline_edge.adapters.coap.wire import CoapMessage, CoapResponse, Code, MessageType, Option, decode_inner, encode_inner


class OscoreDevice:
    """The device's side of a context with the gateway of this name."""

    def __init__(self, key: OscoreKey, gateway: str = "gw-1") -> None:
        given = OscoreInput(key.secret, key.salt, key.device_id, OSCORE_GATEWAY_ID, gateway.encode())
        self._security = SecurityContext(given)
        self.sequence = 0
        self._requests: dict[bytes, RequestId] = {}

    def seal(self, message: CoapMessage, *, echo: bytes | None = None) -> CoapMessage:
        """Return a request as it travels, with the next sequence number. `echo`: the answer to a challenge."""
        piv = encode_piv(self.sequence)
        self.sequence += 1
        request = self._requests[message.token] = RequestId(self._security.sender_id, piv)
        options = (*message.options, *(((int(Option.ECHO), echo),) if echo is not None else ()))
        sealed = self._security.seal(encode_inner(message.code, options, message.payload), request, piv)
        observe = tuple(each for each in options if each[0] == Option.OBSERVE)
        outer = (*observe, (OSCORE, encode_option(ObjectSecurity(piv, self._security.sender_id))))
        code = Code.FETCH if observe else Code.POST
        return CoapMessage(message.kind, code, message.mid, message.token, outer, sealed)

    def open(self, message: CoapMessage) -> CoapMessage:
        """Return a response as the gateway has made it; one without protection stays as it is. Raises `Poison`."""
        value = next((value for number, value in message.options if number == OSCORE), None)
        if value is None:
            return message
        option = decode_option(value)
        plaintext = self._security.open(message.payload, self._requests[message.token], option.piv)
        code, options, payload = decode_inner(plaintext)
        return CoapMessage(message.kind, code, message.mid, message.token, options, payload)

    def open_request(self, message: CoapMessage) -> tuple[CoapMessage, RequestId]:
        """Return a request of the gateway, opened, and what its response is sealed for. Raises `Poison`."""
        option = decode_option(next(value for number, value in message.options if number == OSCORE))
        request = RequestId(option.kid or b"", option.piv or b"")
        code, options, payload = decode_inner(self._security.open(message.payload, request, option.piv))
        return CoapMessage(message.kind, code, message.mid, message.token, options, payload), request

    def seal_response(self, to: CoapMessage, request: RequestId, response: CoapResponse) -> CoapMessage:
        """Return the response to a request of the gateway as it travels: in the Acknowledgement."""
        sealed = self._security.seal(encode_inner(response.code, response.options, response.payload), request, None)
        return CoapMessage(MessageType.ACK, Code.CHANGED, to.mid, to.token, ((OSCORE, b""),), sealed)


def echo_of(response: CoapMessage) -> bytes | None:
    """Return the challenge of a response; None if it has none."""
    return next((value for number, value in response.options if number == Option.ECHO), None)


def with_mid(message: CoapMessage, mid: int, kind: MessageType | None = None) -> CoapMessage:
    """Return a copy of a message with another Message ID."""
    return CoapMessage(
        message.kind if kind is None else kind, message.code, mid, message.token, message.options, message.payload
    )
