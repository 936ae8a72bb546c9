"""Events that a rule keeps back: acknowledged, counted in the same transaction, and known when they are sent again."""

import pytest

from edge.outbox.stores import copy_file, open_store, roll_back, rows, take
from fogline.events.codec import decode_event
from fogline.events.event import Lane, Receipt
from fogline.events.identity import AckDelivery, Counter, DeviceTime, Retransmission, SessionCounter, UniqueId
from fogline.events.report_on_change import ReportPolicy
from fogline_edge.machine.boot import moment
from fogline_edge.outbox.rows.streams import Stream
from fogline_edge.outbox.writer.ingest import Waiting
from fogline_edge.outbox.writer.store import OutboxStore
from fogline_edge.rule_settings import ReduceTable, RuleSettings
from fogline_lab.events import make_arrival

ON_CHANGE = RuleSettings(reduce=[ReduceTable(name="same", on_change=True)])
STORED, FILTERED, DUPLICATE = Receipt.STORED, Receipt.FILTERED, Receipt.DUPLICATE


@pytest.fixture
def path(tmp_path):
    return tmp_path / "outbox.db"


def stream_of(store: OutboxStore) -> Stream:
    return store.streams.of_lane(Lane.TELEMETRY)


def bodies(store: OutboxStore) -> list[bytes]:
    return [decode_event(each.body).data for each in rows(store, stream_of(store))]


def reopened(store: OutboxStore, path, rules=ON_CHANGE) -> OutboxStore:
    """The store after a kill."""
    store.connection.close()
    return open_store(path, rules=rules)


def assert_balances(store: OutboxStore) -> None:
    counts = stream_of(store).counts
    assert counts.landing == len(rows(store, stream_of(store))) == counts.stored


def test_event_that_says_nothing_new_is_acknowledged_counted_and_not_stored(path):
    store = open_store(path, rules=ON_CHANGE)
    assert take(store, make_arrival(1), make_arrival(1), make_arrival(2)) == [STORED, FILTERED, STORED]
    assert take(store, make_arrival(2)) == [FILTERED]
    assert bodies(store) == [b'{"n": 1}', b'{"n": 2}']
    counts = stream_of(store).counts
    assert (counts.acknowledged, counts.stored, counts.rules) == (4, 2, {"same": {"reduced": 2}})
    assert_balances(store)


def test_counts_by_rule_survive_a_kill_after_any_commit(path, tmp_path):
    store = open_store(path, rules=ON_CHANGE)
    for number in range(12):
        take(store, make_arrival(number // 4))
        copy = open_store(copy_file(path, tmp_path / "killed"), rules=ON_CHANGE)
        assert stream_of(copy).counts == stream_of(store).counts
        assert_balances(copy)
        copy.connection.close()


def test_counts_by_rule_of_a_transaction_without_room_are_undone(path):
    store = open_store(path, rules=ON_CHANGE)
    take(store, make_arrival(1))
    waiting = Waiting(make_arrival(1), moment(store.clock), lambda _: None)
    roll_back(store, lambda: store.ingest.store([waiting], store.age.ms))
    assert stream_of(store).counts.rules == {}
    assert take(store, make_arrival(1)) == [FILTERED]
    assert stream_of(store).counts.rules == {"same": {"reduced": 1}}


@pytest.mark.parametrize("restarts", [False, True], ids=["same run", "killed and started again"])
@pytest.mark.parametrize(
    "identity",
    [
        {"evidence": UniqueId(b"7")},
        {"evidence": SessionCounter(b"boot", 7)},
        {"evidence": Counter(7, 16)},
        {"retransmission": Retransmission(b"client", again=False, number=7)},
    ],
    ids=["id", "session", "counter", "packet id"],
)
@pytest.mark.fault("D14")
def test_resend_of_a_reduced_event_is_a_duplicate(path, identity, restarts):
    store = open_store(path, rules=ON_CHANGE)
    reduced, again = make_arrival(**identity), make_arrival(**identity)
    if "retransmission" in identity:
        again = make_arrival(retransmission=Retransmission(b"client", again=True, number=7))
    assert take(store, make_arrival()) == [STORED]
    assert take(store, reduced) == [FILTERED]
    if restarts:
        store = reopened(store, path)
    assert take(store, again) == [DUPLICATE]
    counts = stream_of(store).counts
    assert (counts.acknowledged, counts.duplicate, counts.rules) == (3, 1, {"same": {"reduced": 1}})
    assert_balances(store)


def test_event_that_may_repeat_a_reduced_one_is_stored_with_the_mark_that_says_so(path):
    store = open_store(path, rules=ON_CHANGE)
    take(store, make_arrival())
    take(store, make_arrival(retransmission=Retransmission(b"client", again=False, number=7)))
    doubtful = Retransmission(b"client", again=True, number=7, ack_delivery=AckDelivery.DOUBTFUL)
    assert take(store, make_arrival(retransmission=doubtful)) == [STORED]
    last = decode_event(rows(store, stream_of(store))[-1].body)
    assert last.properties == "possible-duplicate-of=rule:same"


def test_packet_id_of_a_stored_event_is_known_after_reduced_ones(path):
    """The log of packet ids is written without rows of events in between."""
    store = open_store(path, rules=ON_CHANGE)

    def message(number, *, again):
        sent = Retransmission(b"client", again=again, number=number)
        return make_arrival(number // 20, retransmission=sent)

    for number in range(1, 50):
        take(store, message(number, again=False))
    store = reopened(store, path)
    assert take(store, *(message(number, again=True) for number in range(1, 50))) == [DUPLICATE] * 49
    assert_balances(store)


def test_device_time_and_rare_attributes_do_not_matter(path):
    store = open_store(path, rules=ON_CHANGE)
    with_time = make_arrival(evidence=DeviceTime(7), time_ns=7, properties="a=b")
    assert take(store, make_arrival(), with_time, make_arrival(expiry_s=60)) == [STORED, FILTERED, FILTERED]
    assert_balances(store)


def test_advertisement_that_a_rule_reduced_is_not_counted_again_with_each_repetition(path):
    store = open_store(path, rules=RuleSettings(reduce=[ReduceTable(name="tenth", every=10)]))
    report = ReportPolicy(on_change=True)
    take(store, make_arrival(1, report=report), make_arrival(2, report=report))
    assert take(store, *(make_arrival(2, report=report) for _ in range(5))) == [FILTERED] * 5
    counts = stream_of(store).counts
    assert (counts.filtered, counts.rules) == (5, {"tenth": {"reduced": 1}})


def test_event_that_the_rule_cannot_read_is_stored_and_counted(path):
    rules = RuleSettings(reduce=[ReduceTable(name="t", on_change=True, fields=["/temperature"])])
    store = open_store(path, rules=rules)
    assert take(store, make_arrival(), make_arrival()) == [STORED, STORED]
    assert stream_of(store).counts.rules == {"t": {"unreadable": 2}}
    assert_balances(store)
