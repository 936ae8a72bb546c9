"""A gateway that says hello again and again and takes no answer: its connection is closed."""

import uuid

import pytest

from fogline import address
from fogline.amqp.driver import connect
from fogline.amqp.engine import Engine
from fogline.amqp.scheduler import Share
from fogline.gateway import hello
from fogline.message import Message
from fogline_cloud.bridge.gateways.gateways import MAX_UNSETTLED_WELCOMES
from fogline_lab.amqp import End, within
from fogline_lab.events import BEACON
from fogline_lab.line.line import serving


@pytest.mark.fault("N8")
@pytest.mark.parametrize("credit", [0, 1000], ids=["no credit", "nothing is settled"])
async def test_answers_to_hello_that_are_not_settled_end_the_connection(line, credit):
    """Each answer took memory at the bridge for as long as the connection lasted."""
    name = "gw-1"
    asked = hello.Hello(protocol=hello.PROTOCOL, version="1", gateway=name, beacon=BEACON, streams=[])
    async with serving(line) as bridge:
        peer = End(answer=lambda _: None)
        properties = {"tenant": line.tenant, "product": hello.PRODUCT}
        connection = await connect("127.0.0.1", line.port, Engine(name, properties=properties), peer)
        await within(peer.is_open.wait(), "the connection did not open")
        session, here = connection.open_session(), str(address.Control(line.tenant, name))
        connection.open_receiver(session, "control", here, credit=credit)
        sender = connection.open_sender(session, "hello", str(address.HelloAddress(line.tenant)), Share(), {})
        for number in range(5 * MAX_UNSETTLED_WELCOMES):
            message = Message(body=hello.encode_hello(asked), reply_to=here, correlation_id=uuid.UUID(int=number))
            sender.send(message)
        await within(peer.is_closed.wait(), "the connection is not closed")
        assert f"{MAX_UNSETTLED_WELCOMES} replies to hello are not settled" in peer.why
        assert len(bridge.listener.peers) == 0
