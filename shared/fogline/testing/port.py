"""A port without a disk: what an adapter is given in tests. It passes the contract suite of the real one."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping

from fogline.errors import SlowDown
from fogline.event import Arrival, Receipt
from fogline.identity import AckDelivery, digest
from fogline.report import Reported, is_news

Done = Callable[[Receipt], None]


class MemoryPort:
    """Commits what was put at the next turn of the loop, all at once; or, after `hold`, when `release` says so.

    `arrivals`: what was stored, in order, without recognised resends and what is no news. `receipts`: one for each
    arrival committed. `capacity`: how many may wait for their commit; beyond, `put` raises `SlowDown`.
    """

    def __init__(self, *, tenant: str = "acme", gateway: str = "gw-1", capacity: int = 10_000) -> None:
        self.tenant = tenant
        self.gateway = gateway
        self.capacity = capacity
        self.arrivals: list[Arrival] = []
        self.receipts: list[Receipt] = []
        self._waiting: deque[tuple[Arrival, Done] | Callable[[], None]] = deque()
        self._for_room: list[Callable[[], None]] = []
        self._slots: dict[tuple[str, bytes, int], bytes] = {}
        self._of_former_runs: set[tuple[str, bytes, int]] = set()
        self._reported: dict[tuple[str, str], Reported] = {}
        self._kept: dict[str, bytes] = {}
        self._held = False
        self._scheduled = False
        self._changed = asyncio.Event()

    @property
    def waiting(self) -> int:
        """How many were put and are not committed."""
        return len(self._waiting)

    def put(self, arrival: Arrival, done: Done) -> None:
        """As `Port.put`."""
        if len(self._waiting) >= self.capacity:
            raise SlowDown(f"{self.capacity} arrivals wait already")
        self._waiting.append((arrival, done))
        self._changed.set()
        self._schedule()

    @property
    def crowded(self) -> bool:
        """As `Port.crowded`."""
        return len(self._waiting) >= self.capacity

    def when_room(self, call: Callable[[], None]) -> None:
        """As `Port.when_room`."""
        self._for_room.append(call)
        if len(self._waiting) < self.capacity:
            asyncio.get_running_loop().call_soon(self._tell_room)

    def forget(self, device: str, slot: bytes, done: Callable[[], None], number: int = 0) -> None:
        """As `Port.forget`."""

        def commit() -> None:
            self._slots.pop((device, slot, number), None)
            done()

        self._later(commit)

    def keep(self, key: str, value: bytes | None, done: Callable[[], None]) -> None:
        """As `Port.keep`."""
        if value is None:
            self._kept.pop(key, None)
        else:
            self._kept[key] = value
        self._later(done)

    def kept(self, prefix: str) -> Mapping[str, bytes]:
        """As `Port.kept`."""
        return {key: value for key, value in self._kept.items() if key.startswith(prefix)}

    def _later(self, commit: Callable[[], None]) -> None:
        self._waiting.append(commit)
        self._changed.set()
        self._schedule()

    def restart(self) -> None:
        """Go on as after a restart of the gateway: what was stored so far is of an earlier run."""
        self._of_former_runs.update(self._slots)

    def hold(self) -> None:
        """Commit nothing until `release`."""
        self._held = True

    def release(self, count: int | None = None) -> None:
        """Commit the `count` oldest that wait and go on holding; without a count all, and hold no longer."""
        if count is None:
            self._held = False
        self._commit(len(self._waiting) if count is None else count)

    async def until(self, condition: Callable[[], bool], what: str, limit_s: float = 10.0) -> None:
        """Return once `condition` holds; it is looked at after every put and commit. Raises `AssertionError` with `what`."""
        try:
            async with asyncio.timeout(limit_s):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(
                f"not within {limit_s:.0f} s: {what} ({len(self.arrivals)} stored, {len(self._waiting)} waiting)"
            ) from None

    async def until_stored(self, count: int, limit_s: float = 10.0) -> list[Arrival]:
        """All arrivals, once there are at least `count`."""
        await self.until(lambda: len(self.arrivals) >= count, f"{count} arrivals stored", limit_s)
        return self.arrivals

    def _schedule(self) -> None:
        if not self._scheduled and not self._held:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        if not self._held:
            self._commit(len(self._waiting))

    def _commit(self, count: int) -> None:
        committed = [self._waiting.popleft() for _ in range(min(count, len(self._waiting)))]
        for each in committed:
            if callable(each):
                each()
                continue
            arrival, done = each
            receipt = self._store(arrival)
            self.receipts.append(receipt)
            done(receipt)
        self._changed.set()
        self._tell_room()

    def _store(self, arrival: Arrival) -> Receipt:
        resend, report = arrival.retransmission, arrival.report
        if report is not None:
            content, now_ms = digest(arrival.channel, arrival.data), int(asyncio.get_running_loop().time() * 1000)
            if not is_news(report, self._reported.get((arrival.device, arrival.channel)), content, now_ms):
                return Receipt.FILTERED
            self._reported[arrival.device, arrival.channel] = Reported(content, now_ms)
        if resend is not None:
            content = digest(arrival.channel, arrival.data, resend.token)
            slot = (arrival.device, resend.slot, resend.number)
            unproven = resend.ack_delivery is AckDelivery.UNPROVEN or slot in self._of_former_runs
            if resend.again and unproven and self._slots.get(slot) == content:
                return Receipt.DUPLICATE
            self._slots[slot] = content
            self._of_former_runs.discard(slot)
        self.arrivals.append(arrival)
        return Receipt.STORED

    def _tell_room(self) -> None:
        while self._for_room and len(self._waiting) < self.capacity:
            self._for_room.pop(0)()
