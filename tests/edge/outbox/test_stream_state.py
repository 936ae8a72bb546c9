"""State of the streams after the gateway was killed at any commit: it equals the state before, whatever had been saved."""

from collections import Counter
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from edge.outbox.stores import StreamState, copy_file, open_store, roll_back, states, take
from fogline.dead_letter import DEAD_TYPE
from fogline.events.event import Arrival, Lane, Receipt
from fogline.events.identity import Retransmission, UniqueId
from fogline.events.report_on_change import ReportPolicy
from fogline_edge.machine.boot import moment
from fogline_edge.outbox.file.data_folder import RunEnd
from fogline_edge.outbox.rows import streams as module
from fogline_edge.outbox.rows.group import Group
from fogline_edge.outbox.rows.streams import Stream
from fogline_edge.outbox.salvage.integrity import examine
from fogline_edge.outbox.writer import drop_oldest, reading, rejection, renumbering
from fogline_edge.outbox.writer.ingest import Waiting
from fogline_lab.events import make_arrival

LANES = (Lane.TELEMETRY, Lane.ALARM)
STEPS = 120
CLIENTS = 3


class Life:
    """A store at work, without a bridge or devices; all steps are random. `told`: receipts by lane."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = Random(seed)
        self.path = folder / "outbox.db"
        self.store = open_store(self.path)
        self.told: Counter[tuple[Lane, Receipt]] = Counter()
        self.sent: list[Arrival] = []
        self.n = 0

    # --- the steps

    def arrive(self) -> None:
        arrivals = [self._arrival() for _ in range(self.random.choice((1, 1, 5, 40)))]
        receipts = take(self.store, *arrivals)
        self.told.update((each.lane, receipt) for each, receipt in zip(arrivals, receipts, strict=True))

    def _arrival(self) -> Arrival:
        kind, self.n = self.random.random(), self.n + 1
        if kind < 0.15 and self.sent:
            return again(self.random.choice(self.sent))
        arrival = make_arrival(self.n, lane=self.random.choice(LANES), data=b'{"n": %d}' % self.n + b" " * 500)
        if kind < 0.2:
            return replace(arrival, type=DEAD_TYPE)
        if kind < 0.3:
            return replace(arrival, channel="state", data=b"on", report=ReportPolicy(on_change=True))
        if kind < 0.4:
            arrival = replace(arrival, evidence=UniqueId(b"%d" % self.n))
        if kind < 0.7:
            arrival = replace(arrival, retransmission=Retransmission(b"c%d" % (self.n % CLIENTS), again=False, number=self.n))
            self.sent.append(arrival)
        return arrival

    def state_counts(self) -> None:
        with self.store.transaction():
            group = Group(self.store.age.ms)
            for stream in self.store.streams.opened():
                self.store.ingest.append_statement(group, stream, moment(self.store.clock))
            self.store.ingest.write(group)
        self.store.ingest.committed()

    def read(self) -> None:
        if (stream := self._stream()) is not None:
            reading.read(self.store, stream.stream, stream.settled, self.random.randint(1, 50), None)

    def accept(self) -> None:
        if (stream := self._stream()) is not None:
            self.store.accept(stream.stream, self.random.randint(stream.settled, stream.head))

    def purge(self) -> None:
        with self.store.transaction():
            self.store.purge()

    def drop(self) -> None:
        with self.store.transaction():
            drop_oldest.drop(self.store, frozenset(LANES), self.random.choice((1, 5000)))

    def quarantine(self) -> None:
        if (stream := self._stream()) is not None and stream.backlog and stream.kept_after < stream.head:
            sequence = self.random.randint(stream.kept_after + 1, stream.head)
            rejection.quarantine(self.store, rejection.RejectedEvent(stream.stream, sequence, "amqp:decode-error", ""))

    def split(self) -> None:
        renumbering.split_backlog(self.store, frozenset(LANES), 50)

    def fail(self) -> None:
        """A group that does not fit: nothing of it happened."""
        arrivals = [self._arrival() for _ in range(5)]
        before, sent = states(self.store), list(self.sent)
        items = [Waiting(each, moment(self.store.clock), lambda _: None) for each in arrivals]
        roll_back(self.store, lambda: self.store.ingest.store(items, self.store.age.ms), self.store.purge, self.store.save)
        self.sent = [each for each in sent if each not in arrivals]
        assert all(same(after, before[name]) for name, after in states(self.store).items()), "a rollback changes the state"

    def restart(self) -> None:
        self.store.connection.close()
        self.store = open_store(self.path)

    def _stream(self) -> Stream | None:
        found = [each for each in self.store.streams.everything() if each.backlog]
        return self.random.choice(found) if found else None

    # --- what must hold after each

    def check(self, folder: Path, step: str) -> None:
        copy = copy_file(self.path, folder)
        assert examine(copy, last=RunEnd.OPEN, owner=None) is None, f"after {step} the file seems to be damaged"
        other = open_store(copy)
        try:
            for mine, its in zip(self.store.streams.everything(), other.streams.everything(), strict=True):
                assert its.settled == mine.purged, step
                other.accept(its.stream, mine.settled)
            before, after = states(self.store), states(other)
        finally:
            other.connection.close()
        assert before.keys() == after.keys()
        for name, state in before.items():
            assert same(after[name], state), f"after {step}"
        self.check_counts(before)

    def check_counts(self, found: dict[str, StreamState]) -> None:
        for lane in LANES:
            counts = [each.counts for each in found.values() if each.lane is lane]
            told = {receipt: self.told[lane, receipt] for receipt in Receipt}
            stored = told[Receipt.STORED] + told[Receipt.DEAD]
            assert sum(each.acknowledged for each in counts) == stored + told[Receipt.DUPLICATE]
            assert sum(each.duplicate for each in counts) == told[Receipt.DUPLICATE]
            assert sum(each.dead for each in counts) == told[Receipt.DEAD]
        for each in found.values():
            assert each.counts.stored == each.head
            assert each.counts.settled == each.settled


def same(after: StreamState, before: StreamState) -> bool:
    """Return True if the states are equal, but for counts of which the newest may be lost, or which are an upper limit."""
    mine, its = (replace(each.counts, sent=0, filtered=0, dropped=0) for each in (before, after))
    rest = [(each.number, each.lane, each.open, each.head, each.settled, each.dropped_upto) for each in (before, after)]
    return mine == its and rest[0] == rest[1] and after.counts.dropped >= before.counts.dropped


def again(arrival: Arrival) -> Arrival:
    return replace(arrival, retransmission=replace(arrival.retransmission, again=True))


WEIGHTS = {
    Life.arrive: 10,
    Life.state_counts: 1,
    Life.read: 3,
    Life.accept: 4,
    Life.purge: 2,
    Life.drop: 1,
    Life.quarantine: 1,
    Life.split: 1,
    Life.fail: 2,
    Life.restart: 2,
}


@pytest.mark.parametrize("saved_rows", [1, 60, 1024])
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.fault("C1", "C2", "C3")
def test_state_of_each_stream_after_a_kill_equals_the_state_before(memory, monkeypatch, seed, saved_rows):
    monkeypatch.setattr(module, "SAVED_ROWS", saved_rows)
    life = Life(memory, seed)
    for _ in range(STEPS):
        (step,) = life.random.choices(list(WEIGHTS), list(WEIGHTS.values()))
        step(life)
        life.check(memory / "copy", step.__name__)
    life.store.connection.close()
    assert life.n > 300
