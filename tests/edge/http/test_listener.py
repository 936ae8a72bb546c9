"""The listener over TCP, seen by a client made of bytes."""

import json

import pytest

from edge.http.client import request
from fogline.errors import Misconfigured
from fogline.events.event import EMPTY_NOTIFICATION, Lane
from fogline.events.identity import UniqueId
from fogline.process.rates import DeviceRates
from fogline_edge.adapters.http.listener import HttpListener
from fogline_edge.adapters.http.request_handler import COMMIT_S
from fogline_edge.settings import HttpSettings, PathSettings
from fogline_lab.clock import pass_time
from fogline_lab.port import MemoryPort


@pytest.mark.fault("C11")
async def test_202_comes_after_the_commit(listening, dial):
    port = MemoryPort()
    port.hold()
    async with listening(port) as listener, dial(listener) as talker, dial(listener) as other:
        talker.send(request(body=b"21.5"))
        await port.until(lambda: port.waiting == 1, "it is put")
        assert (await other.ask(request("/nowhere"))).status == 404
        port.release()
        response = await talker.receive()
    assert (response.status, response.body) == (202, b"")
    (arrival,) = port.arrivals
    assert (arrival.device, arrival.channel, arrival.lane, arrival.data, arrival.adapter) == (
        "d1",
        "telemetry/acme/d1",
        Lane.TELEMETRY,
        b"21.5",
        "http",
    )


async def test_requests_of_one_connection_are_served_in_order(listening, dial):
    port = MemoryPort()
    async with listening(port) as listener, dial(listener) as talker:
        talker.send(*(request("/e//d1", b"%d" % number, "POST") for number in range(300)))
        assert [(await talker.receive()).status for _ in range(300)] == [202] * 300
    assert [each.data for each in port.arrivals] == [b"%d" % number for number in range(300)]
    assert {each.lane for each in port.arrivals} == {Lane.ALARM}


async def test_a_chunked_body_and_100_continue(listening, dial):
    port = MemoryPort()
    head = b"POST /t//d1 HTTP/1.1\r\nhost: gw\r\ntransfer-encoding: chunked\r\nexpect: 100-continue\r\n\r\n"
    async with listening(port) as listener, dial(listener) as talker:
        talker.send(head)
        assert await talker.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 \r\n\r\n"
        assert (await talker.ask(b"3\r\nabc\r\n2;more=1\r\nde\r\n0\r\n\r\n")).status == 202
    assert port.arrivals[0].data == b"abcde"


async def test_a_client_that_closes_its_side_gets_its_response(listening, dial):
    port = MemoryPort()
    async with listening(port) as listener, dial(listener) as talker:
        talker.send(request())
        talker.writer.write_eof()
        assert (await talker.receive()).status == 202
        assert await talker.closed() == b""


async def test_a_client_that_leaves_before_the_commit_does_not_disturb(listening, dial):
    port = MemoryPort()
    port.hold()
    async with listening(port) as listener:
        async with dial(listener) as talker:
            talker.send(request())
            await port.until(lambda: port.waiting == 1, "it is put")
        port.release()
        async with dial(listener) as talker:
            assert (await talker.ask(request())).status == 202
    assert len(port.arrivals) == 2


@pytest.mark.parametrize(
    ("sent", "status", "reason"),
    [
        (request("/nowhere"), 404, "bad-path"),
        (request("/"), 404, "bad-path"),
        (request("/telemetry", method="POST"), 400, "no-device"),
        (request("/t/other/d1"), 403, "foreign-tenant"),
        (request("/t//"), 400, "bad-identifier"),
        (request("/t//%FF"), 400, "bad-target"),
        (request("/t//d1?" + "a=1&" * 65), 400, "bad-target"),
        (request("/t//d1?a=" + "x" * 5000), 400, "long-query"),
        (request(body=b""), 400, "no-payload"),
        (request("/t//d1?hono-ttl=soon"), 400, "bad-seconds"),
        (request(method="GET", body=b""), 405, "bad-method"),
        (request(method="DELETE", body=b""), 405, "bad-method"),
        (request("gw:80", method="CONNECT", body=b""), 400, "bad-target"),
        (request(content_type="text plain"), 400, "bad-content-type"),
        (request(content_type="application/vnd.fogline-gap+json"), 400, "reserved-content-type"),
        (request(content_encoding="gzip"), 415, "bad-encoding"),
        (request(content_type="application/cloudevents-batch+json"), 415, "no-batch"),
        (request(content_type="application/cloudevents+json", body=b"{}"), 400, "bad-cloudevent"),
        (request(content_type="application/cloudevents+json", body=b"[" * 100_000), 400, "bad-cloudevent"),
        (request(idempotency_key="x" * 257), 400, "bad-id"),
        (request("/command/res/C-1?hono-cmd-status=200"), 400, "no-device"),
        (request("/command/res//d1/C-1?hono-cmd-status=200"), 404, "no-command"),
        (b"rubbish\r\n\r\n", 400, "malformed"),
        (b"PUT /t//d1 HTTP/1.1\r\n\r\n", 400, "malformed"),
        (b"PUT /t//d1 HTTP/1.1\r\nhost: gw\r\ncontent-length: many\r\n\r\n", 400, "malformed"),
        (b"PUT /t//d1 HTTP/1.1\r\nhost: gw\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", 400, "malformed"),
    ],
    ids=str,
)
async def test_refused_request_gets_a_problem_with_its_status(listening, dial, sent, status, reason):
    port = MemoryPort()
    async with listening(port) as listener, dial(listener) as talker:
        response = await talker.ask(sent)
        assert response.status == status
        assert response.headers["content-type"] == "application/problem+json"
        document = json.loads(response.body)
        assert (document["status"], document["title"], document["type"]) == (status, reason, "about:blank")
        assert document["detail"]
        assert listener.counters.refused == {reason: 1}
    assert port.arrivals == []


@pytest.mark.parametrize("path", ["/t//d1", "*"])
async def test_head_has_no_body(listening, dial, path):
    async with listening(MemoryPort()) as listener, dial(listener) as talker:
        talker.send(request(path, method="HEAD", body=b""))
        assert (await talker.closed()).endswith(b"connection: close\r\n\r\n")


@pytest.mark.fault("C10")
async def test_a_full_port_is_503_with_a_time_to_wait(listening, dial):
    port = MemoryPort(capacity=1)
    port.hold()
    async with listening(port) as listener, dial(listener) as talker, dial(listener) as other:
        talker.send(request())
        await port.until(lambda: port.waiting == 1, "it is put")
        response = await other.ask(request())
        assert (response.status, response.headers["retry-after"]) == (503, "5")
        port.release()
        assert (await talker.receive()).status == 202
        assert (await other.ask(request())).status == 202
        assert listener.counters.slowed == 1
    assert len(port.arrivals) == 2


@pytest.mark.fault("C10")
async def test_a_commit_that_does_not_come_is_503_and_the_next_request_is_served(listening, dial):
    port = MemoryPort()
    port.hold()
    async with listening(port) as listener, dial(listener) as talker:
        talker.send(request(body=b"1"))
        await port.until(lambda: port.waiting == 1, "it is put")
        pass_time(COMMIT_S)
        response = await talker.receive()
        assert (response.status, response.headers["retry-after"]) == (503, "30")
        port.release()
        assert (await talker.ask(request(body=b"2"))).status == 202
    assert [each.data for each in port.arrivals] == [b"1", b"2"]


async def test_a_device_that_is_too_fast_is_429(listening, dial):
    port = MemoryPort()
    async with listening(port, rates=DeviceRates(0.001, 1)) as listener, dial(listener) as talker:
        assert (await talker.ask(request())).status == 202
        response = await talker.ask(request())
        assert (response.status, response.headers["retry-after"]) == (429, "1")
        assert (await talker.ask(request("/t//d2"))).status == 202
        assert listener.counters.limited == 1


async def test_event_fields_of_a_request(listening, dial):
    port = MemoryPort()
    paths = [PathSettings(path="plant/{device}/#", lane="bulk", type="log", content_type="text/csv")]
    async with listening(port, paths=paths) as listener, dial(listener) as talker:
        for each in (
            request(
                "/event//d1?hono-ttl=60&room=a%20b",
                b"{}",
                idempotency_key="k1",
                ce_time="2026-01-02T03:04:05Z",
                traceparent="00-1-2-01",
            ),
            request("http://gw/plant/d2/x", b"1,2"),
            request("/t//K%C3%BCche%20", b"", content_type=EMPTY_NOTIFICATION),
            request("/t//d1", b"", content_type=EMPTY_NOTIFICATION, hono_ttl="9"),
        ):
            assert (await talker.ask(each)).status == 202
    first, second, third, fourth = port.arrivals
    assert (first.evidence, first.expiry_s, first.properties, first.content_type) == (
        UniqueId(b"k1"),
        60,
        "room=a+b&traceparent=00-1-2-01",
        "application/json",
    )
    assert first.time_ns == 1_767_323_045_000_000_000
    assert (second.device, second.lane, second.type, second.content_type) == ("d2", Lane.BULK, "log", "text/csv")
    assert (third.device, third.content_type) == ("K:C3:BCche:20", EMPTY_NOTIFICATION)
    assert fourth.expiry_s == 9


async def test_an_address_in_use_is_named(listening):
    async with listening(MemoryPort()) as listener:
        other = HttpListener(MemoryPort(), HttpSettings(port=listener.addresses["http"][1]), DeviceRates(1, 1))
        with pytest.raises(Misconfigured, match=r"http: cannot listen on .*set another http\.port"):
            await other.start()
        await other.close()


async def test_uncommitted_request_is_not_answered_at_shutdown(listening, dial):
    port = MemoryPort()
    port.hold()
    async with listening(port) as listener, dial(listener) as talker, dial(listener) as idle:
        assert (await idle.ask(request("/t//d1?hono-ttl=x"))).status == 400
        talker.send(request())
        await port.until(lambda: port.waiting == 1, "it is put")
        await listener.close()
        with pytest.raises(ConnectionResetError):
            await talker.receive()
    port.release()
