"""Any reply of a gateway is checked without an error (B1), and every record that follows can be read back."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from fogline.commands.command import CommandState
from fogline.errors import Poison
from fogline.events.gap import GAP_CONTENT_TYPE, decode_gap
from fogline_cloud.audit.record import encode_audit
from fogline_cloud.bridge.commands.replies import reply_message
from fogline_cloud.commands.record import CommandRecord, audit_of, decode_record, encode
from fogline_cloud.commands.reply_lane import check_replies
from fogline_lab.bridge.command_records import make_record
from fogline_lab.events import make_event

NOW_MS = 1_790_000_000_000
KNOWN = make_record()
text = st.one_of(st.none(), st.sampled_from(["C1", "C2", "command/switch", "SUCCEEDED", "string:1"]), st.text(max_size=600))
said = st.fixed_dictionaries(
    {
        "gateway": st.sampled_from(["gw-1", "gw-2"]),
        "device": st.sampled_from(["lamp-1", "lamp-2"]),
        "tenant": st.sampled_from(["acme", "other"]),
        "commandid": text,
        "commandstate": st.one_of(st.sampled_from([*CommandState, "PAUSED"]), text),
        "status": st.one_of(st.none(), st.integers(), st.sampled_from([200, 404])),
        "correlationid": text,
        "subject": text.map(str),
        "content_type": text.map(str),
        "data": st.binary(max_size=50),
        "id": text.map(str),
    }
)


@given(st.lists(said, max_size=6))
def test_every_reply_is_taken_or_refused_and_every_record_can_be_read_back(changes):
    events = [make_event(**change) for change in changes]
    events = [msgspec.structs.replace(each, sequence=number) for number, each in enumerate(events, start=1)]
    checked = check_replies(events, {"C1": KNOWN}.get, issued=lambda each: each == "C2", tenant="acme", now_ms=NOW_MS)
    assert [each.sequence for each in checked.events] == [each.sequence for each in events]
    gaps = [made for made, came in zip(checked.events, events, strict=True) if made is not came]
    assert len(gaps) == len(checked.audits)
    for each in gaps:
        gap = decode_gap(each.data)
        assert (gap.first, gap.last, each.content_type) == (each.sequence, each.sequence, GAP_CONTENT_TYPE)
    for each in checked.records:
        assert decode_record(encode(each)) == each
        assert (each.id, each.tenant) in {("C1", "acme"), ("C2", "acme")}
        assert each.id != "C1" or (each.gateway, each.device) == ("gw-1", "lamp-1")
        assert encode_audit(audit_of(each))
        assert reply_message(each if each.reply_to else msgspec.structs.replace(each, correlation="string:1"))


fields = st.dictionaries(
    st.sampled_from([each.encode_name for each in msgspec.structs.fields(CommandRecord)]),
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=20), st.lists(st.integers(), max_size=2)),
    max_size=4,
)


@given(fields)
def test_a_record_from_kafka_is_usable_or_poison(changed):
    """Sister of B1: one record that cannot be used would stop all commands of its gateway, at each of its hellos."""
    body = msgspec.json.encode({**msgspec.to_builtins(KNOWN), **changed})
    try:
        found = decode_record(body)
    except Poison:
        return
    assert isinstance(found.data, bytes)
    assert isinstance(bytes.fromhex(found.digest), bytes)
    if found.owes_reply:
        assert reply_message(found)


def test_reply_to_a_command_of_a_gateways_rule_is_an_event_without_a_record():
    said_ = {"commandid": "rule.RMZRRDW3NAMCOXGXLR4DUMP3MQ", "commandstate": "SUCCEEDED", "status": 200, "tenant": "acme"}
    event = make_event(**said_, correlationid="rule/hot/e-1", subject="command/switch")
    checked = check_replies([event], lambda _: None, issued=lambda _: False, tenant="acme", now_ms=NOW_MS)
    assert (checked.events, checked.records, checked.audits, checked.refused) == ([event], [], [], 0)
