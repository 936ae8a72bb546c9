import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flows.record_batches import BATCH, of_events
from fogline.errors import Misconfigured
from fogline.events.event import Event
from fogline_cloud.flows.worker.parse import Plan, parse
from fogline_cloud.flows.worker.parser_choice import checked_rules, chooser
from fogline_cloud.settings import ParserRuleSettings, load

MakeEvent = Callable[..., Event]
INSTALLED = ["json", "raw-number", "senml"]


def rule(parser: str = "senml", **patterns: Any) -> ParserRuleSettings:
    return ParserRuleSettings(parser=parser, **patterns)


@pytest.mark.parametrize(
    ("pattern", "fits", "other"),
    [
        ({"subject": "tele/*/SENSOR"}, {"subject": "tele/plug-1/SENSOR"}, {"subject": "tele/plug-1/STATE"}),
        ({"device": "press-[12]"}, {"device": "press-2"}, {"device": "press-3"}),
        ({"type": "availability"}, {"type": "availability"}, {"type": "alarm"}),
        ({"adapter": "mqtt*"}, {"adapter": "mqtt-client"}, {"adapter": "coap"}),
        (
            {"content_type": "application/*+json"},
            {"content_type": "Application/vnd.ACME+json; v=1"},
            {"content_type": "application/json"},
        ),
        (
            {"properties": {"firmware": "1.[0-3].*"}},
            {"properties": "a=b&firmware=1.2.7"},
            {"properties": "firmware=1.4.0"},
        ),
        ({"properties": {"firmware": "*"}}, {"properties": "firmware=9"}, {}),
    ],
)
def test_a_rule_chooses_by_each_attribute(
    make_event: MakeEvent, pattern: dict[str, Any], fits: dict[str, str], other: dict[str, str]
) -> None:
    choose = chooser({}, [rule(**pattern)])
    assert choose(make_event(**fits)) == "senml"
    assert choose(make_event(**other)) == "json"


def test_all_patterns_of_a_rule_must_fit_and_the_first_rule_that_fits_applies(make_event: MakeEvent) -> None:
    choose = chooser({"application/json": "raw-number"}, [rule(device="a*", subject="x"), rule("json", device="ab")])
    assert choose(make_event(device="ab", subject="x")) == "senml"
    assert choose(make_event(device="ab", subject="y")) == "json"
    assert choose(make_event(device="b", subject="x")) == "raw-number"


def test_an_event_that_no_rule_fits_keeps_the_choice_by_content_type(make_event: MakeEvent) -> None:
    choose = chooser({}, [rule(device="other")])
    assert choose(make_event(content_type="text/plain")) == "raw-number"
    assert choose(make_event(content_type="image/png")) is None


def test_old_firmware_keeps_its_parser(make_event: MakeEvent) -> None:
    rules = (rule("raw-number", device="meter-*", properties={"firmware": "1.*"}), rule("json", device="meter-*"))
    events = [make_event(b"7", device="meter-1", properties=f"firmware={version}") for version in ("1.9", "2.0")]
    plan = pickle.loads(pickle.dumps(Plan(tenant="t", limit_s=60, parsers={}, rules=rules)))  # as Spark sends it to workers
    (rows,) = parse(plan, BATCH, iter([of_events(events)]))
    assert rows.column("parser").to_pylist() == ["raw-number", "json"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (rule("csvv", subject="x"), r'entry 2 \(parser = "csvv"\): no such parser is installed \(installed: json, '),
        (rule("json"), r'entry 2 \(parser = "json"\) fits every event: give it at least one of content_type, '),
    ],
)
def test_a_wrong_rule_is_named(wrong: ParserRuleSettings, message: str) -> None:
    with pytest.raises(Misconfigured, match=message):
        checked_rules([rule(subject="a"), wrong], INSTALLED)


def test_rules_are_read_from_the_settings_file(folder: Path) -> None:
    path = folder / "cloud.toml"
    path.write_text(
        'tenant = "t"\n[kafka]\n"bootstrap.servers" = "127.0.0.1:1"\n[[flow.parser_rules]]\nparser = "json"\n'
        'subject = "tele/*"\nproperties = { firmware = "1.*" }\n'
    )
    (found,) = checked_rules(load(path).flow.parser_rules, INSTALLED)
    assert (found.subject, found.properties) == ("tele/*", {"firmware": "1.*"})
