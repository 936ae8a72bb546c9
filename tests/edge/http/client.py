"""A client made of bytes."""

import asyncio
import base64
import contextlib
from typing import NamedTuple

import h11

from fogline_lab.clock import pass_time

LIMIT_S = 60.0


class Received(NamedTuple):
    """A response."""

    status: int
    headers: dict[str, str]
    body: bytes


class Talker:
    """One connection. `send` bytes, then `receive` responses."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._h11 = h11.Connection(h11.CLIENT)
        self._asked = False

    def send(self, *requests: bytes) -> None:
        self.writer.write(b"".join(requests))

    async def receive(self) -> Received:
        """The next response, whatever was asked."""
        if self._h11.our_state is h11.IDLE:  # the requests are made of bytes: h11 only reads here
            self._h11.send(h11.Request(method="POST", target="/", headers=[("host", "x"), ("content-length", "0")]))
            self._h11.send(h11.EndOfMessage())
        head, body = None, b""
        async with asyncio.timeout(LIMIT_S):
            while True:
                event = self._h11.next_event()
                if event is h11.NEED_DATA:
                    data = await self.reader.read(65_536)
                    if not data:
                        raise ConnectionResetError("closed without a response")
                    self._h11.receive_data(data)
                elif isinstance(event, h11.Response):
                    head = event
                elif isinstance(event, h11.Data):
                    body += bytes(event.data)
                elif isinstance(event, h11.EndOfMessage):
                    break
        if self._h11.their_state is h11.DONE and self._h11.our_state is h11.DONE:
            self._h11.start_next_cycle()
        assert head is not None
        return Received(head.status_code, {name.decode(): value.decode() for name, value in head.headers}, body)

    async def ask(self, request: bytes) -> Received:
        self.send(request)
        return await self.receive()

    async def closed(self) -> bytes:
        """What still comes until the other side has closed."""
        async with asyncio.timeout(LIMIT_S):
            return await self.reader.read()

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):  # the other side may have ended first, in TCP or in TLS
            await self.writer.wait_closed()


async def minutes_pass(condition, what: str) -> None:
    """Let minutes pass until it is so. One is not enough while the kernel still takes responses that nobody reads."""
    for _ in range(3000):
        if condition():
            return
        pass_time(60)
        await asyncio.sleep(0.01)
    raise AssertionError(f"not so: {what}")


def request(path="/telemetry/acme/d1", body: bytes = b"x", method: str = "PUT", **headers: str) -> bytes:
    """A request. In the names of headers `_` is `-`."""
    lines = [f"{method} {path} HTTP/1.1", "host: gw", f"content-length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def basic(user: str, password: str = "one") -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
