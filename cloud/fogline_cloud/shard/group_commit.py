"""Group commit: many deliveries in one Kafka transaction, settled when consumers see it."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fogline.errors import FoglineError, Poison, Unreachable
from fogline.gateway.hello import Mark
from fogline.process.crash_points import CrashPoint, crash_point
from fogline_cloud.settings import BridgeSettings
from fogline_cloud.shard.checkpoint import entry_of
from fogline_cloud.shard.inbox import Item, MarksQuery, ShardInbox, Stop
from fogline_cloud.shard.owned_shard import Linger, OwnedShard, RefusableWork, ShardWork
from fogline_cloud.shard.pace import Pace
from fogline_cloud.shard.retirement import Retirement

URGENT_EVENTS = 1000
"""Largest number of events in a transaction with urgent work."""

GATHERED_EVENTS = 50
"""Events with which a transaction lingers no longer than with an alarm: more of them in a transaction save little."""

PIPELINED_EVENTS = 100
"""Least number of events at the beginning of a transaction that begins before the former one is visible. Kafka delays such a
transaction by 20 ms, in which many events can be written, and in which a command would wait."""

_log = logging.getLogger("fogline.shard")

_turn = threading.Lock()
"""Lets one shard of the process compute at a time. Every event and every delivery report needs the interpreter, and a contest
of all threads for it costs more than the work. Never held during a wait."""


@dataclass(slots=True)
class _Unsettled:
    """A committed group. Its callbacks settle its deliveries, and run when the commit is visible to consumers."""

    group: list[ShardWork]
    callbacks: list[Callable[[], None]]
    committed_s: float


class GroupCommit:
    """Runs the transactions of one ownership. Used by the shard's thread. To be discarded after any error.

    While one transaction becomes visible to consumers, the next one collects work; it commits after the first is settled.
    """

    def __init__(self, number: int, owned: OwnedShard, inbox: ShardInbox, settings: BridgeSettings, pace: Pace) -> None:
        self._number = number
        self.owned = owned
        self._producer = owned.writer.producer
        self._inbox = inbox
        self._settings = settings
        self._pace = pace
        self._unsettled: _Unsettled | None = None
        self._next_checkpoint = 0.0
        self._retirement = Retirement()

    def run(self, retry: list[ShardWork], group: list[ShardWork]) -> None:
        """Commit one transaction: with the first work of `retry`, or, if that is empty, with work from the inbox.

        The transaction's work moves into `group`, which is empty before. Work is performed as it arrives, so that Kafka adds
        the transaction's partitions during the wait for more. If this raises, no delivery of `group` is settled.
        """
        owned, callbacks = self.owned, list[Callable[[], None]]()
        for work in self._again(retry, group) if retry else self._collect(group):
            if work.size:
                crash_point(CrashPoint.BEFORE_PRODUCE)
            with _turn:
                callbacks.append(self._perform(work, group))
                self._producer.serve_reports()
            if work.size:
                crash_point(CrashPoint.IN_TRANSACTION)
        self._settle()  # first: the marker of this transaction would also end a former one that Kafka forgot
        if owned.changes and time.monotonic() >= self._next_checkpoint:
            self._write_checkpoint()
        began_s = time.monotonic()
        if (written := self._producer.commit()) is not None:
            if any(work.size for work in group):  # otherwise it holds only a checkpoint, or what the audit is told
                crash_point(CrashPoint.AFTER_COMMIT_BEFORE_SETTLING)
            owned.counters.transactions += 1
            owned.counters.commit_seconds.observe(took_s := time.monotonic() - began_s)
            self._pace.committed(took_s)
            owned.changes.add_commit(written, owned.admission.committed(time.time_ns() // 1_000_000))
        self._unsettled = _Unsettled(list(group), callbacks, time.monotonic())

    def close(self) -> None:
        """Settle the last transaction, and write a checkpoint, as retention may delete records before the next take."""
        self._settle()
        if self.owned.changes:
            self._write_checkpoint()
            self._producer.commit()

    def take_unsettled(self) -> list[ShardWork]:
        """Remove and return the work that is committed, but not settled."""
        unsettled, self._unsettled = self._unsettled, None
        return unsettled.group if unsettled is not None else []

    def _again(self, retry: list[ShardWork], group: list[ShardWork]) -> Iterator[ShardWork]:
        """Yield the first work of `retry`, as much as one transaction may hold, and move it to `group`."""
        while retry and self._has_room():
            group.append(work := retry.pop(0))
            yield work

    def _has_room(self) -> bool:
        return self._producer.written_bytes < self._pace.most_bytes

    def _collect(self, group: list[ShardWork]) -> Iterator[ShardWork]:
        """Yield the work of one transaction, and add it to `group`. Answers queries until the first work arrives."""
        while self._inbox.deferred:
            self._settle()
            self._answer(self._inbox.deferred.popleft())
        events = 0
        deadline: float | None = None
        urgent = False
        most = self._settings.transaction_events
        while events < (min(URGENT_EVENTS, most) if urgent else most) and self._has_room():
            limit_s = self._checkpoint_due_s() if deadline is None else 0 if urgent else deadline - time.monotonic()
            match item := self._next_item(limit_s):
                case None | Stop():
                    return
                case MarksQuery() if deadline is None:
                    self._settle()
                    self._answer(item)
                case MarksQuery():
                    self._inbox.deferred.append(item)
                    return
                case _:
                    if deadline is None and (item.linger is Linger.NONE or item.size < PIPELINED_EVENTS):
                        self._settle()
                    events += item.size
                    urgent = urgent or item.linger is Linger.NONE
                    until = time.monotonic() + self._linger_s(item.linger, events)
                    deadline = min(deadline, until) if deadline is not None else until
                    group.append(item)
                    yield item

    def _linger_s(self, linger: Linger, events: int) -> float:
        if linger is Linger.FULL and events >= GATHERED_EVENTS:
            linger = Linger.SHORT
        return linger.value * self._settings.transaction_ms / 1000

    def _next_item(self, limit_s: float | None) -> Item | None:
        """Return the next item, or None after `limit_s` seconds, which begin when the former transaction is settled."""
        deadline = time.monotonic() + limit_s if limit_s is not None else None
        while True:
            if self._unsettled is None:
                left_s = max(0.0, deadline - time.monotonic()) if deadline is not None else None
            elif (left_s := self._producer.markers.due_s) == 0:
                self._settle_if_visible()
                continue
            item = self._inbox.get(left_s)
            if item is not None or self._unsettled is None:
                return item

    def _checkpoint_due_s(self) -> float | None:
        return max(0.01, self._next_checkpoint - time.monotonic()) if self.owned.changes else None

    def _write_checkpoint(self) -> None:
        changes = self.owned.changes
        retired, undated = self._retirement.retired(self.owned.admission.known, time.time_ns() // 1_000_000)
        changes.add_commit(frozenset(), undated)
        changes.retire(retired)
        if retired:
            _log.info("shard %d: %d streams that ended long ago are forgotten", self._number, len(retired))
        self.owned.writer.write_entries([*changes.take_entries(), entry_of(self.owned.writer.audit_end)])
        self._next_checkpoint = time.monotonic() + self._settings.checkpoint_s

    def _answer(self, query: MarksQuery) -> None:
        self._retirement.announced(query.gateway, query.streams)
        self.owned.admission.epochs[query.gateway] = query.epoch
        states = self.owned.admission.known
        found = ((stream, states.get((query.gateway, stream))) for stream in query.streams)
        query.answer(
            [Mark(stream, state.hwm, state.chain_sequence, state.chain) if state else Mark(stream) for stream, state in found]
        )

    def _perform(self, work: ShardWork, group: list[ShardWork]) -> Callable[[], None]:
        """Perform one piece of work. Whatever it raises ends this work only: it is not tried again with the others of `group`.

        Raises `Unreachable`, because the open transaction may hold a part of it.
        """
        try:
            return work.perform(self.owned)
        except Exception as error:
            if isinstance(error, FoglineError) and not isinstance(error, Poison):
                raise
            _log.exception("shard %d: an unexpected error", self._number)
            why = f"{type(error).__name__}: {error}"
            group[:] = [each for each in group if each is not work]
            if isinstance(work, RefusableWork):
                work.refuse(why)
            else:
                work.give_up()
            raise Unreachable(why) from error

    def _settle(self) -> None:
        while self._unsettled is not None and not self._settle_if_visible():
            time.sleep(self._producer.markers.due_s)

    def _settle_if_visible(self) -> bool:
        """Settle the former transaction if it is visible. Return True if nothing remains to be settled."""
        if self._unsettled is not None and self._producer.visible():
            self.owned.changes.add_visible(self._producer.markers.stable)
            former, self._unsettled = self._unsettled, None
            for settle in former.callbacks:
                _settle_one(self._number, settle)
            self.owned.counters.settlement_seconds.observe(time.monotonic() - former.committed_s)
        return self._unsettled is None


def _settle_one(number: int, settle: Callable[[], None]) -> None:
    """Settle one piece of committed work. An error of its listeners must not leave the others unsettled."""
    try:
        settle()
    except Exception:  # noqa: BLE001 - the commit stands, so nothing is to be repeated
        _log.exception("shard %d: an unexpected error after a commit", number)
