"""Simulated CoAP device: aiocoap's client with confirmable requests; it serves commands, or polls for them.

The device retransmits a request as RFC 7252 says, through every outage of the gateway. Its socket is not connected, so
that a closed port gives no error. After the last retransmission it is unknown whether the gateway stored the message; the
device goes on with the next one.
"""

import asyncio
import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

import aiocoap
from aiocoap import resource

from demo.payload import FORMATS, JSON, SENML, Device, content_type, path, question
from demo.simulated import ANSWER, Answered

PATIENCE_S = 100.0
"""Timeout of a response: longer than a request is retransmitted (RFC 7252, section 4.8.2)."""
TTD_S = 5
"""Time that a polling device waits for a command (Hono: `hono-ttd`)."""
ASK_PATIENCE_S = TTD_S + 5.0
"""Timeout of a poll. A gateway may promise the response and be killed before it sends it."""
REST_S = 0.1
"""Shortest pause between two polls."""
MAX_AGE_S = 60
"""Max-Age of a 5.03 without one (RFC 7252, section 5.10.5)."""
OPEN_S = 10.0
_LATER = (aiocoap.SERVICE_UNAVAILABLE, aiocoap.TOO_MANY_REQUESTS)

logging.getLogger("coap-server").setLevel(logging.ERROR)  # it warns of every request that a server sends


class CoapLoop:
    """Event loop of all CoAP devices, in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="radio", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine on the loop to its end, from another thread."""
        asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(OPEN_S)

    def close(self) -> None:
        """Stop the thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(OPEN_S)


class _CoapClient:
    """Requests to one gateway, one under way at a time (RFC 7252, section 4.7)."""

    def __init__(self, endpoint: tuple[str, int]) -> None:
        self._endpoint = endpoint
        self._not_before = 0.0

    async def open(self, port: int, site: resource.Resource | None) -> None:
        """Open the socket, on `port`; `site` serves requests of the gateway."""
        self._context = await aiocoap.Context.create_server_context(
            site, bind=("127.0.0.1", port), transports=["simplesocketserver"]
        )
        first = aiocoap.Message(code=aiocoap.PUT, uri="coap://{}:{}/".format(*self._endpoint))
        await self._context.find_remote_and_interface(first)
        self._gateway = first.remote

    async def close(self) -> None:
        """Close the socket."""
        await self._context.shutdown()

    async def exchange(
        self, where: tuple[str, ...], body: bytes, media_type: str | None, patience_s: float, *query: str
    ) -> Any | None:
        """Send a request. Returns `None` if no response came. After a 5.03 or 4.29, it waits for Max-Age and sends again."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(max(0.0, self._not_before - loop.time()))
            message = aiocoap.Message(
                code=aiocoap.PUT,
                payload=body,
                uri_path=where,
                uri_query=query,
                content_format=FORMATS[media_type or JSON],
                transport_tuning=aiocoap.Reliable,
            )
            message.remote = self._gateway
            response = await self._request(message, patience_s)
            if response is None or response.code not in _LATER:
                return response
            max_age = response.opt.max_age
            self._not_before = loop.time() + (MAX_AGE_S if max_age is None else max_age)

    async def _request(self, message: Any, patience_s: float) -> Any | None:
        request = self._context.request(message, handle_blockwise=False)
        try:
            await asyncio.wait([request.response], timeout=patience_s)
            if not request.response.done() or request.response.exception() is not None:
                return None
            return request.response.result()
        finally:
            request.response.cancel()


class CoapDevice:
    """See `Simulated`. `port`: of a device that is a server; 0 for any."""

    outstanding = 10

    def __init__(
        self, device: Device, endpoint: tuple[str, int], did: Callable[[str, str], None], radio: CoapLoop, *, port: int = 0
    ) -> None:
        self.device = device
        self.connections = 0
        self.connected = False
        self.sent = 0
        self._client = _CoapClient(endpoint)
        self._did = did
        self._radio = radio
        self._port = port
        self._answers: deque[Answered] = deque()
        self._waiting: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._reports: set[asyncio.Task[None]] = set()

    def connect(self) -> None:
        """Open the socket; a polling device begins to poll."""
        self._radio.run(self._open())
        self.connected = True

    def close(self) -> None:
        """Close the socket."""
        self._radio.run(self._close())

    @property
    def waiting(self) -> int:
        """Messages without acknowledgement."""
        return len(self._waiting)

    def publish(self, body: bytes, now: float) -> None:
        """Send the next message."""
        self.sent += 1
        self._waiting.add(self.sent)
        self._radio.loop.call_soon_threadsafe(self._begin, self.sent, body, now)

    def take_answers(self) -> list[Answered]:
        """See `Simulated`."""
        taken = [self._answers.popleft() for _ in range(len(self._answers))]
        self._waiting.difference_update(each.n for each in taken)
        return taken

    def lose_line(self) -> None:
        """Do nothing: CoAP has no connection."""

    def give_up(self) -> None:
        """Cancel all waits: a promised response may never come."""
        self._radio.loop.call_soon_threadsafe(lambda: [each.cancel() for each in self._reports])

    # --- on the loop

    async def _open(self) -> None:
        executed = partial(self._did, self.device.name)
        await self._client.open(self._port, _Commands(executed) if self.device.serves else None)
        if not self.device.serves:
            self._start(self._keep_asking(), self._tasks)

    async def _close(self) -> None:
        tasks = [*self._tasks, *self._reports]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._client.close()

    def _start(self, coroutine: Coroutine[Any, Any, None], owner: set[asyncio.Task[None]]) -> None:
        task = self._radio.loop.create_task(coroutine)
        owner.add(task)
        task.add_done_callback(owner.discard)

    def _begin(self, n: int, body: bytes, now: float) -> None:
        self._start(self._report(n, body, now), self._reports)

    async def _report(self, n: int, body: bytes, began: float) -> None:
        """Send one message. A 2.04 acknowledges it."""
        success: bool | None = None
        try:
            response = await self._client.exchange(path(self.device), body, content_type(self.device), PATIENCE_S)
            success = None if response is None else response.code is aiocoap.CHANGED
        finally:
            at = time.monotonic()
            self._answers.append(Answered(n, success, at - began, at))

    async def _keep_asking(self) -> None:
        """Poll for commands, one after the other."""
        while True:
            body = question(round(random.uniform(60, 90), 1))
            response = await self._client.exchange(path(self.device), body, SENML, ASK_PATIENCE_S, f"hono-ttd={TTD_S}")
            name = None if response is None else command_name(response.opt.location_query)
            if response is not None and name is not None:
                self._did(self.device.name, name)
                if response.opt.location_path:
                    self._start(self._answer(response.opt.location_path), self._tasks)
            await asyncio.sleep(REST_S)

    async def _answer(self, where: tuple[str, ...]) -> None:
        """Answer a command, with the same answer until a response comes."""
        while await self._client.exchange(where, ANSWER, JSON, PATIENCE_S, "hono-cmd-status=200") is None:
            pass


class _Commands(resource.Resource):  # type: ignore[misc]
    """Resource of a device that is a server: POST to `/do/{name of the command}`."""

    def __init__(self, did: Callable[[str], None]) -> None:
        super().__init__()
        self._did = did

    async def render_post(self, request: Any) -> Any:
        """Execute the command and answer."""
        self._did(request.opt.uri_path[-1])
        return aiocoap.Message(code=aiocoap.CHANGED, payload=ANSWER, content_format=FORMATS[JSON])


def command_name(location_query: Sequence[str]) -> str | None:
    """Return the name of the command in a response (Hono: `hono-command={name}`), if there is one."""
    return next((each.partition("=")[2] for each in location_query if each.startswith("hono-command=")), None)
