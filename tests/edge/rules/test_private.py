"""Private fields: what is left of an arrival. Bytes in, bytes out."""

import hashlib
import json
from collections import Counter

import cbor2
import pytest

from fogline.dead_letter import dead_letter, decode_dead_letter
from fogline.errors import Misconfigured, Poison
from fogline.events.event import CommandOutcome, Lane
from fogline.gateway.ledger import RuleOutcome
from fogline_edge.rule_settings import PrivateTable
from fogline_edge.rules.private import WITHHELD_CONTENT_TYPE, PrivateRules
from fogline_lab.events import make_arrival

SECRET = "Ada Lovelace"
BODY = {"person": {"name": SECRET, "age": 36}, "temperature": 21.37, "list": [1, 2]}


@pytest.fixture
def key_file(tmp_path):
    path = tmp_path / "private.key"
    path.write_text("0123456789abcdef" * 4)
    path.chmod(0o600)
    return str(path)


def protected(body, *, content_type="application/json", counts=None, arrival=None, **table):
    """The arrival that is left."""
    rules = PrivateRules([PrivateTable(name="p", **table)])
    given = arrival or make_arrival(data=body, content_type=content_type)
    counted = Counter() if counts is None else counts
    return rules.protect(given, lambda lane, rule, outcome: counted.update([(lane, rule, outcome)]))


def left(body, **table):
    return json.loads(protected(json.dumps(body).encode(), **table).data)


@pytest.mark.parametrize(
    ("table", "body", "expected"),
    [
        ({"drop": ["/person"]}, BODY, {"temperature": 21.37, "list": [1, 2]}),
        ({"drop": ["/person/name", "/nothing"]}, BODY, {**BODY, "person": {"age": 36}}),
        ({"drop": ["/list/1"]}, BODY, {**BODY, "list": [1, None]}),
        ({"drop": [""]}, BODY, None),
        ({"round": {"/temperature": 0.5}}, BODY, {**BODY, "temperature": 21.5}),
        ({"round": {"/temperature": 0.1}}, {"temperature": 21.37}, {"temperature": 21.4}),
        ({"round": {"/n": 10}}, {"n": 36}, {"n": 40}),
        ({"round": {"/n": 10}}, {"n": -36}, {"n": -40}),
        ({"round": {"/n": 10}}, {"n": "36"}, {}),
        ({"round": {"/n": 10}}, {"n": True}, {}),
        ({"round": {"/n": 1}}, {"n": None}, {}),
    ],
)
def test_fields_are_dropped_or_rounded_and_the_rest_stays(table, body, expected):
    assert left(body, **table) == expected


def test_field_that_occurs_twice_is_gone_twice():
    """A parser takes the last of two equal names, and people who read the bytes take both."""
    twice = b'{"a": {"name": "%s"}, "a": {}, "name": "%s", "name": 1}' % (SECRET.encode(), SECRET.encode())
    assert protected(twice, drop=["/a/name", "/name"]).data == b'{"a":{}}'


def test_equal_values_have_equal_hashes_with_one_key_and_others_with_another(key_file, tmp_path):
    def hashed(value, file=key_file):
        return left({"name": value}, hash=["/name"], key_file=file)["name"]

    assert hashed(SECRET) == hashed(SECRET)
    assert len(hashed(SECRET)) == 32
    assert len({hashed(each) for each in (SECRET, "Ada", 1, "1", True, None, {"a": 1}, [1])}) == 8
    assert hashed(1) == hashed(1.0), "one value, whatever its spelling"
    other = tmp_path / "other.key"
    other.write_text("f" * 32)
    other.chmod(0o600)
    assert hashed(SECRET, str(other)) != hashed(SECRET)
    assert hashed(SECRET) != hashlib.blake2b(SECRET.encode(), digest_size=16).hexdigest()


def test_cbor_stays_cbor(key_file):
    found = protected(
        cbor2.dumps({"name": SECRET, "n": 7}) + b"trailing " + SECRET.encode(),
        content_type="application/cbor",
        hash=["/name"],
        key_file=key_file,
    )
    body = cbor2.loads(found.data)
    assert (found.content_type, body["n"], len(body["name"])) == ("application/cbor", 7, 32)
    assert SECRET.encode() not in found.data


@pytest.mark.parametrize(
    ("data", "content_type"),
    [
        (b'{"name": "Ada Lovelace"', "application/json"),
        (b"name=Ada Lovelace", "text/plain"),
        (b"\xff\xfeAda Lovelace", "application/json"),
        (b"\xa1\x64name\x6cAda", "application/cbor"),
        (b'{"n": 1} {"name": "Ada Lovelace"}', "application/json"),
        (b"[" * 100_000, "application/json"),
    ],
)
def test_body_in_which_the_fields_cannot_be_found_is_withheld(data, content_type, key_file):
    counts = Counter()
    found = protected(data, content_type=content_type, drop=["/name"], counts=counts, key_file=key_file)
    assert found.content_type == WITHHELD_CONTENT_TYPE
    assert b"Ada" not in found.data
    body = json.loads(found.data)
    assert (body["rule"], body["bytes"], len(body["digest"])) == ("p", len(data), 32)
    assert counts == {(Lane.TELEMETRY, "p", RuleOutcome.WITHHELD): 1}


def test_without_a_key_a_withheld_body_has_no_digest():
    """A digest without a key tells which of the possible values it was."""
    assert json.loads(protected(b"36", content_type="text/plain", drop=["/a"]).data) == 36
    assert json.loads(protected(b"x", content_type="text/plain", drop=["/a"]).data) == {"rule": "p", "bytes": 1}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"0123456789", b"01\0\0\0\0" + b"6789"),
        (b"0123", b"01\0\0"),
        (b"01", b"01"),
        (b"", b""),
    ],
)
def test_bytes_become_zeros_also_in_a_short_payload(data, expected):
    assert protected(data, content_type="application/octet-stream", drop=["bytes:2-5"]).data == expected


def test_bytes_are_hashed_in_their_place(key_file):
    table = {"content_type": "application/octet-stream", "hash": ["bytes:2-9"], "key_file": key_file}
    one, two, other = (protected(b"AB" + each + b"YZ", **table).data for each in (b"12345678", b"12345678", b"12345679"))
    assert one == two != other
    assert (len(one), one[:2], one[-2:]) == (12, b"AB", b"YZ")
    assert protected(b"AB1234", **table).data == b"AB\0\0\0\0", "a part of the range is a secret too"


def test_properties_are_dropped_by_name():
    arrival = make_arrival(properties="user=Ada&unit=C&user=Eve")
    assert protected(b"", arrival=arrival, drop_properties=["user"]).properties == "unit=C"
    assert protected(b"", arrival=make_arrival(properties="user=Ada"), drop_properties=["user"]).properties is None


def test_reply_of_a_device_has_its_rules_whatever_their_channel():
    outcome = CommandOutcome(command="C1", state="SUCCEEDED", status=200, correlation="")
    reply = {"lane": Lane.REPLY, "channel": "command/who", "outcome": outcome}
    answer = make_arrival(data=b'{"name": "Ada"}', **reply)
    assert protected(b"", arrival=answer, channel="plant/#", drop=["/name"]).data == b"{}"
    assert protected(b"", arrival=make_arrival(data=b"", **reply), drop=["/name"]).data == b""
    assert protected(b"", arrival=answer, device="other-*", drop=["/name"]) == answer


def test_dead_letter_keeps_its_reason_and_no_body(key_file):
    letter = dead_letter(
        Poison("bad-topic", "no topic matches"),
        gateway="gw-1",
        adapter="mqtt",
        sender="d1",
        channel="x",
        data=SECRET.encode(),
        retransmission=None,
    )
    counts = Counter()
    found = decode_dead_letter(
        protected(b"", arrival=letter, device="other", drop=["/a"], key_file=key_file, counts=counts).data
    )
    assert (found.reason, found.body) == ("bad-topic", b"")
    assert "no topic matches (rule p withholds the body: 12 bytes, digest " in found.detail
    assert counts == {(Lane.BULK, "p", RuleOutcome.WITHHELD): 1}


def test_every_rule_that_applies_is_performed():
    rules = PrivateRules([PrivateTable(name="a", drop=["/a"]), PrivateTable(name="b", channel="telemetry", drop=["/b"])])
    counts = []
    found = rules.protect(make_arrival(data=b'{"a":1,"b":2,"c":3}'), lambda *each: counts.append(each[1]))
    assert (found.data, counts) == (b'{"c":3}', ["a", "b"])


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({}, "it protects nothing"),
        ({"hash": ["/a"]}, "hash needs key_file"),
        ({"drop": ["a"]}, "expected a JSON pointer"),
        ({"drop": ["/a", "bytes:0-3"]}, "exclude each other"),
        ({"round": {"bytes:0-3": 1}}, "round is for numbers of a document"),
        ({"hash": ["/a"], "key_file": "/nowhere/key"}, "cannot read /nowhere/key"),
    ],
)
def test_rule_that_cannot_be_used_is_refused_with_an_example(table, said):
    with pytest.raises(Misconfigured) as error:
        PrivateRules([PrivateTable(name="p", **table)])
    assert "rules.private p" in str(error.value)
    assert said in str(error.value)


def test_key_that_others_may_read_or_that_is_short_is_refused(tmp_path):
    path = tmp_path / "key"
    path.write_text("x" * 32)
    path.chmod(0o644)
    with pytest.raises(Misconfigured, match="chmod 600"):
        PrivateRules([PrivateTable(name="p", hash=["/a"], key_file=str(path))])
    path.write_text("short")
    path.chmod(0o600)
    with pytest.raises(Misconfigured, match="openssl rand"):
        PrivateRules([PrivateTable(name="p", hash=["/a"], key_file=str(path))])


def test_explanation_says_what_happens_to_the_fields_that_the_event_has(key_file):
    rules = PrivateRules(
        [
            PrivateTable(name="p", drop=["/a"], round={"/b": 1}, hash=["/c", "/d"], key_file=key_file),
            PrivateTable(name="q", drop=["/x"]),
        ]
    )
    first, second = (each.effect for each in rules.explain(make_arrival(data=b'{"a":1,"b":2.4,"c":"Eve"}')))
    assert first.startswith('/a is dropped; /b is rounded; /c is hashed; the payload that is left is \'{"b":2')
    assert "Eve" not in first
    assert second.startswith('the event has none of its fields; the payload that is left is \'{"b":2')
    assert "withheld" in rules.explain(make_arrival(data=b"no json"))[0].effect
