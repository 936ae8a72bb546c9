"""One shard: one thread, one transactional producer, and everything that lands in its partitions.

The thread owns the shard (fence, read back), then takes deliveries in groups, one Kafka transaction a group. Order:
write each as it comes, commit, look until readers of committed records see it, then answer; meanwhile the next transaction
begins. After any error but a clean commit it believes nothing: the producer is
destroyed, ownership taken afresh, and only then are the deliveries of the failed transaction judged again and answered.
"""

import contextlib
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from fogline.crash import CrashPoint, crash_point
from fogline.errors import FoglineError, Misconfigured, Unreachable
from fogline.hello import Mark
from fogline_cloud.bridge.admission import Admission
from fogline_cloud.bridge.checkpoint import Owner
from fogline_cloud.bridge.holding import Holding, ShardCounters, Work
from fogline_cloud.bridge.transaction import TransactionLog
from fogline_cloud.commands.record import Record
from fogline_cloud.commands.registry import Registry
from fogline_cloud.commands.routes import Routes
from fogline_cloud.settings import BridgeSettings

RETAKE_S = 2.0
"""How long to wait before a shard is taken again after that failed."""
URGENT_EVENTS = 1000
"""A transaction with something urgent in it takes no more than what fills it to here."""

_log = logging.getLogger("fogline.shard")


_turn = threading.Lock()
"""One shard of a process at a time computes: it needs the interpreter for every event and for Kafka's answer to it, and a
contest of all threads for each of them costs more than the work. Never held while something is waited for."""


@dataclass(slots=True)
class Question:
    """Hello: the marks of some streams of a gateway, between transactions. `answer(None)`: not ours at present."""

    gateway: str
    streams: Sequence[str]
    answer: Callable[[list[Mark] | None], None]


@dataclass(slots=True)
class _Stop:
    pass


@dataclass(slots=True)
class _Settling:
    """What is committed, and answered as soon as it can be read."""

    group: list[Work]
    answers: list[Callable[[], None]]
    log: TransactionLog


Item = Work | Question | _Stop


class Shard:
    """Owned from `start` until `stop`. `submit` and `ask` may be called from any thread.

    `changed` is called on the shard's thread whenever `ready` changes; `tell` with the records of commands, as soon as
    they are known here and again after their commit. `routes` are shared by all shards of a bridge. `issued` tells
    whether a command's identifier was made by a bridge of this tenant.
    """

    def __init__(
        self,
        number: int,
        make_log: Callable[[], TransactionLog],
        settings: BridgeSettings,
        changed: Callable[["Shard"], None],
        *,
        routes: Routes | None = None,
        tell: Callable[[Sequence[Record]], None] = lambda _: None,
        issued: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self.number = number
        self.ready = False
        self.why_not = "it is being taken"
        self.counters = ShardCounters()
        self._make_log = make_log
        self._settings = settings
        self._changed = changed
        self._routes = routes or Routes()
        self._tell = tell
        self._issued = issued
        self._queue: queue.SimpleQueue[Item] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._holding: Holding | None = None
        self._settling: _Settling | None = None
        self._asked: deque[Question] = deque()
        self._next_checkpoint = 0.0
        self._thread = threading.Thread(target=self._run, name=f"shard-{number}", daemon=True)

    def start(self) -> None:
        """Begin to take the shard."""
        self._thread.start()

    def stop(self) -> None:
        """Give the shard up. What is in the open transaction is not answered; the next owner knows what landed."""
        self._stopping.set()
        self._queue.put(_Stop())

    def join(self, limit_s: float) -> None:
        """Wait until the thread has ended, at most `limit_s`."""
        self._thread.join(limit_s)

    def submit(self, work: Work) -> None:
        """Queue something for the next transaction."""
        self._queue.put(work)

    def ask(self, question: Question) -> None:
        """Queue a hello."""
        self._queue.put(question)

    # --- on the thread

    def _run(self) -> None:
        pending: list[Work] = []
        while not self._stopping.is_set():
            try:
                if self._holding is None:
                    self._take()
                pending = self._serve(pending)
            except FoglineError as error:
                self._lose(str(error), retry=not isinstance(error, Misconfigured))
            except Exception as error:  # noqa: BLE001 - see `_serve`
                self._lose_to(error)
        with contextlib.suppress(FoglineError):
            self._settle()
            self._write_last_checkpoint()
        for each in (*self._unsettled(), *pending, *self._rest()):
            each.give_up()
        self._drop()
        self._set_ready(ready=False, why="this bridge gave it up")

    def _write_last_checkpoint(self) -> None:
        """Leave nothing that only the records say: they may be deleted by retention before the next owner comes."""
        if self._holding is not None and self._holding.unwritten:
            self._write_checkpoint(self._holding)
            self._holding.log.commit()

    def _write_checkpoint(self, holding: Holding) -> None:
        holding.log.write_checkpoint(list(holding.dirty.values()))
        holding.dirty.clear()
        self._next_checkpoint = time.monotonic() + self._settings.checkpoint_s

    def _unsettled(self) -> list[Work]:
        """What was committed, but not answered."""
        settling, self._settling = self._settling, None
        return settling.group if settling is not None else []

    def _rest(self) -> list[Work]:
        """What is still queued when the thread ends."""
        rest = []
        while (item := self._get(0)) is not None:
            if not isinstance(item, Question | _Stop):
                rest.append(item)
        return rest

    def _take(self) -> None:
        """Fence the former owner, read what is committed."""
        began = time.monotonic()
        log = self._make_log()
        recovered = log.take(Owner(self._settings.name, self._settings.advertised or self._settings.listen))
        registry = Registry()
        for record in recovered.commands:
            registry.put(record)
        for device, route in recovered.checkpoint.routes.items():
            self._routes.recall(device, route.gateway, route.since_ms)
        admission = Admission(recovered.known)
        self._holding = Holding(
            log, admission, registry, self._routes, self.counters, self._tell, self._issued, recovered.unwritten
        )
        self._tell(registry.everything())
        crash_point(CrashPoint.AFTER_TAKE_BEFORE_READY)
        _log.info("shard %d is ours: %d streams, %.1f s", self.number, len(recovered.known), time.monotonic() - began)
        self._set_ready(ready=True, why="")

    def _lose(self, why: str, *, retry: bool) -> None:
        """Believe nothing of the producer any more."""
        self.counters.retaken += 1
        self._drop()
        self._set_ready(ready=False, why=why)
        _log.warning("shard %d has to be taken again: %s", self.number, why)
        if not retry:
            _log.error("shard %d stays closed until this is mended: %s", self.number, why)
        self._stopping.wait(RETAKE_S if retry else RETAKE_S * 15)

    def _lose_to(self, error: Exception) -> None:
        _log.error("shard %d: an error that is not ours", self.number, exc_info=error)
        self._lose(f"{type(error).__name__}: {error}", retry=True)

    def _drop(self) -> None:
        if self._holding is not None:
            self._holding.log.destroy()
            self._holding = None

    def _set_ready(self, *, ready: bool, why: str) -> None:
        if ready != self.ready or why != self.why_not:
            self.ready, self.why_not = ready, why
            self._changed(self)

    def _serve(self, again: list[Work]) -> list[Work]:
        """One transaction: what a failed one left (`again`), or what comes. Returns what must be judged again.

        The list returned is never lost: it is what `_serve` gets after the shard was taken again.
        """
        group = list(again)
        try:
            self._transact(group)
        except FoglineError as error:
            self._lose(str(error), retry=not isinstance(error, Misconfigured))
            return [*self._unsettled(), *group]
        except Exception as error:  # noqa: BLE001 - what nobody thought of must not leave a shard without its thread
            for each in (*self._unsettled(), *group):
                each.give_up()
            self._lose_to(error)
        return []

    def _coming(self, group: list[Work]) -> Iterator[Work]:
        """What one transaction takes, into `group` as it comes; waits for the first, answers questions until then."""
        while self._asked:
            self._settle()
            self._answer(self._asked.popleft())
        events = 0
        deadline: float | None = None
        urgent = False
        most = self._settings.transaction_events
        while events < (min(URGENT_EVENTS, most) if urgent else most):
            limit_s = self._idle_s() if deadline is None else 0 if urgent else deadline - time.monotonic()
            match item := self._get(limit_s):
                case None | _Stop():
                    return
                case Question() if deadline is None:
                    self._settle()
                    self._answer(item)
                case Question():
                    self._asked.append(item)  # it is about what is committed: after this transaction
                    return
                case _:
                    if deadline is None:
                        deadline = time.monotonic() + self._settings.transaction_ms / 1000
                        if item.urgent:  # Kafka puts off by 20 ms what follows while it has not finished the former one
                            self._settle()
                    events += item.size
                    urgent = urgent or item.urgent
                    group.append(item)
                    yield item

    def _get(self, limit_s: float | None) -> Item | None:
        """The next item, in `limit_s`; meanwhile what is committed is answered as soon as it can be read.

        Before that nothing more can be committed, so there is no hurry: it waits for items until then.
        """
        deadline = time.monotonic() + limit_s if limit_s is not None else None
        while True:
            settling = self._settling
            if settling is not None and settling.log.markers.due_s == 0:
                self._settle_if_seen()
                continue
            left_s = max(0.0, deadline - time.monotonic()) if deadline is not None else None
            if settling is not None:
                left_s = settling.log.markers.due_s
            try:
                return self._queue.get(block=left_s != 0, timeout=left_s)
            except queue.Empty:
                if settling is None:
                    return None

    def _idle_s(self) -> float | None:
        """How long to wait for work: for ever, unless a checkpoint is due."""
        if self._holding is None or not self._holding.unwritten:
            return None
        return max(0.01, self._next_checkpoint - time.monotonic())

    def _answer(self, question: Question) -> None:
        assert self._holding is not None
        found = self._holding.admission.known
        known = (found.get((question.gateway, stream)) for stream in question.streams)
        marks = [
            Mark(stream, each.hwm, each.chain_sequence, each.chain) if each else Mark(stream)
            for stream, each in zip(question.streams, known, strict=True)
        ]
        question.answer(marks)

    def _transact(self, group: list[Work]) -> None:
        """Perform what comes, if `group` is empty, else that; commit, answer. Afterwards `group` holds all of it.

        Each is performed as it comes, so that Kafka learns of the transaction's partitions while more is waited for. Raises
        if anything but a clean commit happened: then nothing was answered.
        """
        holding = self._holding
        assert holding is not None
        answers: list[Callable[[], None]] = []
        for each in list(group) or self._coming(group):
            crash_point(CrashPoint.BEFORE_PRODUCE)
            with _turn:
                answers.append(self._perform(each, group, holding))
                holding.log.take_answers()
            crash_point(CrashPoint.IN_TRANSACTION)
        self._settle()
        if holding.unwritten and time.monotonic() >= self._next_checkpoint:
            self._write_checkpoint(holding)
        if holding.log.commit():
            if answers:  # else a checkpoint was due and nothing came
                crash_point(CrashPoint.AFTER_COMMIT_BEFORE_SETTLING)
            self.counters.transactions += 1
            for known in holding.admission.committed():
                holding.dirty[known.gateway, known.stream] = known
        self._settling = _Settling(list(group), answers, holding.log)

    def _perform(self, work: Work, group: list[Work], holding: Holding) -> Callable[[], None]:
        """Perform one piece of work. If it meets an error that nobody expected, it alone is given up.

        The transaction may hold half of it then, so that the shard has to be taken again. Raises `Unreachable`.
        """
        try:
            return work.perform(holding)
        except FoglineError:
            raise
        except Exception as error:
            _log.exception("shard %d: an unexpected error", self.number)
            group[:] = [each for each in group if each is not work]
            work.give_up()
            raise Unreachable(f"{type(error).__name__}: {error}") from error

    def _settle_if_seen(self) -> bool:
        """Answer what is committed if it can be read; whether nothing is left to be answered. Raises `Unreachable`."""
        settling = self._settling
        if settling is not None and settling.log.readable():
            self._settling = None
            for answer in settling.answers:
                answer()
        return self._settling is None

    def _settle(self) -> None:
        """Answer what is committed, as soon as it can be read. Raises `Unreachable`."""
        while self._settling is not None and not self._settle_if_seen():
            time.sleep(self._settling.log.markers.due_s)
