"""The exporter with a real collector, and without one: whoever exports never waits, and memory is bounded."""

import asyncio
import logging
import socket

import pytest

from fogline.process.checkup import Grade
from fogline.tracing import exporter
from fogline.tracing.activation import read_tracing, tracing
from fogline.tracing.collector import check_collector
from fogline.tracing.exporter import MAX_SPANS, SpanExporter
from fogline.tracing.settings import TracingSettings
from shared.tracing.example_spans import span
from trace_collector import TraceCollector


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(exporter, "GATHER_S", 0.01)
    monkeypatch.setattr(exporter, "PAUSES_S", (0.01,))


@pytest.fixture
def make():
    """Exporters that are closed at the end."""
    made = []

    def make(url):
        made.append(SpanExporter(TracingSettings(endpoint=url), {"service.name": "test"}))
        return made[-1]

    yield make
    for each in made:
        each.close()


def warnings(caplog):
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


def test_spans_arrive_in_requests_of_bounded_size(make):
    with TraceCollector() as collector:
        make(collector.url).export([span(number) for number in range(1, 1201)])
        collector.until(lambda: len(collector.spans) == 1200, "spans are missing")
        assert [each.attributes["fogline.sequence"] for each in collector.spans] == list(range(1, 1201))
        assert collector.requests == 3


def test_a_collector_that_is_away_is_named_once_and_gets_the_newest_spans_when_it_comes(make, caplog):
    caplog.set_level(logging.INFO)
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    exporting = make(f"http://127.0.0.1:{port}/v1/traces")
    for number in range(1, 3 * MAX_SPANS + 1):
        exporting.export([span(number)])
    assert len(exporting._spans) <= MAX_SPANS
    with TraceCollector(port) as collector:
        newest = 3 * MAX_SPANS
        collector.until(
            lambda: any(each.attributes["fogline.sequence"] == newest for each in collector.spans), "not the newest"
        )
        exporting.export([span(newest + 1)])
        collector.until(lambda: collector.spans[-1].attributes["fogline.sequence"] == newest + 1, "nothing more comes")
        # By their ids: a request that took too long for its answer is sent again.
        assert len({each.span.span_id for each in collector.spans}) + exporting.dropped == newest + 1
    (warning,) = warnings(caplog)
    assert f"127.0.0.1:{port} does not take spans: Connection refused. Check [tracing] endpoint" in warning
    assert "takes spans again" in caplog.text


def test_an_overloaded_collector_gets_the_same_spans_again(make, caplog):
    with TraceCollector() as collector:
        collector.status = 503
        exporting = make(collector.url)
        exporting.export([span(1)])
        collector.until(lambda: collector.requests >= 2, "it does not try again")
        collector.status = 200
        collector.until(lambda: collector.spans, "it does not arrive")
        assert exporting.dropped == 0
    assert ["503" in each for each in warnings(caplog)] == [True]


def test_spans_that_the_collector_refuses_are_dropped_and_later_ones_arrive(make, caplog):
    with TraceCollector() as collector:
        collector.status = 400
        exporting = make(collector.url)
        exporting.export([span(1)])
        collector.until(lambda: collector.requests == 1, "nothing comes")
        collector.status = 200
        exporting.export([span(2)])
        collector.until(lambda: collector.spans, "the second does not arrive")
        assert ([each.attributes["fogline.sequence"] for each in collector.spans], exporting.dropped) == ([2], 1)
    assert ["400 Bad Request" in each for each in warnings(caplog)] == [True]


def test_waiting_spans_are_exported_at_the_end(make, monkeypatch):
    monkeypatch.setattr(exporter, "GATHER_S", 60.0)
    with TraceCollector() as collector:
        exporting = make(collector.url)
        exporting.export([span(1)])
        exporting.close()
        assert len(collector.spans) == 1


def test_the_end_does_not_wait_for_a_collector_that_is_silent(make, monkeypatch, caplog):
    monkeypatch.setattr(exporter, "CLOSE_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        exporting = make(f"http://127.0.0.1:{silent.getsockname()[1]}/v1/traces")
        exporting.export([span(1), span(2)])
        connection, _ = silent.accept()
        with connection:
            exporting.close()
            assert exporting._thread.is_alive(), "it had an answer"
    exporting._thread.join(60)


def test_the_doctor_asks_the_collector():
    with TraceCollector() as collector:
        (found,) = check_collector(TracingSettings(endpoint=collector.url))
        assert (found.grade, found.text) == (Grade.OK, f"the trace collector at 127.0.0.1:{collector.port} takes spans")
        collector.status = 404
        (found,) = check_collector(TracingSettings(endpoint=collector.url))
        assert (found.grade, "it answers 404 Not Found" in found.text) == (Grade.WARN, True)
    (found,) = check_collector(TracingSettings(endpoint=collector.url))
    assert (found.grade, "Connection refused" in found.text) == (Grade.WARN, True)


async def test_dropped_spans_are_a_metric_of_a_process_that_exports():
    def dropped():
        return [each.value for each in read_tracing()]

    assert dropped() == []
    with TraceCollector() as collector:
        collector.status = 400
        with tracing(TracingSettings(endpoint=collector.url), "test", tenant="acme", instance="one") as export:
            assert dropped() == [0]
            export([span(1), span(2)])
            async with asyncio.timeout(60):
                while dropped() != [2]:  # noqa: ASYNC110 - the exporter's thread gives no event
                    await asyncio.sleep(0.01)
    assert dropped() == []
