"""A command to a device that is a CoAP server, sealed: the gateway is the client of the context (RFC 8613, section 8)."""

import asyncio

import msgspec

from fogline.errors import Poison
from fogline_edge.adapters.coap.oscore.context import RequestId
from fogline_edge.adapters.coap.oscore.context_table import ContextTable, LiveContext
from fogline_edge.adapters.coap.oscore.object_security import ObjectSecurity, decode_option, encode_option
from fogline_edge.adapters.coap.wire import MAX_PIECE_BYTES, Code, FormatError, Option, Options, decode_inner, encode_inner

MAX_SEALED_BYTES = MAX_PIECE_BYTES
"""Longest command that goes sealed: a larger one would go in blocks, which the device has to join before it can open them."""


class SealedResponse(msgspec.Struct, frozen=True):
    """The response of a device, opened."""

    code: int
    options: Options
    payload: bytes

    def option(self, number: int) -> bytes | None:
        """Return the value of an option; None if the response does not have it."""
        return next((value for each, value in self.options if each == number), None)


class SealedCommand:
    """One POST to the device of `live`. It takes one of the gateway's own numbers, and raises `Poison` if there is none."""

    def __init__(self, live: LiveContext, gateway: str) -> None:
        piv = live.own_piv()
        if piv is None:
            raise Poison("oscore", "no sequence number is reserved on the disk")
        self._security = live.security
        self._request = RequestId(live.security.sender_id, piv)
        self.option = encode_option(ObjectSecurity(piv, live.security.sender_id, gateway.encode()))
        """The value of the OSCORE option."""

    def seal(self, options: Options, payload: bytes, echo: bytes | None = None) -> bytes:
        """Return the payload as it travels. Once only. `echo`: the answer to a challenge of the device."""
        inner = options if echo is None else (*options, (int(Option.ECHO), echo))
        return self._security.seal(encode_inner(Code.POST, inner, payload), self._request, self._request.piv)

    def open(self, option: bytes | None, payload: bytes) -> SealedResponse:
        """Return the response to this command. Raises `Poison` if it is not the device's: then it says nothing about it."""
        if option is None:
            raise Poison("unprotected", "it answered without OSCORE")
        try:
            return SealedResponse(*decode_inner(self._security.open(payload, self._request, decode_option(option).piv)))
        except FormatError as error:
            raise Poison("bad-oscore", f"it sealed no message: {error}") from None


async def ready_context(table: ContextTable, device: str) -> LiveContext | None:
    """Return the context of a device, with own numbers; None if it has no key of OSCORE. Safe to cancel."""
    live = table.of_device(device)
    if live is not None:
        reserved = asyncio.Event()
        table.when_reserved(live, reserved.set)
        await reserved.wait()
    return live
