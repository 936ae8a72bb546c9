"""An event loop without sockets whose time passes only when a test says so."""

import asyncio
import heapq
from asyncio import events


class VirtualLoop(asyncio.AbstractEventLoop):
    """Runs callbacks and timers, in order. `advance` lets time pass."""

    def __init__(self) -> None:
        self._now_s = 1000.0
        self._ready: list[asyncio.Handle] = []
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._count = 0
        self.errors: list[dict] = []

    def time(self) -> float:
        return self._now_s

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def create_future(self) -> asyncio.Future:
        return asyncio.Future(loop=self)

    def call_exception_handler(self, context) -> None:
        self.errors.append(context)

    def call_soon(self, callback, *args, context=None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(self, delay, callback, *args, context=None) -> asyncio.TimerHandle:
        least = 1e-6 if delay > 0 else 0.0  # else a rest of a float would be over at the same moment, for ever
        return self.call_at(self._now_s + max(delay, least), callback, *args, context=context)

    def call_at(self, when, callback, *args, context=None) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._count += 1
        heapq.heappush(self._timers, (when, self._count, handle))
        return handle

    def _timer_handle_cancelled(self, handle) -> None:
        """Cancelled timers are skipped when they are due."""

    def run(self) -> None:
        """Run until nothing is ready. Raises the first error of a callback."""
        former = events._get_running_loop()
        events._set_running_loop(self)
        try:
            while self._ready:
                handle = self._ready.pop(0)
                if not handle.cancelled():
                    handle._run()
        finally:
            events._set_running_loop(former)
        if self.errors:
            raise self.errors[0].get("exception") or AssertionError(self.errors[0])

    def call(self, function, *args):
        """Call a function as if from this loop, and run what follows."""
        results = []
        self.call_soon(lambda: results.append(function(*args)))
        self.run()
        return results[0]

    def advance(self, seconds: float) -> None:
        """Let time pass, timer by timer."""
        end_s = self._now_s + seconds
        while self._timers and self._timers[0][0] <= end_s:
            when, _, handle = heapq.heappop(self._timers)
            self._now_s = max(self._now_s, when)
            if not handle.cancelled():
                self._ready.append(handle)
                self.run()
        self._now_s = end_s
