"""A client made of bytes, and the messages that it sends."""

import asyncio
import socket
from typing import Any

from fogline_edge.adapters.coap.wire import CoapMessage, Code, MessageType, Option, decode, encode, uint

LIMIT_S = 60.0


class Wire:
    """A client made of bytes."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.raw = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.raw.setblocking(False)
        self.raw.connect(address)

    def send(self, *messages: CoapMessage | bytes) -> None:
        for each in messages:
            self.raw.send(each if isinstance(each, bytes) else encode(each))

    async def receive(self) -> CoapMessage:
        async with asyncio.timeout(LIMIT_S):
            return decode(await asyncio.get_running_loop().sock_recv(self.raw, 65_536))

    async def ask(self, message: CoapMessage | bytes) -> CoapMessage:
        self.send(message)
        return await self.receive()

    async def alive(self) -> None:
        """The other side is there, has handled all that was sent before, and has sent nothing that was not received."""
        assert await self.ask(CoapMessage(MessageType.CON, Code.EMPTY, 0xFFFF)) == CoapMessage(
            MessageType.RST, Code.EMPTY, 0xFFFF
        )


def request(path: str = "telemetry/acme/d1", payload: bytes = b"x", mid: int = 1, **more: Any) -> CoapMessage:
    """A PUT. `more`: other fields of the message, `options` and `query` beside the path."""
    path_options = tuple((int(Option.URI_PATH), each.encode()) for each in path.split("/"))
    query = tuple((int(Option.URI_QUERY), each.encode()) for each in more.pop("query", ()))
    fields: dict[str, Any] = {"kind": MessageType.CON, "code": Code.PUT, "token": b"t", **more}
    options = (*path_options, *query, *fields.pop("options", ()))
    return CoapMessage(mid=mid, payload=payload, options=tuple(sorted(options, key=lambda each: each[0])), **fields)


def content_format(number: int) -> tuple[int, bytes]:
    return int(Option.CONTENT_FORMAT), uint(number)


def block1(number: int, exponent: int = 0, *, more: bool) -> tuple[int, bytes]:
    return int(Option.BLOCK1), uint(number << 4 | more << 3 | exponent)
