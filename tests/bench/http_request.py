"""Requests over one HTTP connection that is kept open, with little time of its own."""

import asyncio
import json
from typing import Any


class HttpConnection:
    """One keep-alive connection."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def open(self) -> None:
        """Connect."""
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)

    async def close(self) -> None:
        """Cut the connection."""
        self._writer.close()

    async def post(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Send JSON; returns the status and the JSON of the response."""
        data = json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
        )
        self._writer.write(head.encode() + data)
        found = (await self._reader.readuntil(b"\r\n\r\n")).decode()
        length = next(int(each.split(":")[1]) for each in found.lower().split("\r\n") if each.startswith("content-length:"))
        return int(found.split(" ", 2)[1]), json.loads(await self._reader.readexactly(length))
