"""A gateway behind a router or a broker believes its bridge alone: not what is between, and not another bridge's enemy."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec.structs import replace

from fogline.amqp.events import Link
from fogline.amqp.outcome import ACCEPTED, MODIFIED, RELEASED, UNKNOWN_STREAM, DeliveryState, Outcome, rejected
from fogline.amqp.wire import encode
from fogline.errors import Misconfigured, Unreachable
from fogline.events.event import Lane
from fogline.gateway.hello import HELLO_CONTENT_TYPE, Welcome, encode_hello
from fogline.gateway.message_signature import GatewayName, MessageSigner, SignedKind
from fogline.gateway.settlement import (
    LANE_CREDIT,
    SILENCE_S,
    NumberedOutcome,
    SignedOutcomes,
    decode_settlement,
    encode_settlement,
)
from fogline.gateway.signed_session import CERTIFICATE, EPOCH, NUMBER, SignedOutput
from fogline.message import Message
from fogline_cloud.authority.certificates import Role
from fogline_edge.uplink.via.identity import GatewayIdentity
from fogline_edge.uplink.via.signed_line import SignedLine
from fogline_lab.credentials.authority_folder import AuthorityFolder
from fogline_lab.waiting import until

NAME = GatewayName("acme", "gw-1")


@dataclass
class Way:
    """A link to a router: keeps what is sent, with the futures that the router would complete."""

    name: str = "telemetry"
    sent: list[tuple[Message, "asyncio.Future[Outcome]"]] = field(default_factory=list)
    credit: int = 250
    queued: int = 0

    def __post_init__(self) -> None:
        self.link = Link(self.name, "ingest/acme/0", True, {}, None)

    @property
    def closed(self) -> bool:
        return self.link.closed

    def send(self, message: Message) -> "asyncio.Future[Outcome]":
        future = asyncio.get_running_loop().create_future()
        self.sent.append((message, future))
        return future


class Bridge:
    """One that signs, with a certificate of a role."""

    def __init__(self, site: AuthorityFolder, role: Role = Role.BRIDGE, tenant_site: AuthorityFolder | None = None) -> None:
        files = (tenant_site or site).files(role, "bridge-1", hosts=["127.0.0.1"])
        self.signer = MessageSigner.of_pem(Path(files.key).read_bytes())
        self.certificate = Path(files.certificate).read_bytes()
        self.output = SignedOutput(NAME, "E1", self.signer)

    def welcome(self, epoch: str = "E1", name: GatewayName = NAME, **change: object) -> Message:
        own = {CERTIFICATE: self.certificate, EPOCH: epoch}
        message = Message(body=encode_hello(Welcome(protocol=1)), content_type=HELLO_CONTENT_TYPE, properties=own)
        return replace(self.signer.sign(SignedKind.WELCOME, name, message), **change)

    def settles(self, *outcomes: tuple[int, Outcome], **other: object) -> Message:
        found = [NumberedOutcome(number, each.state, each.condition, each.description) for number, each in outcomes]
        return self.output.sign(SignedKind.CONTROL, encode_settlement(SignedOutcomes(outcomes=found, **other)))[1]

    def says(self, message: Message) -> Message:
        return self.output.sign(SignedKind.CONTROL, message)[1]


@dataclass
class Behind:
    """A gateway's line, after an answer to hello, and its bridge."""

    line: SignedLine
    bridge: Bridge
    ends: list[str]
    site: AuthorityFolder

    def sends(self, count: int = 1, lane: Lane = Lane.TELEMETRY) -> tuple[Way, "list[asyncio.Future[Outcome]]"]:
        way = Way()
        sender = self.line.lane_sender(way, lane)
        return way, [sender.send(Message(body=b"%d" % each)) for each in range(count)]


@pytest.fixture
def site(folder):
    return AuthorityFolder(folder, "acme")


def line_of(site: AuthorityFolder, ends: list[str]) -> SignedLine:
    return SignedLine(GatewayIdentity(NAME, site.files(Role.GATEWAY, "gw-1")), "E1", ends.append)


def behind(site: AuthorityFolder) -> Behind:
    """Return a line that a bridge has welcomed."""
    ends: list[str] = []
    line, bridge = line_of(site, ends), Bridge(site)
    assert line.welcome(bridge.welcome()) is not None
    return Behind(line, bridge, ends, site)


async def test_only_an_outcome_that_the_bridge_has_signed_confirms_a_batch(site):
    here = behind(site)
    way, (one, two) = here.sends(2)
    for _, passed in way.sent:
        passed.set_result(ACCEPTED)
    await asyncio.sleep(0)
    assert not one.done()
    assert not here.line.counts(here.bridge.settles((1, ACCEPTED), (2, rejected("amqp:decode-error", "bad"))))
    assert (one.result(), two.result()) == (ACCEPTED, rejected("amqp:decode-error", "bad"))


@pytest.mark.parametrize(
    ("passed", "outcome"),
    [(RELEASED, MODIFIED), (MODIFIED, MODIFIED), (rejected("amqp:decode-error", "x"), UNKNOWN_STREAM)],
)
async def test_a_refusal_that_is_not_signed_never_puts_an_event_aside(site, passed, outcome):
    """It makes the gateway send again, or say hello again: nothing that an enemy could not do by a cut."""
    here = behind(site)
    way, (future,) = here.sends()
    way.sent[0][1].set_result(passed)
    await asyncio.sleep(0)
    assert future.result() == outcome if isinstance(outcome, Outcome) else future.result().condition == outcome
    here.line.counts(here.bridge.settles((1, ACCEPTED)))
    assert future.result().state is not DeliveryState.ACCEPTED, "too late: the batch was sent again"


async def test_a_link_that_ends_leaves_its_batches_unknown(site):
    here = behind(site)
    way, (future,) = here.sends()
    here.line.link_closed(way.link, "cut")
    with pytest.raises(Unreachable):
        future.result()


async def test_what_an_enemy_alters_repeats_or_makes_up_is_counted_and_does_nothing(site):
    here, enemy = behind(site), Bridge(site, Role.GATEWAY)
    _, (future,) = here.sends()
    right = here.bridge.settles((1, ACCEPTED))
    other_epoch = SignedOutput(NAME, "E0", here.bridge.signer).sign(SignedKind.CONTROL, encode_settlement(SignedOutcomes()))[1]
    other_gateway = SignedOutput(GatewayName("acme", "gw-2"), "E1", here.bridge.signer)
    foreign = other_gateway.sign(SignedKind.CONTROL, encode_settlement(SignedOutcomes()))[1]
    own = here.line._output.sign(SignedKind.CONTROL, right)[1]
    wrong = [
        replace(right, body=right.body + b" "),
        enemy.settles((1, ACCEPTED)),
        other_epoch,
        foreign,
        own,
        Message(body=right.body),
    ]
    for each in wrong:
        assert not here.line.counts(each)
    assert (here.line.refused, future.done()) == (len(wrong), False)
    assert not here.line.counts(right)
    assert future.result() == ACCEPTED
    here.line.counts(right)
    assert here.line.refused == len(wrong) + 1, "sent again"


async def test_a_command_counts_once_and_its_outcome_goes_back_signed(site):
    here, way = behind(site), Way("hello-shard")
    here.line.reports.link = way
    command = here.bridge.says(Message(subject="switch", properties={"fogline": "command"}))
    assert here.line.counts(command)
    assert not here.line.counts(command)
    here.line.settle(command, RELEASED)
    await asyncio.sleep(0)
    (report, _) = way.sent[0]
    assert [(each.number, each.state) for each in decode_settlement(report).outcomes] == [
        (command.properties[NUMBER], DeliveryState.RELEASED)
    ]


async def test_an_answer_to_hello_counts_if_a_bridge_of_the_tenant_has_signed_it_for_this_hello(site, tmp_path):
    (tmp_path / "other").mkdir()
    foreign = AuthorityFolder(tmp_path / "other", "acme")
    good = Bridge(site)
    wrong = [
        Bridge(site, Role.GATEWAY).welcome(),
        Bridge(site, Role.OPERATOR).welcome(),
        Bridge(site, tenant_site=foreign).welcome(),
        good.welcome("E0"),
        good.welcome(name=GatewayName("acme", "gw-2")),
        good.welcome(body=b"{}"),
        good.welcome(properties={EPOCH: "E1"}),
    ]
    line = line_of(site, [])
    for each in wrong:
        assert line.welcome(each) is None
    assert line.refused == len(wrong)
    assert not line.counts(good.settles((1, ACCEPTED))), "nothing counts before hello is answered"
    assert line.welcome(good.welcome()) is not None


async def test_batches_beyond_the_window_wait_and_a_narrower_window_holds(site):
    here = behind(site)
    way, futures = here.sends(LANE_CREDIT + 2)
    assert len(way.sent) == LANE_CREDIT
    here.line.counts(here.bridge.settles((1, ACCEPTED), (2, ACCEPTED), windows={Lane.TELEMETRY: LANE_CREDIT - 1}))
    await asyncio.sleep(0)
    assert (len(way.sent), futures[0].done()) == (LANE_CREDIT + 1, True)
    here.line.counts(here.bridge.settles())
    assert len(way.sent) == LANE_CREDIT + 2, "the window is as wide as at first"


async def test_a_window_that_was_overtaken_counts_no_more(site):
    here = behind(site)
    narrow, wide = here.bridge.settles(windows={Lane.TELEMETRY: 1}), here.bridge.settles()
    here.line.counts(wide)
    here.line.counts(narrow)
    way, _ = here.sends(3)
    assert len(way.sent) == 3


async def test_a_bridge_that_ends_the_connection_or_refuses_reports_is_asked_again(site):
    here = behind(site)
    here.line.counts(here.bridge.settles(closed="the shard moved"))
    assert here.ends == ["the bridge ends the connection: the shard moved"]
    way = here.line.reports.link = Way("hello-shard")
    here.line.close()
    assert decode_settlement(way.sent[0][0]).closed
    way.sent[0][1].set_result(rejected("amqp:unauthorized-access", "no hello of it counts here"))
    await asyncio.sleep(0)
    assert "no hello of it counts here" in here.ends[1]


async def test_a_silent_bridge_ends_the_connection(site, monkeypatch):
    here = behind(site)
    here.line.reports.link = Way("hello-shard")
    monkeypatch.setattr("fogline_edge.uplink.via.signed_line.BEACON_S", 0.0)
    here.line._heard_s -= SILENCE_S
    task = asyncio.create_task(here.line.keep())
    await until(lambda: here.ends, "it waits for ever")
    task.cancel()
    assert "no signed message of the bridge for 60 s" in here.ends[0]


def test_without_a_certificate_there_is_nothing_to_sign_with(site):
    for files in (None, replace(site.files(Role.GATEWAY, "gw-1"), certificate=None)):
        with pytest.raises(Misconfigured, match=r"\[uplink.via\] needs \[uplink.tls\]"):
            GatewayIdentity(NAME, files)


async def test_hello_shows_the_certificate_and_never_the_key_and_a_broker_need_not_keep_it(site):
    """`fogline-edge enroll` writes certificate and key into one file."""
    files = site.files(Role.GATEWAY, "gw-1")
    both = site.folder / "gateway.pem"
    both.write_bytes(Path(files.certificate).read_bytes() + Path(files.key).read_bytes())
    both.chmod(0o600)
    identity = GatewayIdentity(NAME, replace(files, certificate=str(both), key=str(both)))
    hello = SignedLine(identity, "E1", print).hello(Message(body=b"{}"), "")
    assert hello.properties[CERTIFICATE] == Path(files.certificate).read_bytes()
    assert b"PRIVATE" not in encode(hello)
    assert hello.ttl_ms
