"""One shard: one thread, one transactional producer, and everything that lands in its partitions.

The thread owns the shard (fence, read back), then takes deliveries in groups, one Kafka transaction a group. Order:
commit, then answer. After any error but a clean commit it believes nothing: the producer is destroyed, ownership taken
afresh, and only then are the deliveries of the failed transaction judged again and answered.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fogline.amqp.outcome import ACCEPTED, DECODE_ERROR, MODIFIED, RELEASED, UNKNOWN_STREAM, Outcome, rejected
from fogline.codec import Range, decode_batch
from fogline.errors import FoglineError, Misconfigured, Poison
from fogline.event import Event
from fogline.hello import Mark
from fogline.message import Message
from fogline_cloud.bridge.admission import Admission, Covered, Duplicate, Foreign, Hole, Known, Produce, StreamKey
from fogline_cloud.bridge.checkpoint import Owner
from fogline_cloud.bridge.transaction import TransactionLog
from fogline_cloud.settings import BridgeSettings

RETAKE_S = 2.0
"""How long to wait before a shard is taken again after that failed."""

_log = logging.getLogger("fogline.shard")


@dataclass(slots=True)
class Submission:
    """A batch from a gateway. `answer` is called once, on the shard's thread."""

    span: Range
    message: Message
    answer: Callable[[Outcome], None]
    events: list[Event] = field(default_factory=list)


@dataclass(slots=True)
class Question:
    """Hello: the marks of some streams of a gateway, between transactions. `answer(None)`: not ours at present."""

    gateway: str
    streams: Sequence[str]
    answer: Callable[[list[Mark] | None], None]


@dataclass(slots=True)
class ShardCounters:
    """Since this process took the shard."""

    landed: int = 0
    duplicate: int = 0
    transactions: int = 0
    retaken: int = 0


@dataclass(slots=True)
class _Stop:
    pass


Work = Submission | Question | _Stop


class Shard:
    """Owned from `start` until `stop`. `submit` and `ask` may be called from any thread.

    `changed` is called on the shard's thread whenever `ready` changes.
    """

    def __init__(
        self, number: int, make_log: Callable[[], TransactionLog], settings: BridgeSettings, changed: Callable[["Shard"], None]
    ) -> None:
        self.number = number
        self.ready = False
        self.why_not = "it is being taken"
        self.counters = ShardCounters()
        self._make_log = make_log
        self._settings = settings
        self._changed = changed
        self._queue: queue.SimpleQueue[Work] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._log: TransactionLog | None = None
        self._admission = Admission({})
        self._dirty: dict[StreamKey, Known] = {}
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

    def submit(self, work: Submission) -> None:
        """Queue a batch."""
        self._queue.put(work)

    def ask(self, question: Question) -> None:
        """Queue a hello."""
        self._queue.put(question)

    # --- on the thread

    def _run(self) -> None:
        pending: list[Submission] = []
        while not self._stopping.is_set():
            try:
                if self._log is None:
                    self._take()
                pending = self._serve(pending)
            except FoglineError as error:
                self._lose(str(error), retry=not isinstance(error, Misconfigured))
        for each in pending:
            each.answer(RELEASED)
        self._drop()
        self._set_ready(ready=False, why="this bridge gave it up")

    def _take(self) -> None:
        """Fence the former owner, read what is committed."""
        began = time.monotonic()
        log = self._make_log()
        recovered = log.take(Owner(self._settings.name, self._settings.advertised or self._settings.listen))
        self._log = log
        self._admission = Admission(recovered.known)
        self._dirty.clear()
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

    def _drop(self) -> None:
        if self._log is not None:
            self._log.destroy()
            self._log = None

    def _set_ready(self, *, ready: bool, why: str) -> None:
        if ready != self.ready or why != self.why_not:
            self.ready, self.why_not = ready, why
            self._changed(self)

    def _serve(self, again: list[Submission]) -> list[Submission]:
        """One transaction: what a failed one left (`again`), or what waits. Returns what must be judged again.

        The list returned is never lost: it is what `_serve` gets after the shard was taken again.
        """
        group = again or self._collect()
        if self._stopping.is_set():
            return group
        try:
            self._transact(group)
        except FoglineError as error:
            self._lose(str(error), retry=not isinstance(error, Misconfigured))
            return group
        return []

    def _collect(self) -> list[Submission]:
        """Wait for work; answer questions at once; gather batches for one transaction."""
        group: list[Submission] = []
        events = 0
        deadline = 0.0
        while events < self._settings.transaction_events:
            work = self._get(deadline - time.monotonic() if group else self._idle_s())
            match work:
                case Submission():
                    if not group:
                        deadline = time.monotonic() + self._settings.transaction_ms / 1000
                    group.append(work)
                    events += work.span.last - work.span.first + 1
                case Question():
                    if group:
                        self._queue.put(work)  # it is about what is committed: after this transaction
                        return group
                    self._answer(work)
                case _:
                    return group
        return group

    def _get(self, limit_s: float | None) -> Work | None:
        try:
            if limit_s is None:
                return self._queue.get()
            return self._queue.get(timeout=limit_s) if limit_s > 0 else self._queue.get_nowait()
        except queue.Empty:
            return None

    def _idle_s(self) -> float | None:
        """How long to wait for work: for ever, unless a checkpoint is due."""
        if not self._dirty:
            return None
        return max(0.01, self._next_checkpoint - time.monotonic())

    def _answer(self, question: Question) -> None:
        known = (self._admission.known.get((question.gateway, stream)) for stream in question.streams)
        marks = [
            Mark(stream, each.hwm, each.chain_sequence, each.chain) if each else Mark(stream)
            for stream, each in zip(question.streams, known, strict=True)
        ]
        question.answer(marks)

    def _transact(self, group: list[Submission]) -> None:
        """Admit, produce, commit, answer. Raises if anything but a clean commit happened: then nothing was answered."""
        log = self._log
        assert log is not None
        answers = [(each, self._admit(log, each)) for each in group]
        if self._checkpoint_is_due():
            log.write_checkpoint(list(self._dirty.values()))
            self._dirty.clear()
            self._next_checkpoint = time.monotonic() + self._settings.checkpoint_s
        if log.commit():
            self.counters.transactions += 1
            for known in self._admission.committed():
                self._dirty[known.gateway, known.stream] = known
        for each, outcome in answers:
            each.answer(outcome)

    def _checkpoint_is_due(self) -> bool:
        return bool(self._dirty) and time.monotonic() >= self._next_checkpoint

    def _admit(self, log: TransactionLog, each: Submission) -> Outcome:
        span = each.span
        match self._admission.admit(span):
            case Produce(skip):
                return self._produce(log, each, skip)
            case Duplicate() | Covered():
                self._count_duplicates(span, span.last - span.first + 1)
                return ACCEPTED
            case Hole(expected):
                _log.info("stream %s: %d..%d came, %d is next", span.stream, span.first, span.last, expected)
                return MODIFIED
            case Foreign(why):
                return rejected(UNKNOWN_STREAM, why)

    def _produce(self, log: TransactionLog, each: Submission, skip: int) -> Outcome:
        span = each.span
        try:
            events = each.events or decode_batch(span, each.message)
        except Poison as error:
            return rejected(DECODE_ERROR, str(error))
        each.events = events
        refused = log.produce(events[skip:], span)
        self._admission.wrote(span, refused)
        self.counters.landed += len(events) - skip
        if skip:
            self._count_duplicates(span, skip)
        return ACCEPTED

    def _count_duplicates(self, span: Range, events: int) -> None:
        self.counters.duplicate += events
        self._admission.count_duplicates(span, events)
        if (known := self._admission.known.get((span.gateway, span.stream))) is not None:
            self._dirty[span.gateway, span.stream] = known
