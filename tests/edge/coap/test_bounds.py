"""State about endpoints is bounded: buckets, exchanges, block-wise transfers."""

import pytest

from edge.coap.client import block1, request
from fogline.process.rates import Bucket
from fogline.transport.byte_budget import ByteBudget
from fogline_edge.adapters.coap import request_handler
from fogline_edge.adapters.coap.blocks import BlockTransfers
from fogline_edge.adapters.coap.exchanges import EXCHANGE_LIFETIME_S, Exchange, Exchanges
from fogline_edge.adapters.coap.limits import REFUSALS_S, EndpointLimits, RateVerdict
from fogline_edge.adapters.coap.requests import read_request
from fogline_edge.adapters.coap.wire import Code, Option, RequestRefused, uint
from fogline_lab.port import MemoryPort

HERE = ("127.0.0.1", 1)
THERE = ("127.0.0.1", 2)


def test_a_bucket_fills_with_time():
    bucket = Bucket(rate_s=2, burst=3, now_s=0)
    assert [bucket.take(0) for _ in range(4)] == [True, True, True, False]
    assert [bucket.take(1) for _ in range(3)] == [True, True, False]
    assert [bucket.take(100) for _ in range(4)] == [True, True, True, False]


def limits(**more):
    return EndpointLimits(**{"all_s": 1, "all_burst": 100, "each_s": 1, "each_burst": 2, "endpoints": 3, **more})


def test_flooding_endpoint_gets_an_error_is_then_ignored_and_does_not_slow_others():
    found = limits(all_burst=3)
    assert [found.admit(HERE, 0) for _ in range(2)] == [RateVerdict.ADMIT] * 2
    assert [found.admit(HERE, 0) for _ in range(REFUSALS_S)] == [RateVerdict.REFUSE] * REFUSALS_S
    assert found.admit(HERE, 0) is RateVerdict.DROP
    assert found.admit(THERE, 0) is RateVerdict.ADMIT


def test_beyond_the_common_limit_no_response_is_sent_and_no_endpoint_is_added():
    found = limits(all_burst=1)
    found.admit(HERE, 0)
    assert [found.admit(("127.0.0.1", port), 0) for port in range(10, 20)] == [RateVerdict.DROP] * 10
    assert len(found._peers) == 1


def test_the_latest_endpoints_are_remembered():
    found = limits()
    for port in range(100):
        found.admit(("127.0.0.1", port), 0)
    assert len(found._peers) == 3


def test_message_ids_do_not_repeat_towards_an_endpoint():
    found = limits()
    assert len({found.next_mid(HERE, 0) for _ in range(65_536)}) == 65_536


def test_an_exchange_is_known_by_its_bytes_for_its_lifetime():
    exchanges = Exchanges(10)
    begun = exchanges.begin(HERE, request(), 1, now_s=0)
    assert exchanges.known(HERE, 1, 1, now_s=EXCHANGE_LIFETIME_S) is begun
    assert exchanges.known(HERE, 1, 2, now_s=0) is None
    assert exchanges.known(THERE, 1, 1, now_s=0) is None
    assert exchanges.known(HERE, 1, 1, now_s=EXCHANGE_LIFETIME_S + 1) is None


def test_exchanges_are_forgotten_by_number_and_by_age():
    exchanges = Exchanges(3)
    for mid in range(10):
        exchanges.begin(HERE, request(mid=mid), mid, now_s=mid)
    assert len(exchanges._known) == 3
    assert exchanges.known(HERE, 9, 9, now_s=9) is not None
    exchanges.begin(HERE, request(mid=77), 77, now_s=EXCHANGE_LIFETIME_S + 100)
    assert len(exchanges._known) == 1


def never(*_):
    raise AssertionError("no body is stored")


class Body:
    """Feeds blocks of 16 bytes."""

    def __init__(self, **settings):
        self.budget = ByteBudget(settings.pop("budget_bytes", 10_000))
        usual = {"most": 2, "max_bytes": 64, "max_stored_bytes": 0, "timeout_s": 10}
        self.transfers = BlockTransfers(self.budget, never, **{**usual, **settings})

    def feed(self, number, payload, *, more, now_s=0.0, endpoint=HERE, sender="", **given):
        options = [block1(number, more=more), *given.pop("options", ())]
        message = request(payload=payload, options=options, **given)
        return self.transfers.feed(endpoint, read_request(message), now_s, sender)

    def refused(self, *given, **more):
        with pytest.raises(RequestRefused) as error:
            self.feed(*given, **more)
        return error.value


BLOCK = b"0123456789abcdef"


def test_blocks_become_a_body():
    body = Body()
    assert body.feed(0, BLOCK, more=True) is None
    assert body.feed(1, BLOCK, more=True) is None
    assert body.feed(2, b"x", more=False) == BLOCK * 2 + b"x"
    assert len(body.transfers._open) == 0


def test_a_block_that_comes_again_does_no_harm():
    body = Body()
    body.feed(0, BLOCK, more=True)
    body.feed(1, BLOCK, more=True)
    assert body.feed(1, BLOCK, more=True) is None
    assert body.feed(2, b"x", more=False) == BLOCK * 2 + b"x"


def test_the_size_of_blocks_may_change_on_the_way():
    body = Body()
    transfers = body.transfers
    large = read_request(request(payload=BLOCK * 2, options=[block1(0, 1, more=True)]))
    assert transfers.feed(HERE, large, 0) is None
    assert body.feed(2, b"x", more=False) == BLOCK * 2 + b"x"


@pytest.mark.parametrize("number", [1, 3])
def test_a_gap_is_4_08(number):
    body = Body()
    if number > 1:
        body.feed(0, BLOCK, more=True)
    assert body.refused(number, BLOCK, more=True).code == Code.REQUEST_ENTITY_INCOMPLETE


def test_another_block_in_the_place_of_one_that_came_is_4_08():
    body = Body()
    body.feed(0, BLOCK, more=True)
    body.feed(1, BLOCK, more=True)
    assert body.refused(1, BLOCK[::-1], more=True).code == Code.REQUEST_ENTITY_INCOMPLETE


def test_a_block_that_is_not_as_long_as_it_says_is_4_00():
    body = Body()
    assert body.refused(0, b"short", more=True).code == Code.BAD_REQUEST
    assert body.refused(0, BLOCK + b"x", more=False).code == Code.BAD_REQUEST


@pytest.mark.parametrize(
    "given", [(0, BLOCK, {"options": [(Option.SIZE1, uint(65))]}), (4, b"x", {}), (1_000_000, BLOCK, {})], ids=str
)
def test_body_that_is_too_large_gets_4_13_with_the_accepted_size(given):
    number, payload, more = given
    refused = Body().refused(number, payload, more=True, **more)
    assert (refused.code, refused.options) == (Code.REQUEST_ENTITY_TOO_LARGE, ((Option.SIZE1, uint(64)),))


def test_bodies_of_others_are_other_bodies():
    body = Body(most=10)
    body.feed(0, BLOCK, more=True)
    for more in ({"endpoint": THERE}, {"sender": "d1"}, {"path": "t//d2"}, {"code": Code.POST}, {"query": ["a=1"]}):
        assert body.refused(1, b"x", more=False, **more).code == Code.REQUEST_ENTITY_INCOMPLETE
    assert body.refused(1, b"x", more=False, options=[(Option.REQUEST_TAG, b"1")]).code == Code.REQUEST_ENTITY_INCOMPLETE
    assert body.feed(1, b"x", more=False) == BLOCK + b"x"


def test_too_many_bodies_are_5_03_until_one_is_forgotten():
    body = Body()
    for port in (1, 2):
        body.feed(0, BLOCK, more=True, endpoint=("127.0.0.1", port))
    refused = body.refused(0, BLOCK, more=True, endpoint=("127.0.0.1", 3))
    assert (refused.code, refused.options[0][0]) == (Code.SERVICE_UNAVAILABLE, Option.MAX_AGE)
    assert body.feed(0, BLOCK, more=True, endpoint=("127.0.0.1", 3), now_s=11) is None
    assert len(body.transfers._open) == 1
    assert body.refused(1, b"x", more=False, now_s=11).code == Code.REQUEST_ENTITY_INCOMPLETE


async def test_only_the_latest_last_blocks_are_kept(monkeypatch):
    monkeypatch.setattr(request_handler, "MAX_LAST_BLOCKS", 3)
    port = MemoryPort()
    last_blocks = request_handler.LastBlocks(port)
    given = [(message, Exchange(HERE, message, 0, 0)) for message in (request(mid=mid) for mid in range(10))]
    for each in given:
        last_blocks.keep(*each, lambda: None)
    assert [last_blocks.knows(*each) for each in given] == [False] * 7 + [True] * 3
    assert len(port.kept("")) == 3


@pytest.mark.fault("S7")
def test_bodies_under_way_have_a_budget_together_with_all_other_listeners():
    """The budget of users' input is 48 bytes here: three blocks."""
    body = Body(most=10, budget_bytes=64)
    far = ("192.0.2.7", 1)
    for number in range(2):
        body.feed(number, BLOCK, more=True)
    body.feed(0, BLOCK, more=True, endpoint=far)
    refused = body.refused(2, BLOCK, more=True)
    assert (refused.code, refused.options) == (Code.SERVICE_UNAVAILABLE, ((Option.MAX_AGE, uint(10)),))
    assert body.feed(1, BLOCK, more=True, endpoint=far) is None
    assert body.feed(2, b"x", more=False, endpoint=far) == BLOCK * 2 + b"x"
    assert body.budget.held_bytes == 0


def test_a_body_that_is_forgotten_counts_no_more():
    body = Body()
    body.feed(0, BLOCK, more=True)
    body.feed(0, BLOCK, more=True, endpoint=THERE, now_s=100)
    assert body.budget.held_bytes == 16
