"""Gathers the items of the next commit, and decides when they are handed to the writer."""

import asyncio
from collections.abc import Callable

from fogline.events.event import Arrival, Receipt
from fogline_edge.machine.boot import Clock, moment
from fogline_edge.outbox.writer.ingest import Act, Waiting
from fogline_edge.settings import OutboxSettings

LEAST_WAIT_S = 0.001
"""Shortest wait for another item after an item has joined a group. Otherwise, twice the time between the last items."""
SAME_TIME_S = 0.001
"""Events of a group that come within this time get one time stamp: to make one takes as long as to store an event."""
UNDELAYED_ITEMS = 8  # single items that skip the delay, after one delay gathered no other item


class Gathering:
    """The next group. Used on the loop.

    While the writer commits a group, the next one gathers. When the writer is idle, a group waits for more items as long as
    they come, `group_commit_ms` at most. `submit`: hands a group to the writer.
    """

    def __init__(self, settings: OutboxSettings, clock: Clock, submit: Callable[[list[Waiting | Act]], None]) -> None:
        self._longest_s = settings.group_commit_ms / 1000
        self._most = settings.group_commit_events
        self._clock = clock
        self._submit = submit
        self._loop = asyncio.get_running_loop()
        self._items: list[Waiting | Act] = []
        self._when, self._when_s = moment(clock), 0.0
        self._committing = 0
        self._timer: asyncio.TimerHandle | None = None
        self._until_s = self._item_s = self._submitted_s = 0.0
        self._undelayed = 0

    def put(self, arrival: Arrival, done: Callable[[Receipt], None]) -> None:
        """Add an arrival."""
        items, now_s = self._items, self._loop.time()
        if not items or now_s - self._when_s > SAME_TIME_S:
            self._when, self._when_s = moment(self._clock), now_s
        items.append(Waiting(arrival, self._when, done))
        if self._timer is None or len(items) == 2 or len(items) >= self._most:
            self._added()

    def act(self, act: Act, *, urgent: bool) -> None:
        """Add a change of the file. `urgent`: the group is handed over in the next iteration of the loop."""
        if not self._items:
            self._when_s = 0.0
        self._items.append(act)
        self._added()
        if urgent and self._items:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_later(0, self.submit)

    def committed(self, groups: int) -> None:
        """Note that the writer has finished so many groups."""
        self._committing -= groups
        if not self._committing:
            self.submit()

    def submit(self) -> None:
        """Hand the group over, if there is one."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._items:
            now_s = self._loop.time()
            self._item_s, self._submitted_s = (now_s - self._submitted_s) / len(self._items), now_s
            self._committing += 1
            items, self._items = self._items, []
            self._submit(items)

    def _added(self) -> None:
        if len(self._items) >= self._most:
            self.submit()
        elif not self._committing:
            self._wait()

    def _wait(self) -> None:
        """Set the timer: a single item waits as long as it may, several until none is expected."""
        now_s = self._loop.time()
        if self._timer is not None:
            self._timer.cancel()
        else:
            self._until_s = now_s if self._undelayed else now_s + self._longest_s
            self._undelayed -= self._undelayed > 0
        wait_s = self._until_s - now_s
        if len(self._items) > 1:
            wait_s = min(wait_s, max(LEAST_WAIT_S, 2 * self._item_s))
        self._timer = self._loop.call_later(wait_s, self._look, len(self._items))

    def _look(self, before: int) -> None:
        """Hand the group over, unless items have joined the `before` ones and it may wait for more."""
        if len(self._items) > before and self._loop.time() < self._until_s:
            self._wait()
            return
        if len(self._items) == 1 and not self._undelayed:
            self._undelayed = UNDELAYED_ITEMS
        self.submit()
