"""One value that a parser does not understand, or the table cannot hold, costs no other value of its event: every parser."""

import json
from collections.abc import Callable, Sequence

import cbor2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fogline.events.event import Event
from fogline_cloud.flows.parsers import installed
from fogline_cloud.flows.sandbox.parser_runner import ParserRunner
from fogline_cloud.flows.sandbox.time_limit import TimeLimit
from fogline_cloud.flows.tables.schema import EventOutcome

MakeEvent = Callable[..., Event]
LONG = "x" * 65_537

ODD_JSON = [
    "NaN", "-Infinity", "1e999", "9" * 400, "9" * 5000, '1, "odd": 2', '{"a": 1, "a": 2}', '"\\ud800"', f'"{LONG}"',
    "[" * 40 + "]" * 40, '{"' + "n" * 1100 + '": 1}', "[null, NaN]",
]  # fmt: skip
ODD_CBOR = [
    "f97e00", "f97c00", "c201", "c1f6", "f0", "62ffff", "a2 01 01 01 02", "01 636f6464 02", "d8236161",
    "7a00010001" + "78" * 65_537, "81" * 40 + "01", "a1 f6 01",
]  # fmt: skip
ODD_SENML = [
    '{"n": "x", "v": NaN}', '{"n": "x", "v": 1, "v": 2}', "1", '{"n": "x"}', '{"n": "x", "vs": 5}', '{"n": "a b", "v": 1}',
    f'{{"n": "x", "vs": "{LONG}"}}', '{"n": "x", "v": 1, "t": 1e30}', '{"n": "x", "v": ' + "9" * 5000 + "}",
    '{"n": "x", "v": 1, "u": "' + "u" * 65 + '"}',
]  # fmt: skip
ODD_ROWS = [f"{LONG},{LONG}", '"1"x,2', "1", "1,2,3", "1;2,3", f'"{"y" * 200_000}",\ud800']


def _json(values: Sequence[float], odd: str | None, at: int) -> bytes:
    members = [f'"m{index}": {json.dumps(value)}' for index, value in enumerate(values)]
    if odd is not None:
        members.insert(at, f'"odd": {odd}')
    return ("{" + ", ".join(members) + "}").encode()


def _cbor(values: Sequence[float], odd: str | None, at: int) -> bytes:
    members = [cbor2.dumps(f"m{index}") + cbor2.dumps(value) for index, value in enumerate(values)]
    if odd is not None:
        members.insert(at, b"\x63odd" + bytes.fromhex(odd))
    return b"\xbf" + b"".join(members) + b"\xff"


def _senml(values: Sequence[float], odd: str | None, at: int) -> bytes:
    records = [json.dumps({"n": f"m{index}", "v": value}) for index, value in enumerate(values)]
    if odd is not None:
        records.insert(at, odd)
    return f"[{', '.join(records)}]".encode()


def _senml_cbor(values: Sequence[float], odd: str | None, at: int) -> bytes:
    records = [cbor2.dumps({0: f"m{index}", 2: value}) for index, value in enumerate(values)]
    if odd is not None:
        records.insert(at, b"\xbf\x00\x61x\x02\xf9\x4d\x60\x63odd" + bytes.fromhex(odd) + b"\x02\x01\xff")  # the value twice
    return b"\x9f" + b"".join(records) + b"\xff"


def _rows(values: Sequence[float], odd: str | None, at: int) -> bytes:
    rows = [f"{value!r},1" for value in values]
    if odd is not None:
        rows.insert(at, odd)
    return "\r\n".join(["a,b", *rows]).encode(errors="surrogatepass")


FORMS = {
    "json": (_json, ODD_JSON, "application/json", "telemetry"),
    "tasmota": (_json, ODD_JSON, "application/json", "tele/plug/SENSOR"),
    "zigbee2mqtt": (_json, ODD_JSON, "application/json", "zigbee2mqtt/lamp"),
    "cbor": (_cbor, ODD_CBOR, "application/cbor", "telemetry"),
    "senml": (_senml, ODD_SENML, "application/senml+json", "telemetry"),
    "senml-cbor": (_senml_cbor, ODD_CBOR, "application/senml+cbor", "telemetry"),
    "csv": (_rows, ODD_ROWS, "text/csv; header=present", "telemetry"),
}


@pytest.mark.fault("D8")
@pytest.mark.parametrize(
    ("name", "odd"), [(name, odd) for name, form in FORMS.items() for odd in form[1]], ids=lambda value: value[:24]
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=10)
@given(values=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=6), at=st.integers(0, 6))
def test_one_odd_value_costs_none_of_its_siblings(
    make_event: MakeEvent, name: str, odd: str, values: list[float], at: int
) -> None:
    render, _, content_type, subject = FORMS[name]

    def readings(odd: str | None) -> list[tuple[str, float | None]]:
        event = make_event(render(values, odd, at), content_type=content_type, subject=subject)
        with TimeLimit(60) as limit:
            found = ParserRunner(installed(), limit).run(name, event).readings
        return [each[1:3] for each in found if each[1].startswith("m") or name == "csv"]

    siblings = readings(odd)
    if name == "csv":  # what an odd row itself gives has no name of its own
        assert set(readings(None)) <= set(siblings)
    else:
        assert siblings == readings(None)


@pytest.mark.parametrize("name", FORMS)
def test_values_up_to_the_limit_are_kept_and_those_after_it_named(make_event: MakeEvent, name: str) -> None:
    render, _, content_type, subject = FORMS[name]
    event = make_event(render([float(number) for number in range(1200)], None, 0), content_type=content_type, subject=subject)
    with TimeLimit(60) as limit:
        some = ParserRunner(installed(), limit).run(name, event)
        every = ParserRunner(installed(), limit, 2400).run(name, event)
    assert some.outcome is every.outcome is EventOutcome.OK
    assert len(every.readings) == (2400 if name == "csv" else 1200)
    assert some.readings == every.readings[:1000]
    assert some.detail == "not understood: values after the first 1000 ([flow] max_readings = 1000)"
    assert every.detail is None
