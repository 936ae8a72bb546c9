"""Windows of rules: one aggregate for each, after kills, late data and clock jumps; and a plain model that says the same."""

import math
from collections import defaultdict
from itertools import pairwise

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from edge.outbox.stores import close_windows, copy_file, open_store, roll_back, stored_events, take
from fogline.events.event import Lane, Receipt, TimeQuality, rfc3339
from fogline.events.identity import Dedup
from fogline_edge.machine.boot import moment
from fogline_edge.outbox.reduction import window_table as module
from fogline_edge.outbox.rows.group import Group
from fogline_edge.outbox.writer.ingest import Waiting
from fogline_edge.outbox.writer.store import OutboxStore, windows_due_ms
from fogline_edge.rule_settings import ReduceTable, RuleSettings
from fogline_edge.rules.windows import AGGREGATE_CONTENT_TYPE
from fogline_lab.clock import RIGHT_NS, SECOND_NS, FakeClock
from fogline_lab.events import make_arrival

LENGTH_S = 60
AGGREGATES = ("count", "mean", "min", "max", "last", "p50")
BEGIN_NS = RIGHT_NS // (LENGTH_S * SECOND_NS) * LENGTH_S * SECOND_NS
"""The begin of a window."""


def rules(**other) -> RuleSettings:
    table = {"name": "means", "window_s": LENGTH_S, "fields": ("/t",), "aggregates": AGGREGATES, **other}
    return RuleSettings(reduce=[ReduceTable(**table)])


class Aggregate(msgspec.Struct):
    rule: str
    start: str | None
    end: str | None
    seconds: int
    revision: int
    count: int
    values: dict[str, dict[str, float]]


def aggregates(store: OutboxStore, device: str = "lamp-1") -> list[Aggregate]:
    found = [each for each in stored_events(store) if each.content_type == AGGREGATE_CONTENT_TYPE]
    assert len({each.id for each in found}) == len(found)
    return [msgspec.json.decode(each.data, type=Aggregate) for each in found if each.device == device]


def says(value: float, **other):
    return make_arrival(data=b'{"t": %r}' % value if isinstance(value, int) else f'{{"t": {value!r}}}'.encode(), **other)


@pytest.fixture
def clock():
    return FakeClock(BEGIN_NS)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "outbox.db"


@pytest.fixture
def store(path, clock):
    return opened(path, clock)


def go_on(store: OutboxStore, seconds: int) -> None:
    store.clock.go_on(seconds)
    close_windows(store)


def opened(path, clock: FakeClock, of: RuleSettings | None = None) -> OutboxStore:
    """A store that notes its age, as each start does."""
    store = open_store(path, clock=clock, rules=of or rules())
    store.age.save()
    return store


def reopened(store: OutboxStore, path, of: RuleSettings | None = None) -> OutboxStore:
    store.connection.close()
    return opened(path, store.clock, of)


def test_window_becomes_one_event_of_the_device(store):
    for value in (20, 22.5, 21):
        assert take(store, says(value, channel="hall/lamp-1")) == [Receipt.FILTERED]
        store.clock.go_on(10)
    assert stored_events(store) == []
    go_on(store, 40)
    (event,) = stored_events(store)
    assert (event.device, event.subject, event.type, event.lane) == ("lamp-1", "hall/lamp-1", "telemetry", Lane.TELEMETRY)
    assert (event.dedup, event.time, event.adapter) == (Dedup.STRONG, rfc3339(BEGIN_NS + 60 * SECOND_NS), "fogline")
    (found,) = aggregates(store)
    p50 = found.values["t"].pop("p50")
    assert found == Aggregate(
        rule="means",
        start=rfc3339(BEGIN_NS),
        end=rfc3339(BEGIN_NS + 60 * SECOND_NS),
        seconds=60,
        revision=0,
        count=3,
        values={"t": {"count": 3, "mean": pytest.approx(63.5 / 3), "min": 20, "max": 22.5, "last": 21}},
    )
    assert p50 == pytest.approx(21, rel=0.011)
    counts = store.streams.of_lane(Lane.TELEMETRY).counts
    assert (counts.acknowledged, counts.stored, counts.rules) == (3, 1, {"means": {"merged": 3, "aggregate": 1}})


def test_open_window_survives_a_kill_after_any_commit(store, path, tmp_path):
    for number in range(5):
        take(store, says(number))
        copy = open_store(copy_file(path, tmp_path / "killed"), clock=FakeClock(BEGIN_NS + 80 * SECOND_NS), rules=rules())
        copy.clock.go_on(10_000)
        close_windows(copy)
        assert [each.count for each in aggregates(copy)] == [number + 1]
        copy.connection.close()


def test_window_without_room_stays_open(store):
    take(store, says(1))
    store.clock.go_on(80)
    roll_back(store, lambda: store.ingest.close_windows(Group(store.age.ms)))
    assert aggregates(store) == []
    close_windows(store)
    assert [each.count for each in aggregates(store)] == [1]


def test_late_event_revises_its_window(store):
    take(store, says(10, time_ns=BEGIN_NS))
    go_on(store, 70)
    take(store, says(20, time_ns=BEGIN_NS + 5 * SECOND_NS), says(30, time_ns=BEGIN_NS + 6 * SECOND_NS))
    go_on(store, 20)
    first, second = aggregates(store)
    assert (first.revision, first.count, first.values["t"]["last"]) == (0, 1, 10)
    assert (second.revision, second.count, second.values["t"]["mean"], second.values["t"]["last"]) == (1, 3, 20, 30)
    assert second.start == first.start


def test_event_outside_all_windows_is_stored_as_it_came(store):
    store.clock.go_on(1000)
    late, early = (says(1, time_ns=store.clock.wall_ns + each * SECOND_NS) for each in (-200, 200))
    assert take(store, late, early) == [Receipt.STORED, Receipt.STORED]
    assert store.streams.of_lane(Lane.TELEMETRY).counts.rules == {"means": {"late": 2}}


@pytest.mark.parametrize("jump_s", [-30, -3600, 30, 3600, -10 * 365 * 86_400])
def test_jump_of_the_wall_clock_neither_closes_nor_keeps_a_window(store, jump_s):
    take(store, says(1))
    store.clock.go_on(20)
    store.clock.wall_ns += jump_s * SECOND_NS
    close_windows(store)
    assert aggregates(store) == []
    go_on(store, 90)
    assert [each.count for each in aggregates(store)] == [1]


def test_window_of_a_clock_that_is_set_meanwhile_gets_its_name(path):
    store = opened(path, FakeClock(0, synchronized=False))
    take(store, says(1))
    store.clock.go_on(30)
    store.clock.wall_ns, store.clock.synchronized = BEGIN_NS, True
    take(store, says(2))
    go_on(store, 90)
    assert [(each.start, each.count) for each in aggregates(store)] == [
        (rfc3339(BEGIN_NS - 30 * SECOND_NS), 1),
        (rfc3339(BEGIN_NS), 1),
    ]


def test_window_of_a_clock_that_was_never_right_has_no_name(path):
    store = opened(path, FakeClock(0, synchronized=False))
    take(store, says(1))
    store.clock.reboot(BEGIN_NS)
    store = reopened(store, path)
    go_on(store, 1)
    (event,) = stored_events(store)
    assert (event.time, event.timequality) == (None, TimeQuality.UNSYNCED)
    assert [(each.start, each.end, each.count) for each in aggregates(store)] == [(None, None, 1)]


def test_short_power_cut_does_not_split_a_window(store, path):
    """The gateway's age grows by more than the time for which the machine was off."""
    take(store, says(1))
    store.clock.go_on(10)
    store.clock.reboot(store.clock.wall_ns + 20 * SECOND_NS)
    store = reopened(store, path)
    close_windows(store)
    take(store, says(2))
    go_on(store, 40)
    assert [each.count for each in aggregates(store)] == [2]


def test_window_closes_after_its_rule_was_changed_or_deleted(store, path):
    take(store, says(1))
    store = reopened(store, path, rules(window_s=120))
    take(store, says(2))
    store = reopened(store, path, RuleSettings())
    go_on(store, 200)
    assert sorted((each.seconds, each.count) for each in aggregates(store)) == [(60, 1), (120, 1)]
    go_on(store, 400)
    assert windows_due_ms(store) == math.inf


def test_events_for_which_no_window_can_be_opened_are_stored(store, monkeypatch):
    monkeypatch.setattr(store.ingest.reducer.windows, "_most", 10)
    receipts = take(store, *(says(1, device=f"d-{number}") for number in range(15)))
    assert receipts == [Receipt.FILTERED] * 10 + [Receipt.STORED] * 5
    assert store.streams.of_lane(Lane.TELEMETRY).counts.rules == {"means": {"merged": 10, "crowded": 5}}
    go_on(store, 80)
    go_on(store, 80)
    assert take(store, says(1, device="d-12")) == [Receipt.FILTERED]


def test_many_windows_close_in_some_transactions(store, monkeypatch):
    monkeypatch.setattr(module, "CLOSED_AT_ONCE", 10)
    monkeypatch.setattr(module, "CACHED", 5)
    for number in range(35):
        take(store, says(number, device=f"d-{number}"), says(number + 1, device=f"d-{number}"))
    store.clock.go_on(80)
    assert close_windows(store) == 4
    for number in range(35):
        assert [each.values["t"]["mean"] for each in aggregates(store, f"d-{number}")] == [number + 0.5]


def test_copies_of_a_gateway_give_different_contents_different_ids(store, path, tmp_path):
    take(store, says(1))
    copy = open_store(copy_file(path, tmp_path / "copy"), clock=FakeClock(BEGIN_NS), rules=rules())
    take(store, says(2))
    for each in (store, copy):
        go_on(each, 80)
    (one,), (other,) = (stored_events(each) for each in (store, copy))
    assert one.id != other.id


# --- the model

DEVICES = ("a", "b")
EVENTS = st.tuples(
    st.just("event"),
    st.sampled_from(DEVICES),
    st.integers(-80, 80).map(lambda eighths: eighths / 8),
    st.none() | st.integers(-200, 100),
)
STEPS = st.lists(
    EVENTS
    | EVENTS
    | st.tuples(st.just("pass"), st.sampled_from((1, 7, 25, 61, 200)))
    | st.tuples(st.just("close"))
    | st.tuples(st.just("kill"))
    | st.tuples(st.just("no room"))
    | st.tuples(st.just("jump"), st.sampled_from((-3600, -45, 45, 3600)), st.booleans())
    | st.tuples(st.just("reboot"), st.integers(0, 900), st.booleans()),
    max_size=60,
)


class Model:
    """What the windows have to say, from all events that were merged: by device and start, None for those without a time."""

    def __init__(self, store: OutboxStore, path):
        self.store, self.path = store, path
        self.values: dict[tuple[str, str | None], list[float]] = defaultdict(list)

    def event(self, device, value, time_s):
        clock = self.store.clock
        time_ns = None if time_s is None else clock.wall_ns + time_s * SECOND_NS
        arrival = says(value, device=device, time_ns=time_ns)
        (receipt,) = take(self.store, arrival)
        start_s = (time_ns or clock.wall_ns) // SECOND_NS // LENGTH_S * LENGTH_S
        if receipt is Receipt.STORED:
            assert time_s is not None
            assert clock.synchronized
            now_s = clock.wall_ns / SECOND_NS
            assert start_s + 2 * LENGTH_S <= now_s or start_s > now_s + LENGTH_S
            return
        known = clock.synchronized or time_ns is not None
        self.values[device, rfc3339(start_s * SECOND_NS) if known else None].append(value)

    def no_room(self):
        waiting = Waiting(says(99, device="a"), moment(self.store.clock), lambda _: None)
        roll_back(self.store, lambda: self.store.ingest.store([waiting], self.store.age.ms))

    def do(self, step):
        clock = self.store.clock
        match step:
            case ("event", device, value, time_s):
                self.event(device, value, time_s)
            case ("pass", seconds):
                clock.go_on(seconds)
            case ("close",):
                close_windows(self.store)
            case ("kill",):
                self.store = reopened(self.store, self.path)
            case ("no room",):
                self.no_room()
            case ("jump", seconds, right):
                clock.wall_ns += seconds * SECOND_NS
                clock.synchronized = right
            case ("reboot", seconds, right):
                clock.reboot(clock.wall_ns + seconds * SECOND_NS)
                clock.synchronized = right
                self.store = reopened(self.store, self.path)

    def end(self):
        """Close all, and compare."""
        for _ in range(3):
            go_on(self.store, 4000)
        assert windows_due_ms(self.store) == math.inf
        for device in DEVICES:
            said = defaultdict(list)
            for each in aggregates(self.store, device):
                named = each.start is not None and each.start.endswith("00.000000Z")
                said[each.start if named else None].append(each)
            assert {start for of, start in self.values if of == device} == said.keys()
            for start, found in said.items():
                self.compare(self.values[device, start], found if start is None else last_revisions(found))
        for stream in self.store.streams.everything():
            assert stream.counts.landing == stream.counts.stored == stream.head

    @staticmethod
    def compare(values, found):
        assert sum(each.count for each in found) == len(values)
        said = [each.values["t"] for each in found]
        assert sum(each["mean"] * each["count"] for each in said) == pytest.approx(sum(values), abs=1e-6)
        assert min(each["min"] for each in said) == min(values)
        assert max(each["max"] for each in said) == max(values)
        assert {each["last"] for each in said} <= set(values)
        for each in said:
            assert each["min"] <= each["p50"] <= each["max"]


def last_revisions(found):
    """The last revision of each window of one name: a clock that was wrong gives a name twice."""
    for before, after in pairwise(found):
        assert after.revision in (0, before.revision + 1)
    return [each for each, after in pairwise([*found, None]) if after is None or not after.revision]


@pytest.mark.fault("D14", "D15")
@given(steps=STEPS)
def test_windows_say_what_a_plain_model_says(tmp_path_factory, steps):
    folder = tmp_path_factory.mktemp("model")
    clock = FakeClock(BEGIN_NS + 123_000_000)
    path = folder / "outbox.db"
    model = Model(opened(path, clock), path)
    for step in steps:
        model.do(step)
    model.end()
    model.store.connection.close()
