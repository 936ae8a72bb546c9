"""An MQTT 3.1.1 client of few words, for latencies: publishes at QoS 1, answers commands at once."""

import asyncio
import time
from contextlib import suppress

CONNECT, PUBLISH, PUBACK, SUBSCRIBE = 0x10, 0x32, 0x40, 0x82
CLEAN_SESSION = 2
NO_KEEP_ALIVE = b"\x00\x00"


class Device:
    """One connection. `puback_s`: seconds from each PUBLISH to its PUBACK."""

    def __init__(self) -> None:
        self.puback_s: list[float] = []
        self._waiting: dict[int, tuple[float, asyncio.Future[None]]] = {}
        self._number = 0

    async def connect(self, port: int, name: str) -> None:
        """Log in as client, and device, `name`."""
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", port)
        body = _text("MQTT") + bytes((4, CLEAN_SESSION)) + NO_KEEP_ALIVE + _text(name)
        self._writer.write(_packet(CONNECT, body))
        if (await self._packet())[1][1]:
            raise ConnectionError("the gateway did not accept the connection")
        self._task = asyncio.create_task(self._serve(), name=f"device {name}")

    async def close(self) -> None:
        """Cut the connection."""
        self._task.cancel()
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()

    def publish(self, topic: str, payload: bytes) -> "asyncio.Future[None]":
        """QoS 1; the future is done with the PUBACK."""
        self._number = self._number % 65535 + 1
        done = asyncio.get_running_loop().create_future()
        self._waiting[self._number] = (time.monotonic(), done)
        self._writer.write(_packet(PUBLISH, _text(topic) + self._number.to_bytes(2, "big") + payload))
        return done

    async def take_commands(self) -> None:
        """Subscribe to the commands of the own device at QoS 0; each is answered with status 200."""
        self._subscribed = asyncio.Event()
        self._writer.write(_packet(SUBSCRIBE, b"\x00\x01" + _text("command///req/#") + b"\x00"))
        await self._subscribed.wait()

    async def _serve(self) -> None:
        while True:
            kind, body = await self._packet()
            if kind & 0xF0 == PUBACK:
                began, done = self._waiting.pop(int.from_bytes(body[:2], "big"))
                self.puback_s.append(time.monotonic() - began)
                done.set_result(None)
            elif kind & 0xF0 == PUBLISH & 0xF0:
                topic = body[2 : 2 + int.from_bytes(body[:2], "big")].decode()
                self.publish(f"command///res/{topic.split('/')[4]}/200", b"{}")
            else:
                self._subscribed.set()

    async def _packet(self) -> tuple[int, bytes]:
        kind = (await self._reader.readexactly(1))[0]
        length = shift = 0
        while True:
            digit = (await self._reader.readexactly(1))[0]
            length |= (digit & 127) << shift
            shift += 7
            if digit < 128:
                return kind, await self._reader.readexactly(length)


def _text(text: str) -> bytes:
    return len(text).to_bytes(2, "big") + text.encode()


def _packet(kind: int, body: bytes) -> bytes:
    length, rest = b"", len(body)
    while True:
        rest, digit = divmod(rest, 128)
        length += bytes((digit | 128 if rest else digit,))
        if not rest:
            return bytes((kind,)) + length + body
