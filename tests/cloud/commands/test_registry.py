"""The registry keeps the right record of a command, in whatever order records arrive."""

from dataclasses import replace

import msgspec
import pytest

from fogline.commands.command import MAX_COMMAND_BYTES, CommandState
from fogline.errors import Poison
from fogline_cloud.commands import registry as module
from fogline_cloud.commands.record import apply_reply, audit_of, decode_record, encode
from fogline_cloud.commands.registry import Registry
from fogline_cloud.commands.succession import is_outdated
from fogline_lab.bridge.command_records import make_ended_record, make_record, make_reply_event
from fogline_lab.events import make_event


def test_a_record_is_the_same_after_encoding_and_decoding():
    for each in (
        make_record(),
        make_ended_record(CommandState.SUCCEEDED),
        make_ended_record(CommandState.IN_DOUBT, provisional=True),
    ):
        assert decode_record(encode(each)) == each


@pytest.mark.parametrize(
    ("records", "state"),
    [
        ([make_record(state=CommandState.DISPATCHED), make_ended_record(CommandState.SUCCEEDED)], CommandState.SUCCEEDED),
        ([make_ended_record(CommandState.SUCCEEDED), make_record(state=CommandState.DISPATCHED)], CommandState.SUCCEEDED),
        ([make_ended_record(CommandState.EXPIRED), make_ended_record(CommandState.SUCCEEDED)], CommandState.EXPIRED),
        (
            [make_ended_record(CommandState.IN_DOUBT, provisional=True), make_ended_record(CommandState.EXPIRED)],
            CommandState.EXPIRED,
        ),
        (
            [make_ended_record(CommandState.IN_DOUBT, provisional=True), make_ended_record(CommandState.IN_DOUBT)],
            CommandState.IN_DOUBT,
        ),
        ([make_ended_record(CommandState.IN_DOUBT), make_ended_record(CommandState.SUCCEEDED)], CommandState.SUCCEEDED),
        (
            [make_ended_record(CommandState.SUCCEEDED), make_ended_record(CommandState.IN_DOUBT, provisional=True)],
            CommandState.SUCCEEDED,
        ),
        (
            [make_ended_record(CommandState.IN_DOUBT), make_ended_record(CommandState.IN_DOUBT, provisional=True)],
            CommandState.IN_DOUBT,
        ),
    ],
)
def test_the_gateways_verdict_replaces_the_bridges_and_the_first_verdict_stays(records, state):
    known = Registry()
    known.put(make_record())
    for each in records:
        known.change(each)
    assert known.get("C1").state is state
    assert not known.get("C1").provisional


def test_a_delivered_reply_stays_delivered():
    known = Registry()
    known.put(make_ended_record(CommandState.SUCCEEDED))
    told = msgspec.structs.replace(make_ended_record(CommandState.SUCCEEDED), reply_delivered=True)
    assert known.change(told)
    assert not known.change(make_ended_record(CommandState.SUCCEEDED))
    assert known.get("C1").reply_delivered


def test_delivery_of_a_provisional_verdict_does_not_undo_the_gateways_own():
    known = Registry()
    known.put(make_ended_record(CommandState.IN_DOUBT))
    assert not known.change(
        msgspec.structs.replace(make_ended_record(CommandState.IN_DOUBT, provisional=True), reply_delivered=True)
    )
    assert not known.get("C1").provisional


def test_open_commands_of_a_gateway_come_in_commit_order_for_any_clock():
    known = Registry()
    known.put(make_record("C1", accepted_ms=5_000))
    known.put(make_record("C2", accepted_ms=2))
    known.put(make_record("C3", gateway="gw-2"))
    known.put(msgspec.structs.replace(make_ended_record(CommandState.SUCCEEDED), id="C4"))
    known.put(msgspec.structs.replace(make_ended_record(CommandState.IN_DOUBT, provisional=True), id="C5"))
    known.put(make_record("C1", accepted_ms=5_000, state=CommandState.DISPATCHED))
    assert [each.id for each in known.open_for("gw-1")] == ["C1", "C2", "C5"]


def test_a_copy_of_a_released_command_is_a_new_attempt_and_an_earlier_one_does_not_come_back():
    """B3: the operator of a direct command that was released may send it again, under the same id."""
    known = Registry()
    released = msgspec.structs.replace(make_ended_record(CommandState.REJECTED), status=503, reply_delivered=True)
    assert released.released
    assert not msgspec.structs.replace(released, durable=True).released
    known.put(released)
    again = make_record(attempt=2)
    assert known.change(again)
    assert not known.change(msgspec.structs.replace(released, reply_delivered=True))
    assert known.get("C1") == again
    assert is_outdated(again, released)
    assert not is_outdated(released, again)


def test_a_new_attempt_is_not_forgotten_as_one_that_ended(monkeypatch):
    """Sister of B3: the registry forgets the oldest ended commands, and must not take a running one for one of them."""
    monkeypatch.setattr(module, "ENDED", replace(module.ENDED, keys=10))
    known = Registry()
    known.put(msgspec.structs.replace(make_ended_record(CommandState.REJECTED), status=503, reply_delivered=True))
    known.put(make_record(attempt=2))
    for number in range(100):
        known.put(msgspec.structs.replace(make_ended_record(CommandState.SUCCEEDED), id=f"D{number}", reply_delivered=True))
    assert known.get("C1").attempt == 2


def test_finished_commands_are_bounded_and_due_replies_are_kept(monkeypatch):
    monkeypatch.setattr(module, "ENDED", replace(module.ENDED, keys=10))
    known = Registry()
    known.put(make_ended_record(CommandState.SUCCEEDED))
    for number in range(100):
        known.put(msgspec.structs.replace(make_ended_record(CommandState.SUCCEEDED), id=f"D{number}", reply_delivered=True))
    assert known.get("C1") is not None
    assert [each.id for each in known.everything()] == ["C1", *(f"D{number}" for number in range(90, 100))]


def test_a_records_json_keeps_the_names_that_other_versions_read():
    delivered = msgspec.structs.replace(make_ended_record(CommandState.SUCCEEDED), reply_delivered=True)
    fields = msgspec.json.decode(encode(delivered))
    assert (fields["told"], fields["answer_type"], fields["answer_base64"]) == (True, "text/plain", "b2s=")


def test_a_gateways_reply_ends_its_command():
    ended_record = apply_reply(make_reply_event(), make_record(), 77)
    assert (ended_record.state, ended_record.status, ended_record.reply_body) == (CommandState.SUCCEEDED, 200, b"done")
    assert ended_record.owes_reply
    assert audit_of(ended_record).decision == "SUCCEEDED"


def test_a_reply_to_a_command_without_a_record_makes_one():
    adopted = apply_reply(make_reply_event(), None, 77)
    assert (adopted.id, adopted.name, adopted.device, adopted.state) == ("C1", "switch", "lamp-1", CommandState.SUCCEEDED)
    assert not adopted.owes_reply


def test_telemetry_ends_no_command():
    assert apply_reply(make_event(), make_record(), 77) is None


def test_a_reply_too_big_for_a_record_keeps_its_status_only():
    """Its record would not go into Kafka: the shard would be taken again and again, for one gateway's answer."""
    whole = apply_reply(make_reply_event(data=bytes(MAX_COMMAND_BYTES)), make_record(), 77)
    assert len(whole.reply_body) == MAX_COMMAND_BYTES
    cut = apply_reply(make_reply_event(data=bytes(MAX_COMMAND_BYTES + 1)), make_record(), 77)
    assert (cut.state, cut.status, cut.reply_body, cut.reply_type) == (CommandState.SUCCEEDED, 200, b"", None)
    assert cut.why == f"the reply has {MAX_COMMAND_BYTES + 1} bytes, more than {MAX_COMMAND_BYTES}: only its status is kept"


@pytest.mark.parametrize("command_id", ["", "no identifier", "x" * 65, "x" * 1_000_000])
def test_a_reply_with_an_invalid_command_id_ends_no_command(command_id):
    with pytest.raises(Poison):
        apply_reply(make_reply_event(commandid=command_id), None, 77)


@pytest.mark.parametrize("field", ["subject", "correlationid", "content_type"])
def test_a_command_known_by_its_reply_alone_has_a_bounded_record(field):
    with pytest.raises(Poison):
        apply_reply(make_reply_event(**{field: "command/" + "x" * 300_000}), None, 77)
