"""One pass over Arrow batches, without Spark."""

from collections.abc import Callable

import pytest

from flows.record_batches import BATCH, batch_of, of_events
from fogline.events.event import Event
from fogline_cloud.flows.tables.schema import STORED
from fogline_cloud.flows.worker.parse import Plan, parse
from fogline_cloud.kafka import records

MakeEvent = Callable[..., Event]
PLAN = Plan(tenant="t", limit_s=60, parsers={})


def test_records_become_rows_in_their_order(make_event: MakeEvent) -> None:
    bodies = [b'{"t": 1, "x": "a"}', b"{", b"[]", b'{"t": 2}']
    (out,) = parse(PLAN, BATCH, iter([of_events([make_event(body) for body in bodies])]))
    assert out.schema.equals(STORED)
    rows = out.to_pylist()
    assert [(row["offset"], row["sequence"], row["outcome"]) for row in rows] == [
        (0, 1, "ok"),
        (1, 2, "dead"),
        (2, 3, "ok"),
        (3, 4, "ok"),
    ]
    assert [[(r["ordinal"], r["metric"], r["value"], r["text"]) for r in row["readings"]] for row in rows] == [
        [(0, "t", 1.0, None), (1, "x", None, "a")],
        [],
        [],
        [(0, "t", 2.0, None)],
    ]
    assert [row["data"] for row in rows] == [None, b"{", None, None]
    assert [row["size_bytes"] for row in rows] == [18, 1, 2, 8]
    assert {(row["tenant"], row["flow"], row["run"], row["batch"]) for row in rows} == {("t", "main", "uuid", 4)}


def test_a_slice_of_a_batch_is_read_as_a_slice(make_event: MakeEvent) -> None:
    whole = of_events([make_event(b"%d" % number) for number in range(6)])
    (out,) = parse(PLAN, BATCH, iter([whole.slice(2, 3)]))
    assert [row["sequence"] for row in out.to_pylist()] == [3, 4, 5]
    assert [row["readings"][0]["value"] for row in out.to_pylist()] == [2.0, 3.0, 4.0]


def test_records_without_headers_or_value_are_dead_letters() -> None:
    (out,) = parse(PLAN, BATCH, iter([batch_of([(None, b"x"), ([], None), ([("device_id", None)], b"y")])]))
    rows = out.to_pylist()
    assert [row["outcome"] for row in rows] == ["dead"] * 3
    assert [(row["data"], row["size_bytes"]) for row in rows] == [(b"x", 1), (None, 0), (b"y", 1)]


def test_a_foreign_record_is_named_by_its_kafka_position() -> None:
    (out,) = parse(PLAN, BATCH, iter([batch_of([([("device_id", b"d")], b"5"), ([("device_id", b"d")], b"6")])]))
    assert [(row["id"], row["outcome"]) for row in out.to_pylist()] == [("topic-3-0", "ok"), ("topic-3-1", "ok")]


def test_the_last_of_several_headers_with_one_name_counts(make_event: MakeEvent) -> None:
    headers = [*records.record_of(make_event()).headers, ("ce_subject", b"last")]
    (out,) = parse(PLAN, BATCH, iter([batch_of([(headers, b"1")])]))
    assert out.to_pylist()[0]["subject"] == "last"


@pytest.mark.parametrize("batches", [[], [[]]])
def test_no_records_give_no_rows(batches: list[list[tuple[list[tuple[str, bytes | None]], bytes]]]) -> None:
    assert sum(out.num_rows for out in parse(PLAN, BATCH, map(batch_of, batches))) == 0


def test_text_that_is_not_utf8_never_reaches_a_table(make_event: MakeEvent) -> None:
    (out,) = parse(PLAN, BATCH, iter([of_events([make_event(b'"\\ud800"'), make_event(b'{"\\udc00": 1}')])]))
    assert [(row["outcome"], row["reason"]) for row in out.to_pylist()] == [("dead", "not-understood")] * 2
