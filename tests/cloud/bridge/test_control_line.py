"""A bridge's signed messages to one gateway behind a router or a broker, and that gateway as if it had a connection."""

import asyncio
from dataclasses import dataclass, field

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from fogline.amqp.events import Delivery, Link
from fogline.amqp.outcome import ACCEPTED, RELEASED, RESOURCE_LIMIT, Condition, Outcome, rejected
from fogline.errors import Unreachable
from fogline.events.event import Lane
from fogline.gateway.message_signature import GatewayName, MessageSigner, SignedKind
from fogline.gateway.settlement import LANE_CREDIT, SignedOutcomes, decode_settlement, numbered
from fogline.gateway.signed_session import NUMBER, SignedIntake
from fogline.message import Message
from fogline_cloud.bridge.via.control_line import RESEND_S, BridgeSignature, ControlLine
from fogline_cloud.bridge.via.signed_gateway import SignedGateway
from fogline_lab.waiting import until

NAME = GatewayName("acme", "gw-1")
KEY = ec.generate_private_key(ec.SECP256R1())


@dataclass
class ControlLink:
    """The link to a gateway: keeps what is sent, with the futures that a router would complete."""

    sent: list[tuple[Message, "asyncio.Future[Outcome]"]] = field(default_factory=list)

    def send(self, message: Message) -> "asyncio.Future[Outcome]":
        future = asyncio.get_running_loop().create_future()
        self.sent.append((message, future))
        return future

    def reports(self) -> list[SignedOutcomes]:
        return [decode_settlement(each) for each, _ in self.sent if each.content_type is not None]


@dataclass
class Via:
    """A router: keeps the outcomes of messages that have come."""

    settled: list[Outcome] = field(default_factory=list)

    def settle(self, _: Delivery, outcome: Outcome = ACCEPTED) -> None:
        self.settled.append(outcome)


def control(link: ControlLink | None) -> ControlLine:
    return ControlLine(NAME, "E1", BridgeSignature(MessageSigner(KEY), b"certificate"), lambda: link)


async def test_only_an_outcome_that_the_gateway_has_signed_ends_a_command():
    link = ControlLink()
    line = control(link)
    future = line.send(Message(subject="switch"))
    message, passed = link.sent[0]
    assert SignedIntake(NAME, "E1", KEY.public_key()).doubt(SignedKind.CONTROL, message) is None
    passed.set_result(ACCEPTED)
    await asyncio.sleep(0)
    assert not future.done(), "a broker has stored it"
    line.settled([numbered(message.properties[NUMBER], RELEASED)])
    assert future.result() == RELEASED
    assert not line.take_lost()


@pytest.mark.parametrize("passed", [RELEASED, rejected("amqp:not-found", "no route")])
async def test_a_command_that_a_router_did_not_pass_on_is_unknown_and_is_sent_again(passed):
    """A router's `released` does not end it, although a gateway's does: the device is not connected then."""
    link = ControlLink()
    line = control(link)
    future = line.send(Message(subject="switch"))
    link.sent[0][1].set_result(passed)
    await asyncio.sleep(0)
    with pytest.raises(Unreachable):
        future.result()
    assert (line.take_lost(), line.take_lost()) == (True, False)


async def test_a_command_without_a_connection_or_without_an_outcome_for_long_is_sent_again(monkeypatch):
    away = control(None)
    with pytest.raises(Unreachable):
        await away.send(Message(subject="switch"))
    assert away.take_lost()
    line = control(ControlLink())
    future = line.send(Message(subject="switch"))
    assert not line.take_lost()
    now_s = asyncio.get_running_loop().time()
    monkeypatch.setattr(line._loop, "time", lambda: now_s + RESEND_S + 1, raising=False)
    assert line.take_lost()
    with pytest.raises(Unreachable):
        future.result()


async def test_outcomes_of_one_moment_share_a_message_and_one_message_is_under_way_at_a_time():
    link = ControlLink()
    line = control(link)
    for number in (1, 2, 3):
        line.settle(number, ACCEPTED)
    await asyncio.sleep(0)
    line.settle(4, ACCEPTED)
    await asyncio.sleep(0)
    assert [[each.number for each in report.outcomes] for report in link.reports()] == [[1, 2, 3]]
    link.sent[0][1].set_result(ACCEPTED)
    await until(lambda: len(link.sent) == 2, "the next one is not sent")
    assert [each.number for each in link.reports()[1].outcomes] == [4]


async def test_outcomes_that_a_connection_took_along_are_sent_over_the_next_one():
    """The gateway's own connection to the router may be well, so that it waits for them."""
    link = ControlLink()
    line = control(link)
    line.settle(1, ACCEPTED)
    await asyncio.sleep(0)
    link.sent[0][1].set_exception(Unreachable("cut"))
    await asyncio.sleep(0)
    line.report()
    await until(lambda: len(link.sent) == 2, "they are not sent again")
    assert [each.number for each in link.reports()[1].outcomes] == [1]


async def test_outcomes_without_a_connection_wait_for_one():
    links: list[ControlLink] = []
    line = ControlLine(NAME, "E1", BridgeSignature(MessageSigner(KEY), b""), lambda: links[0] if links else None)
    line.settle(1, ACCEPTED)
    await asyncio.sleep(0)
    links.append(ControlLink())
    line.report()
    await asyncio.sleep(0)
    assert [each.number for each in links[0].reports()[0].outcomes] == [1]


async def test_a_gateway_that_is_told_the_end_gets_no_command_any_more():
    link = ControlLink()
    line = control(link)
    future = line.send(Message(subject="switch"))
    line.close("its certificate is revoked")
    assert link.reports()[-1].closed == "its certificate is revoked"
    for each in (future, line.send(Message(subject="switch"))):
        with pytest.raises(Unreachable):
            await each


def gateway(link: ControlLink, silence_s: float = 60.0) -> tuple[SignedGateway, Via, list[str]]:
    via, ends = Via(), []
    intake = SignedIntake(NAME, "E1", KEY.public_key())
    made = SignedGateway(via, intake, control(link), lambda _, why: ends.append(why), silence_s)
    return made, via, ends


def batch(made: SignedGateway, number: int = 1):
    return made.delivery(Delivery(Link("ingest", "", False, {}, None), None), number, Lane.TELEMETRY)


async def test_a_batch_is_settled_with_the_router_and_its_outcome_goes_to_the_gateway_signed():
    link = ControlLink()
    made, via, _ = gateway(link)
    delivery = batch(made)
    assert made.has_room(Lane.TELEMETRY)
    made.settle(delivery, rejected("amqp:decode-error", "bad"), credit=1)
    made.settle(delivery, ACCEPTED, credit=1)
    await asyncio.sleep(0)
    (report,) = link.reports()
    assert (via.settled, [each.outcome for each in report.outcomes]) == ([ACCEPTED], [rejected("amqp:decode-error", "bad")])
    assert report.windows == {}
    made.abort()


async def test_a_gateway_over_its_quota_gets_a_narrow_window_until_credit_is_granted():
    link = ControlLink()
    made, _, _ = gateway(link)
    delivery = batch(made)
    made.has_room(Lane.TELEMETRY)
    made.settle(delivery, ACCEPTED, credit=0)
    await asyncio.sleep(0)
    assert link.reports()[-1].windows == {Lane.TELEMETRY: LANE_CREDIT - 1}
    link.sent[-1][1].set_result(ACCEPTED)
    made.grant(delivery.link, 1)
    await until(lambda: link.reports()[-1].windows == {}, "the window stays narrow")
    made.abort()


async def test_batches_beyond_the_window_or_the_memory_are_refused_for_now():
    link = ControlLink()
    made, _, _ = gateway(link)
    assert all(made.has_room(Lane.TELEMETRY) for _ in range(LANE_CREDIT))
    assert not made.has_room(Lane.TELEMETRY)
    assert made.has_room(Lane.ALARM), "each lane has its own window"
    made.refuse(batch(made))
    made.pause_reading()
    assert not made.has_room(Lane.REPLY)
    made.resume_reading()
    assert made.has_room(Lane.REPLY)
    await asyncio.sleep(0)
    assert [each.condition for each in link.reports()[0].outcomes] == [RESOURCE_LIMIT]
    made.abort()


async def test_a_silent_gateway_is_gone_and_one_that_is_closed_is_told():
    made, _, ends = gateway(ControlLink(), silence_s=0.01)
    await until(lambda: ends, "it is still there")
    assert ends == ["no message came for 0 s"]
    link = ControlLink()
    made, _, ends = gateway(link)
    made.close(Condition("amqp:connection:forced", "shard 1 moved to another bridge"))
    await until(lambda: ends, "it is still there")
    assert "shard 1 moved" in link.reports()[-1].closed
