"""Tables `[[rules.identity]]`: what is refused, and what the steps of an event say."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from fogline.errors import Misconfigured
from fogline.events.event import Lane
from fogline.events.identity import Duplicates
from fogline_edge.operate.settings_check import check
from fogline_edge.rule_settings import IdentityTable, RuleSettings
from fogline_edge.rules.event_rules import rules_of
from fogline_edge.settings import load
from fogline_lab.events import make_arrival

SETTINGS = 'tenant = "acme"\ngateway = "gw-1"\ndata = "data"\n[mqtt]\nport = 0\n[[rules.identity]]\nname = "press"\n'


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ("", "rules.identity press: expected one of fields = "),
        ('fields = ["serial"]', "rules.identity press: fields = 'serial': expected a JSON pointer such as '/state/counter'"),
        ('fields = ["bytes:7-0"]', "the range ends before it begins"),
        ('counter = "/n"', "counter = '/n' and counter_bits = 16"),
        ('session = "/boot"', "session = '/boot' and counter = '/n'"),
        ('fields = ["/a"]\ncounter = "/n"\ncounter_bits = 8', "expected one of"),
        ('session = "/boot"\ncounter = "/n"\ncounter_bits = 8', "expected one of"),
        ('time = true\ncounter = "/n"\ncounter_bits = 8', "expected one of"),
        ('counter = "/n"\ncounter_bits = 8\nduplicates = "mark"', "name fields, or a session"),
        ('fields = ["/a"]\nshared = true\nwindow_s = 59', "window_s = 59: with shared = true at least 60"),
        ('fields = ["/a"]\nshared = true\nwindow_s = 60\nduplicates = "mark"', "leave window_s out"),
        ('fields = ["/a"]\nchannel = "a/#/b"', "channel"),
    ],
)
def test_rule_that_cannot_be_used_is_refused_with_a_right_value(tmp_path: Path, keys: str, said: str) -> None:
    (tmp_path / "edge.toml").write_text(SETTINGS + keys)
    with pytest.raises(Misconfigured) as refused:
        check(load(tmp_path / "edge.toml"))
    assert said in str(refused.value)


@pytest.mark.parametrize("keys", ['duplicates = "keep"', "fields = 7", 'field = ["/a"]', "window_s = 0", "window_s = 200000"])
def test_wrong_key_or_value_is_refused_with_file_and_key(tmp_path: Path, keys: str) -> None:
    (tmp_path / "edge.toml").write_text(SETTINGS + keys)
    with pytest.raises(Misconfigured, match=r"edge\.toml.*rules\.identity") as refused:
        load(tmp_path / "edge.toml")
    assert keys.split(" ", maxsplit=1)[0] in str(refused.value)


def explained(arrival, *tables: IdentityTable) -> list[tuple[str, str]]:
    rules = rules_of(RuleSettings(identity=[*tables]))
    assert rules is not None
    return [(each.rule, each.effect) for each in rules.explain(arrival)]


PRESS = IdentityTable(name="press", fields=["/serial", "/n"])


def test_explanation_shows_the_key_and_the_treatment() -> None:
    arrival = make_arrival(1, data=b'{"serial": "p-7", "n": 4}')
    key = "the key is /serial = 'p-7', /n = 4: "
    once = "a second event with this key and content, at this gateway, is not stored again"
    assert explained(arrival, PRESS) == [("press", key + once)]
    marked = replace(PRESS, duplicates=Duplicates.MARK, shared=True)
    assert explained(arrival, marked)[0][1].endswith("from any gateway, is stored and marked")
    assert "within 3,600 s" in explained(arrival, replace(PRESS, window_s=3600))[0][1]
    assert explained(arrival, replace(PRESS, duplicates=Duplicates.NONE))[0][1].endswith("and are not compared")


def test_explanation_shows_what_an_event_lacks() -> None:
    lacking = make_arrival(1, data=b'{"n": null}')
    assert explained(lacking, PRESS, IdentityTable(name="timed", time=True)) == [
        ("press", "the event lacks /serial, /n: this rule gives it no identity"),
        ("timed", "the event lacks the device's time: this rule gives it no identity"),
    ]
    counter = IdentityTable(name="counter", counter="/n", counter_bits=8)
    assert explained(make_arrival(1, data=b'{"n": 256}'), counter)[0][1].startswith("the event lacks a count of 8 bits in /n")


def test_events_without_rules_have_no_explanation() -> None:
    for arrival in (make_arrival(device="lamp-2"), make_arrival(lane=Lane.REPLY)):
        assert explained(arrival, replace(PRESS, device="press-*")) == []
