"""A client of the metrics port, byte by byte."""

import asyncio
import contextlib

LIMIT_S = 60.0


async def get(address: str, path: str = "/metrics", method: str = "GET") -> tuple[str, str]:
    host, _, port = address.rpartition(":")
    async with asyncio.timeout(LIMIT_S):
        reader, writer = await asyncio.open_connection(host, int(port))
        with contextlib.suppress(ConnectionError):  # refused before the request was read
            writer.write(f"{method} {path} HTTP/1.1\r\nHost: {address}\r\n\r\n".encode())
            await writer.drain()
        try:
            text = (await reader.read()).decode()
        except ConnectionResetError:
            text = "reset"
        finally:
            writer.close()
    head, _, body = text.partition("\r\n\r\n")
    return head.split("\r\n", 1)[0], body
