"""An adapter's port without a disk, for tests. It passes the contract suite of the real one."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from fogline.errors import SlowDown
from fogline.events.event import Arrival, Receipt
from fogline.events.identity import AckDelivery, digest
from fogline.events.report_on_change import Reported, is_news
from fogline_edge.rules.message import RuleMessage

Done = Callable[[Receipt], None]


class _Recognition:
    """Receipts of arrivals, by the rules of the outbox for retransmissions and unchanged reports."""

    def __init__(self) -> None:
        self.slots: dict[tuple[bytes, int], tuple[str, bytes]] = {}
        self.of_former_runs: set[tuple[bytes, int]] = set()
        self._reported: dict[tuple[str, str], tuple[bytes, Reported]] = {}

    def receipt(self, arrival: Arrival) -> Receipt:
        """Return `STORED` for a new arrival, else the reason why it is discarded."""
        resend, report = arrival.retransmission, arrival.report
        if report is not None:
            content, now_ms = digest(arrival.channel, arrival.data), int(asyncio.get_running_loop().time() * 1000)
            former, last = self._reported.get((arrival.device, arrival.channel), (None, None))
            if not is_news(report, last, now_ms, changed=content != former):
                return Receipt.FILTERED
            self._reported[arrival.device, arrival.channel] = content, Reported(now_ms)
        if resend is not None:
            message = arrival.device, digest(arrival.channel, arrival.data, resend.token)
            slot = (resend.slot, resend.number)
            unproven = resend.ack_delivery is AckDelivery.UNPROVEN or slot in self.of_former_runs
            if resend.again and unproven and self.slots.get(slot) == message:
                return Receipt.DUPLICATE
            self.slots[slot] = message
            self.of_former_runs.discard(slot)
        return Receipt.STORED


class _GroupCommit:
    """Calls that wait for a commit: all run at the next turn of the loop, or after `hold` when `release` is called."""

    def __init__(self, committed: Callable[[], None]) -> None:
        self.waiting: deque[Callable[[], None]] = deque()
        self.held = False
        self._committed = committed
        self._scheduled = False

    def add(self, call: Callable[[], None]) -> None:
        """Run `call` at the next commit."""
        self.waiting.append(call)
        if not self._scheduled and not self.held:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._turn)

    def commit(self, count: int) -> None:
        """Run the `count` oldest calls."""
        for call in [self.waiting.popleft() for _ in range(min(count, len(self.waiting)))]:
            call()
        self._committed()

    def _turn(self) -> None:
        self._scheduled = False
        if not self.held:
            self.commit(len(self.waiting))


class NoEvents:
    """Reports no event: those of a `MemoryPort` have no ids."""

    def listen(self, call: Callable[[Sequence[bytes]], None] | None) -> None:
        """See `CommittedEvents.listen`."""

    def publish_by(self, call: Callable[[Sequence[RuleMessage]], None] | None) -> None:
        """See `CommittedEvents.publish_by`."""


class MemoryPort:
    """Commits arrivals at the next turn of the loop, all at once; or, after `hold`, when `release` is called.

    `arrivals`: the stored ones, in order, without retransmissions and unchanged reports. `receipts`: one for each committed
    arrival. `capacity`: how many may wait for their commit; beyond, `put` raises `SlowDown`.
    """

    def __init__(self, *, tenant: str = "acme", gateway: str = "gw-1", capacity: int = 10_000) -> None:
        self.tenant = tenant
        self.gateway = gateway
        self.capacity = capacity
        self.arrivals: list[Arrival] = []
        self.receipts: list[Receipt] = []
        self.events = NoEvents()
        self._group = _GroupCommit(self._committed)
        self._recognition = _Recognition()
        self._for_room: list[Callable[[], None]] = []
        self._kept: dict[str, bytes] = {}
        self._changed = asyncio.Event()

    @property
    def waiting(self) -> int:
        """Number of calls that wait for their commit."""
        return len(self._group.waiting)

    def put(self, arrival: Arrival, done: Done) -> None:
        """See `Port.put`."""
        if self.crowded:
            raise SlowDown(f"{self.capacity} arrivals wait already")

        def commit() -> None:
            receipt = self._recognition.receipt(arrival)
            if receipt is Receipt.STORED:
                self.arrivals.append(arrival)
            self.receipts.append(receipt)
            done(receipt)

        self._group.add(commit)
        self._changed.set()

    @property
    def crowded(self) -> bool:
        """See `Port.crowded`."""
        return self.waiting >= self.capacity

    def when_room(self, call: Callable[[], None]) -> None:
        """See `Port.when_room`."""
        self._for_room.append(call)
        if not self.crowded:
            asyncio.get_running_loop().call_soon(self._call_for_room)

    def forget(self, slot: bytes, done: Callable[[], None], number: int = 0) -> None:
        """See `Port.forget`."""

        def commit() -> None:
            self._recognition.slots.pop((slot, number), None)
            done()

        self._group.add(commit)
        self._changed.set()

    def keep(self, key: str, value: bytes | None, done: Callable[[], None]) -> None:
        """See `Port.keep`."""
        if value is None:
            self._kept.pop(key, None)
        else:
            self._kept[key] = value
        self._group.add(done)
        self._changed.set()

    def kept(self, prefix: str) -> Mapping[str, bytes]:
        """See `Port.kept`."""
        return {key: value for key, value in self._kept.items() if key.startswith(prefix)}

    def restart(self) -> None:
        """Go on as after a restart of the gateway: all slots are of an earlier run."""
        self._recognition.of_former_runs.update(self._recognition.slots)

    def hold(self) -> None:
        """Commit nothing until `release`."""
        self._group.held = True

    def release(self, count: int | None = None) -> None:
        """Commit the `count` oldest calls and go on holding; without a count commit all, and hold no longer."""
        if count is None:
            self._group.held = False
        self._group.commit(self.waiting if count is None else count)

    async def until(self, condition: Callable[[], bool], what: str, limit_s: float = 60.0) -> None:
        """Wait until `condition` holds; it is checked after every put and commit. Raises `AssertionError` with `what`."""
        try:
            async with asyncio.timeout(limit_s):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(
                f"not within {limit_s:.0f} s: {what} ({len(self.arrivals)} stored, {self.waiting} waiting)"
            ) from None

    async def until_stored(self, count: int, limit_s: float = 60.0) -> list[Arrival]:
        """Wait until at least `count` arrivals are stored, and return all."""
        await self.until(lambda: len(self.arrivals) >= count, f"{count} arrivals stored", limit_s)
        return self.arrivals

    def _committed(self) -> None:
        self._changed.set()
        self._call_for_room()

    def _call_for_room(self) -> None:
        while self._for_room and not self.crowded:
            self._for_room.pop(0)()
