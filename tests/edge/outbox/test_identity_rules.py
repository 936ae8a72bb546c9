"""Identity by rules of the settings, in a real outbox: what is stored, under which id, and how it is counted."""

import json
from pathlib import Path

import cbor2
import pytest
from msgspec.structs import replace

from edge.outbox.stores import copy_file, open_store, rows, take
from fogline.events.codec import decode_event
from fogline.events.event import CONFLICTING, POSSIBLE_DUPLICATE, Arrival, Event, Lane, Receipt
from fogline.events.identity import Dedup, Duplicates, Retransmission, UniqueId
from fogline.gateway.ledger import total_by_rule
from fogline_edge.outbox.writer.store import OutboxStore
from fogline_edge.rule_settings import IdentityTable, RuleSettings
from fogline_lab.events import make_arrival

STORED, DUPLICATE = Receipt.STORED, Receipt.DUPLICATE
DAY_MS = 24 * 3_600_000


def rule(**keys: object) -> RuleSettings:
    return RuleSettings(identity=[IdentityTable(**{"name": "press", "fields": ["/serial", "/n"], **keys})])


def report(n: object, value: float = 20.5, *, packet: int = 1, again: bool = False, **attributes: object) -> Arrival:
    """An event of a program, with a packet id of MQTT that says nothing about its identity."""
    body = json.dumps({"serial": "p-7", "n": n, "value": value}).encode()
    sent = Retransmission(b"client-1", again=again, number=packet)
    return replace(make_arrival(1, data=body, content_type="application/json", retransmission=sent), **attributes)


def events(store: OutboxStore, lane: Lane = Lane.TELEMETRY) -> list[Event]:
    return [decode_event(each.body) for each in rows(store, store.streams.of_lane(lane))]


def counted(store: OutboxStore) -> dict[str, int]:
    return total_by_rule(each.counts.rules for each in store.streams.everything()).get("press", {})


def test_event_that_the_program_sends_again_is_stored_once(tmp_path: Path) -> None:
    store = open_store(tmp_path / "outbox.db", rules=rule())
    assert take(store, report(1, packet=1), report(1, packet=2), report(2, packet=3)) == [STORED, DUPLICATE, STORED]
    assert take(store, report(1, packet=4), age_ms=DAY_MS) == [DUPLICATE]
    assert [each.dedup for each in events(store)] == [Dedup.STRONG, Dedup.STRONG]
    assert counted(store) == {"identified": 2, "duplicate": 2}


def test_event_is_known_after_a_kill(tmp_path: Path) -> None:
    take(open_store(tmp_path / "outbox.db", rules=rule()), report(1))
    killed = open_store(copy_file(tmp_path / "outbox.db", tmp_path / "killed"), rules=rule())
    assert take(killed, report(1, packet=9)) == [DUPLICATE]
    assert counted(killed) == {"identified": 1, "duplicate": 1}


def test_two_gateways_give_one_event_one_id_whatever_its_spelling(tmp_path: Path) -> None:
    one = open_store(tmp_path / "one.db", gateway="gw-1", rules=rule(shared=True))
    other = open_store(tmp_path / "two.db", gateway="gw-2", rules=rule(shared=True, name="another-name"))
    take(one, report(1))
    as_cbor = cbor2.dumps({"value": 20.5, "n": 1.0, "serial": "p-7"})
    take(other, report(5), report(1, data=as_cbor, content_type="application/cbor"))
    assert events(one)[0].id == events(other)[1].id
    assert {each.dedup for each in (*events(one), *events(other))} == {Dedup.UNIQUE}


@pytest.mark.parametrize(
    "without",
    [b"{}", b"no json", b'{"serial": "p-7", "n": null}', b'{"serial": "p-7"}', b""],
)
def test_event_without_the_fields_is_stored_each_time_and_counted(tmp_path: Path, without: bytes) -> None:
    store = open_store(tmp_path / "outbox.db", rules=rule())
    arrivals = [report(1, data=without, packet=each) for each in (1, 2)]
    assert take(store, *arrivals) == [STORED, STORED]
    assert [each.dedup for each in events(store)] == [Dedup.WEAK, Dedup.WEAK]
    assert counted(store) == {"unidentified": 2}


def test_event_without_the_fields_keeps_the_identity_of_its_protocol(tmp_path: Path) -> None:
    store = open_store(tmp_path / "outbox.db", rules=rule())
    arrival = report(1, data=b"{}", evidence=UniqueId(b"idempotency-key"), retransmission=None)
    assert take(store, arrival, arrival) == [STORED, DUPLICATE]
    assert counted(store) == {"unidentified": 1}


def test_rule_has_precedence_over_the_identity_of_the_protocol(tmp_path: Path) -> None:
    store = open_store(tmp_path / "outbox.db", rules=rule())
    assert take(store, report(1, evidence=UniqueId(b"a")), report(1, evidence=UniqueId(b"b"))) == [STORED, DUPLICATE]


def test_same_key_with_another_content_is_two_events_and_the_second_names_the_first(tmp_path: Path) -> None:
    store = open_store(tmp_path / "outbox.db", rules=rule())
    arrivals = [report(1, value) for value in (20.5, 21.5, 22.5, 21.5, 20.5)]
    assert take(store, *arrivals) == [STORED, STORED, STORED, DUPLICATE, DUPLICATE]
    first, *others = events(store)
    assert (first.properties, {each.properties for each in others}) == (None, {f"{CONFLICTING}={first.id}"})
    assert len({first.id, *(each.id for each in others)}) == 3
    assert counted(store) == {"identified": 1, "conflict": 2, "duplicate": 2}


def test_marked_event_is_stored_and_names_the_first(tmp_path: Path) -> None:
    store = open_store(tmp_path / "outbox.db", rules=rule(duplicates=Duplicates.MARK))
    assert take(store, report(1), report(1, packet=2, properties="a=b"), report(1, packet=3)) == [STORED] * 3
    first, second, third = events(store)
    assert [each.properties for each in (first, second, third)] == [
        None,
        f"a=b&{POSSIBLE_DUPLICATE}={first.id}",
        f"{POSSIBLE_DUPLICATE}={first.id}",
    ]
    assert (len({first.id, second.id, third.id}), second.dedup) == (3, Dedup.MARKED)
    assert counted(store) == {"identified": 1, "marked": 2}


@pytest.mark.parametrize("duplicates", Duplicates)
def test_retransmission_that_the_protocol_marks_stays_a_duplicate(tmp_path: Path, duplicates: Duplicates) -> None:
    store = open_store(tmp_path / "outbox.db", rules=rule(duplicates=duplicates))
    assert take(store, report(1), report(1, again=True)) == [STORED, DUPLICATE]
    assert counted(store) == {"identified": 1}


def test_events_of_a_rule_that_compares_nothing_have_one_id(tmp_path: Path) -> None:
    store = open_store(tmp_path / "outbox.db", rules=rule(duplicates=Duplicates.NONE))
    assert take(store, report(1), report(1, packet=2)) == [STORED, STORED]
    one, other = events(store)
    assert (one.id == other.id, one.dedup, other.dedup) == (True, Dedup.NONE, Dedup.NONE)
    assert store.connection.execute("SELECT count(*) FROM memory").fetchone() == (0,)
    assert counted(store) == {"identified": 2}


def test_key_that_returns_after_its_window_is_a_new_event_with_an_id_of_its_own(tmp_path: Path) -> None:
    store = open_store(tmp_path / "outbox.db", rules=rule(window_s=100))
    assert take(store, report(1), age_ms=0) == [STORED]
    assert take(store, report(1, packet=2), age_ms=100_000) == [DUPLICATE]
    assert take(store, report(1, packet=3), age_ms=101_000) == [STORED]
    assert take(store, report(1, 0.5, packet=4), report(1, 0.5, packet=5), age_ms=102_000) == [STORED, DUPLICATE]
    assert take(store, report(1, packet=6), age_ms=201_000) == [DUPLICATE]
    first, second, conflict = events(store)
    assert len({first.id, second.id, conflict.id}) == 3
    assert conflict.properties == f"{CONFLICTING}={second.id}"


def test_key_that_returns_at_several_gateways_is_for_the_flow_to_compare_by_time(tmp_path: Path) -> None:
    store = open_store(tmp_path / "outbox.db", rules=rule(window_s=100, shared=True))
    take(store, report(1), age_ms=0)
    take(store, report(1, packet=2), age_ms=200_000)
    one, other = events(store)
    assert (one.id == other.id, one.dedup, other.dedup) == (True, Dedup.SHARED, Dedup.SHARED)


def test_bare_counter_wraps_and_restarts_without_a_loss(tmp_path: Path) -> None:
    counter = rule(fields=[], counter="/n", counter_bits=8)
    store = open_store(tmp_path / "outbox.db", rules=counter)
    sent = [*range(256), *range(256), 0, 1, 2]
    assert take(store, *(report(n, i, packet=i + 1) for i, n in enumerate(sent))) == [STORED] * len(sent)
    assert take(store, report(2, len(sent) - 1, packet=1000)) == [DUPLICATE]
    assert take(store, report(256), report(-1), report(1.5), report("3")) == [STORED] * 4
    assert counted(store) == {"identified": len(sent), "duplicate": 1, "unidentified": 4}
    assert len({each.id for each in events(store)}) == len(sent) + 4


def test_counter_within_a_session_starts_again_with_the_session(tmp_path: Path) -> None:
    store = open_store(tmp_path / "outbox.db", rules=rule(fields=[], session="/value", counter="/n"))
    assert take(store, report(1, 1), report(1, 2), report(1.0, 1), report(2, 1)) == [STORED, STORED, DUPLICATE, STORED]


def test_bytes_of_a_payload_that_is_no_document_are_a_key(tmp_path: Path) -> None:
    store = open_store(tmp_path / "outbox.db", rules=rule(fields=["bytes:0-3"]))
    kind = "application/octet-stream"
    arrivals = [
        report(1, data=data, content_type=kind)
        for data in (b"\x00\x01\x02\x03a", b"\x00\x01\x02\x04a", b"\x00\x01\x02\x03a", b"\x00")
    ]
    assert take(store, *arrivals) == [STORED, STORED, DUPLICATE, STORED]
    assert counted(store) == {"identified": 2, "duplicate": 1, "unidentified": 1}


def test_time_of_the_device_is_the_key_or_a_part_of_it(tmp_path: Path) -> None:
    for name, table in (("alone", rule(fields=[], time=True)), ("part", rule(fields=["/n"], time=True))):
        store = open_store(tmp_path / f"{name}.db", rules=table)
        arrivals = [report(1, time_ns=each) for each in (10**18, 10**18 + 1000, 10**18, None)]
        assert take(store, *arrivals) == [STORED, STORED, DUPLICATE, STORED]
        assert counted(store) == {"identified": 2, "duplicate": 1, "unidentified": 1}


def test_first_rule_whose_fields_an_event_has_decides(tmp_path: Path) -> None:
    tables = [IdentityTable(name="by-id", fields=["/id"]), IdentityTable(name="press", fields=["/n"])]
    store = open_store(tmp_path / "outbox.db", rules=RuleSettings(identity=[*tables]))
    take(store, report(1), report(1, data=b'{"id": 1, "n": 1}'), report(1, data=b'{"other": 1}'))
    assert total_by_rule(each.counts.rules for each in store.streams.everything()) == {
        "by-id": {"identified": 1, "unidentified": 1},
        "press": {"identified": 1},
    }


def test_rule_applies_only_to_its_events_and_never_to_replies(tmp_path: Path) -> None:
    store = open_store(tmp_path / "outbox.db", rules=rule(channel="plant/+/state", device="press-*"))
    for changed in (
        {"device": "lamp-1"},
        {"channel": "plant/state"},
        {"device": "press-1", "channel": "plant/7/state", "lane": Lane.REPLY},
    ):
        assert take(store, report(1, **changed), report(1, **changed, packet=2)) == [STORED, STORED]
    assert counted(store) == {}
    mine = {"device": "press-1", "channel": "plant/7/state"}
    assert take(store, report(1, **mine), report(1, **mine, packet=2)) == [STORED, DUPLICATE]
