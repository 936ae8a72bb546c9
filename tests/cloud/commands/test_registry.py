"""Which word about a command stands, whoever comes first: records in, records out."""

import msgspec
import pytest

from fogline.command import MAX_COMMAND_BYTES, Answer, State
from fogline.errors import Poison
from fogline.testing.events import make_event
from fogline_cloud.commands import registry as module
from fogline_cloud.commands.record import Record, audit_of, decode_record, encode, ended, of_reply
from fogline_cloud.commands.registry import Registry, outdated


def record(command_id="C1", **other):
    attributes = {
        "id": command_id,
        "tenant": "acme",
        "gateway": "gw-1",
        "device": "lamp-1",
        "name": "switch",
        "state": State.ACCEPTED,
        "operator": "client acme/me (asserted)",
        "accepted_ms": 1,
        "expires_ms": 1000,
        "changed_ms": 1,
        "digest": "00",
        "reply_to": "me",
        "correlation": "string:1",
    }
    return Record(**{**attributes, **other})


def over(state, *, provisional=False, status=200):
    return ended(record(), state, Answer(status, b"ok", "text/plain"), 500, provisional=provisional)


def test_a_record_comes_back_from_kafka_as_it_was():
    for each in (record(), over(State.SUCCEEDED), over(State.IN_DOUBT, provisional=True)):
        assert decode_record(encode(each)) == each


@pytest.mark.parametrize(
    ("words", "stands"),
    [
        ([record(state=State.DISPATCHED), over(State.SUCCEEDED)], State.SUCCEEDED),
        ([over(State.SUCCEEDED), record(state=State.DISPATCHED)], State.SUCCEEDED),
        ([over(State.EXPIRED), over(State.SUCCEEDED)], State.EXPIRED),
        ([over(State.IN_DOUBT, provisional=True), over(State.EXPIRED)], State.EXPIRED),
        ([over(State.IN_DOUBT, provisional=True), over(State.IN_DOUBT)], State.IN_DOUBT),
        ([over(State.IN_DOUBT), over(State.SUCCEEDED)], State.SUCCEEDED),
        ([over(State.SUCCEEDED), over(State.IN_DOUBT, provisional=True)], State.SUCCEEDED),
        ([over(State.IN_DOUBT), over(State.IN_DOUBT, provisional=True)], State.IN_DOUBT),
    ],
)
def test_the_gateways_word_stands_over_the_bridges_and_the_first_end_over_later_ones(words, stands):
    known = Registry()
    known.put(record())
    for each in words:
        known.change(each)
    assert known.get("C1").state is stands
    assert not known.get("C1").provisional


def test_that_the_operator_was_told_is_no_step_back():
    known = Registry()
    known.put(over(State.SUCCEEDED))
    told = msgspec.structs.replace(over(State.SUCCEEDED), told=True)
    assert known.change(told)
    assert not known.change(over(State.SUCCEEDED))
    assert known.get("C1").told


def test_that_the_operator_was_told_of_a_doubt_does_not_undo_the_gateways_own_verdict():
    known = Registry()
    known.put(over(State.IN_DOUBT))
    assert not known.change(msgspec.structs.replace(over(State.IN_DOUBT, provisional=True), told=True))
    assert not known.get("C1").provisional


def test_what_a_gateway_has_to_get_is_what_is_not_over_oldest_first():
    known = Registry()
    known.put(record("C2", accepted_ms=2))
    known.put(record("C1"))
    known.put(record("C3", gateway="gw-2"))
    known.put(msgspec.structs.replace(over(State.SUCCEEDED), id="C4"))
    known.put(msgspec.structs.replace(over(State.IN_DOUBT, provisional=True), id="C5"))
    assert [each.id for each in known.open_for("gw-1")] == ["C1", "C5", "C2"]


def test_a_copy_of_a_released_command_is_a_new_attempt_and_an_earlier_one_does_not_come_back():
    """B3: the operator of a direct command that was released may send it again, under the same id."""
    known = Registry()
    released = msgspec.structs.replace(over(State.REJECTED), status=503, told=True)
    assert released.released
    assert not msgspec.structs.replace(released, durable=True).released
    known.put(released)
    again = record(attempt=2)
    assert known.change(again)
    assert not known.change(msgspec.structs.replace(released, told=True))
    assert known.get("C1") == again
    assert outdated(again, released)
    assert not outdated(released, again)


def test_a_new_attempt_is_not_forgotten_as_one_that_ended(monkeypatch):
    """Sister of B3: the registry forgets the oldest ended commands, and must not take a running one for one of them."""
    monkeypatch.setattr(module, "MAX_ENDED", 10)
    known = Registry()
    known.put(msgspec.structs.replace(over(State.REJECTED), status=503, told=True))
    known.put(record(attempt=2))
    for number in range(100):
        known.put(msgspec.structs.replace(over(State.SUCCEEDED), id=f"D{number}", told=True))
    assert known.get("C1").attempt == 2


def test_memory_is_bounded_and_never_forgets_what_is_owed(monkeypatch):
    monkeypatch.setattr(module, "MAX_ENDED", 10)
    known = Registry()
    known.put(over(State.SUCCEEDED))
    for number in range(100):
        known.put(msgspec.structs.replace(over(State.SUCCEEDED), id=f"D{number}", told=True))
    assert known.get("C1") is not None
    assert [each.id for each in known.everything()] == ["C1", *(f"D{number}" for number in range(90, 100))]


def reply_event(**other):
    attributes = {
        "commandid": "C1",
        "commandstate": "SUCCEEDED",
        "status": 200,
        "correlationid": "string:1",
        "subject": "command/switch",
        "data": b"done",
        "content_type": "text/plain",
    }
    return make_event(**{**attributes, **other})


def test_a_gateways_reply_ends_its_command():
    ended_record = of_reply(reply_event(), record(), 77)
    assert (ended_record.state, ended_record.status, ended_record.answer) == (State.SUCCEEDED, 200, b"done")
    assert ended_record.owes_answer
    assert audit_of(ended_record).decision == "SUCCEEDED"


def test_a_reply_to_a_command_that_was_never_written_down_makes_it_known():
    adopted = of_reply(reply_event(), None, 77)
    assert (adopted.id, adopted.name, adopted.device, adopted.state) == ("C1", "switch", "lamp-1", State.SUCCEEDED)
    assert not adopted.owes_answer


def test_telemetry_ends_no_command():
    assert of_reply(make_event(), record(), 77) is None


def test_an_answer_that_is_too_big_for_a_record_leaves_its_status_and_says_so():
    """Its record would not go into Kafka: the shard would be taken again and again, for one gateway's answer."""
    whole = of_reply(reply_event(data=bytes(MAX_COMMAND_BYTES)), record(), 77)
    assert len(whole.answer) == MAX_COMMAND_BYTES
    cut = of_reply(reply_event(data=bytes(MAX_COMMAND_BYTES + 1)), record(), 77)
    assert (cut.state, cut.status, cut.answer, cut.answer_type) == (State.SUCCEEDED, 200, b"", None)
    assert cut.why == f"its answer has {MAX_COMMAND_BYTES + 1} bytes, more than {MAX_COMMAND_BYTES}: only its status is kept"


@pytest.mark.parametrize("command_id", ["", "no identifier", "x" * 65, "x" * 1_000_000])
def test_a_reply_to_what_is_no_command_id_ends_no_command(command_id):
    with pytest.raises(Poison):
        of_reply(reply_event(commandid=command_id), None, 77)


@pytest.mark.parametrize("field", ["subject", "correlationid", "content_type"])
def test_a_command_that_is_known_by_its_reply_alone_has_a_bounded_record(field):
    with pytest.raises(Poison):
        of_reply(reply_event(**{field: "command/" + "x" * 300_000}), None, 77)
