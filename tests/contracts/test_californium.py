"""Eclipse Californium sends events over DTLS, and its session goes on at another address."""

import asyncio

import pytest

from contracts.foreign.californium import californium
from contracts.foreign.java import java
from edge.coap.dtls_talk import KEY
from edge.coap.dtls_wire import secured, store_of
from fogline_lab.amqp import within
from fogline_lab.port import MemoryPort
from fogline_lab.udp_line import DatagramFaults, udp_line

NO_CID, ONE_WAY, BOTH_WAYS = None, 0, 6
SUITES = ["TLS_PSK_WITH_AES_128_CCM_8", "TLS_ECDHE_PSK_WITH_AES_128_CCM_8_SHA256", "TLS_ECDHE_PSK_WITH_AES_128_GCM_SHA256"]


@pytest.fixture(scope="module")
def jvm():
    with java("californium") as classes:
        yield classes


async def put(client, path, payload):
    return await within(asyncio.to_thread(client.put, path, payload), "Californium does not come back", 90)


@pytest.mark.parametrize("suite", SUITES)
async def test_californium_sends_an_event_with_its_key(jvm, suite):
    port = MemoryPort()
    async with secured(port, store_of("lamp-1")) as listener:
        with californium(jvm, listener.addresses["coaps"], "lamp-1", KEY, cid_bytes=NO_CID, suites=(suite,)) as client:
            assert await put(client, "t", '{"on":true}') == "2.04"
            assert await put(client, "telemetry/acme/lamp-2", "{}") == "4.03"
            assert await asyncio.to_thread(lambda: client.suite) == suite
    assert [(each.device, each.data) for each in port.arrivals] == [("lamp-1", b'{"on":true}')]


@pytest.mark.parametrize("cid_bytes", [ONE_WAY, BOTH_WAYS])
async def test_californium_with_a_connection_id_goes_on_at_another_address(jvm, cid_bytes):
    port = MemoryPort()
    async with secured(port, store_of("lamp-1")) as listener, udp_line(listener.addresses["coaps"], DatagramFaults()) as nat:
        with californium(jvm, nat.address, "lamp-1", KEY, cid_bytes=cid_bytes) as client:
            for number in range(3):
                assert await put(client, "t", str(number)) == "2.04"
                nat.rebind()
        counters = listener.dtls_counters
        assert counters is not None
        assert (counters.handshakes, counters.moved) == (1, 2)
    assert [each.data for each in port.arrivals] == [b"0", b"1", b"2"]


async def test_californium_with_another_key_is_refused(jvm):
    port = MemoryPort()
    async with secured(port, store_of("lamp-1")) as listener:
        with californium(jvm, listener.addresses["coaps"], "lamp-1", KEY[::-1], cid_bytes=BOTH_WAYS) as client:
            assert "2.04" not in await put(client, "t", "1")
        counters = listener.dtls_counters
        assert counters is not None
        assert counters.refused == {"wrong-key": 1}
    assert port.arrivals == []
