"""One endpoint lies and another is honest: whatever the liar sends, the honest one's requests are stored and answered."""

import pytest

from edge.coap.client import block1, request
from fogline_edge.adapters.coap.wire import CoapMessage, Code, MessageType, Option, encode
from fogline_lab.commands import MemoryCommands
from fogline_lab.port import MemoryPort
from fogline_lab.waiting import eventually

LIES = {
    "garbage": [bytes(range(256)) * 4],
    "empty datagrams": [b"", b"\x40", b"\x40\x00\x00"],
    "a token that is too long": [b"\x4f\x03\x00\x01" + b"t" * 15],
    "an option that is cut": [b"\x40\x03\x00\x01\xbd"],
    "more options than there may be": [encode(request())[:4] + b"\x00" * 100],
    "a path that is no UTF-8": [CoapMessage(MessageType.CON, Code.PUT, 1, b"", ((Option.URI_PATH, b"\xff\xfe"),), b"x")],
    "a query that is no UTF-8": [request(options=[(Option.URI_QUERY, b"\xff=\xfe")])],
    "a name that is none": [request("t//" + "x" * 200)],
    "a critical option that is unknown": [request(options=[(65_001, b"x" * 200)])],
    "a proxy": [request(options=[(Option.PROXY_URI, b"coap://127.0.0.1/")])],
    "a block that is not as long as it says": [request(payload=b"x" * 100, options=[block1(0, more=True)])],
    "blocks without a beginning": [
        request(payload=b"x" * 16, mid=each, options=[block1(each, more=True)]) for each in range(9)
    ],
    "bodies that are never finished": [
        request(f"t//l{each}", b"x" * 16, mid=each, options=[block1(0, more=True)]) for each in range(200)
    ],
    "a body that says it is huge": [request(options=[(Option.SIZE1, b"\xff\xff\xff\xff")])],
    "a ttd that is no number": [request(query=["hono-ttd=" + "9" * 200])],
    "asks of the honest device's name": [request("t//honest", mid=each, query=["hono-ttd=60"]) for each in range(20)],
    "an answer to a command that is none": [request("command_response//honest/CMD-1", query=["hono-cmd-status=200"])],
    "acknowledgements and resets of nothing": [
        CoapMessage(kind, 0, each) for kind in (MessageType.ACK, MessageType.RST) for each in range(500)
    ],
    "responses that nobody asked for": [CoapMessage(MessageType.CON, Code.CHANGED, each, b"t") for each in range(500)],
    "one message id for everything": [request(payload=b"%d" % each, mid=1) for each in range(50)],
    "more than its share": [request(payload=b"%d" % each, mid=each) for each in range(500)],
}


@pytest.mark.fault("N8")
@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
async def test_messages_of_one_endpoint_never_block_another(listening, dial, lie):
    port, commands = MemoryPort(), MemoryCommands()
    async with listening(port, commands, endpoint_rate_s=100, endpoint_burst=100) as listener:
        with dial(listener) as honest, dial(listener) as liar:
            for mid, when in enumerate((b"before", b"beside", b"after"), start=1):
                if when == b"beside":
                    liar.send(*lie)
                answer = await honest.ask(request("telemetry//honest", when, mid))
                assert (answer.kind, answer.code, answer.mid) == (MessageType.ACK, Code.CHANGED, mid)
            await eventually(lambda: listener.counters.datagrams >= 3, "all is read")
            await honest.alive()
    honest_ones = (b"before", b"beside", b"after")
    assert tuple(each.data for each in port.arrivals if each.data in honest_ones) == honest_ones


@pytest.mark.fault("N8")
async def test_a_liar_under_the_honest_devices_message_ids_and_token_takes_nothing_away(listening, dial):
    """The same message id, token and payload from another endpoint is another message."""
    port = MemoryPort()
    async with listening(port) as listener:
        with dial(listener) as honest, dial(listener) as liar:
            for mid in range(10):
                message = request("telemetry//honest", b"same", mid)
                assert (await liar.ask(message)).code == Code.CHANGED
                assert (await honest.ask(message)).code == Code.CHANGED
    assert len(port.arrivals) == 20
