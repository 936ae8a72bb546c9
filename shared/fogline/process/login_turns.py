"""Turns for the checks of passwords, by address: whoever floods a listener with logins waits behind itself, not others."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from fogline.errors import SlowDown

MAX_WAITING: Final = 256
MAX_OF_ADDRESS: Final = 32
"""Logins that may wait for their turn: of all addresses, and of one."""
RETRY_S: Final = 2.0


class LoginTurns:
    """Lets `at_once` logins go on at a time. The addresses take turns; the logins of one address go in order.

    If too many wait, the newest of the address with most is refused. "Busy" says nothing about its password.
    """

    def __init__(self, at_once: int, *, most: int = MAX_WAITING, most_of_address: int = MAX_OF_ADDRESS) -> None:
        self._free = at_once
        self._most = most
        self._most_of_address = most_of_address
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # the address that has waited longest is first

    def __len__(self) -> int:
        """Return the number of logins that wait."""
        return sum(map(len, self._waiting.values()))

    @asynccontextmanager
    async def turn(self, address: str) -> AsyncIterator[None]:
        """Wait for a turn, and keep it within the block. Safe to cancel. Raises `SlowDown` if too many logins wait."""
        if self._free:
            self._free -= 1
        else:
            await self._wait(address)
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, address: str) -> None:
        if len(self._waiting.get(address, ())) >= self._most_of_address:
            raise _busy()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(address, deque()).append(future)
        if len(self) > self._most:
            crowd = max(self._waiting, key=lambda each: len(self._waiting[each]))
            newest = self._waiting[crowd][-1]
            self._take(crowd, -1)
            if not newest.done():  # a task that was cancelled has not run yet
                newest.set_exception(_busy())
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                self._pass_on()  # the turn had come
            elif future in self._waiting.get(address, ()):
                self._take(address, self._waiting[address].index(future))
            raise

    def _pass_on(self) -> None:
        while self._waiting:
            address = next(iter(self._waiting))
            future = self._waiting[address][0]
            self._take(address, 0)
            if (others := self._waiting.pop(address, None)) is not None:
                self._waiting[address] = others  # behind the other addresses
            if not future.done():  # a task that was cancelled has not run yet
                future.set_result(None)
                return
        self._free += 1

    def _take(self, address: str, at: int) -> None:
        del self._waiting[address][at]
        if not self._waiting[address]:
            del self._waiting[address]


def _busy() -> SlowDown:
    return SlowDown("too many others log in", retry_after_s=RETRY_S)
