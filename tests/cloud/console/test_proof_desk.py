"""Proofs are made one after the other in a process of their own, and are about what is wrong, and nothing else."""

import asyncio
import os
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from fogline.errors import Unreachable
from fogline.events.event import Lane
from fogline_cloud.api.problems import Problem
from fogline_cloud.console.proof.proof_desk import MAX_WAITING, ProofDesk, make_proof
from fogline_cloud.settings import CloudSettings, FlowSettings
from fogline_lab.events import NOW_NS
from fogline_lab.ledger_site import ALARMS, EVERYTHING, YARD, make_site, stream_of
from fogline_lab.waiting import until

DAY = datetime.fromtimestamp(NOW_NS / 10**9, UTC).date()
LATER_NS = NOW_NS + 24 * 3600 * 10**9
LATER = stream_of("gw-1", "00000000000000dd", Lane.TELEMETRY, 3, ended_ns=LATER_NS)
ALL = [*EVERYTHING, *LATER, *stream_of("gw-2", "00000000000000ee", Lane.TELEMETRY, 3, ended_ns=LATER_NS)]
SILENT = [*(each for each in EVERYTHING if each.gateway == "gw-1"), *LATER]
SILENT += stream_of("gw-2", YARD, Lane.TELEMETRY, 30, settled=10)


def proof_of(kafka, folder, events):
    site = make_site(kafka.bootstrap, folder / "tables", events)
    settings = replace(site.settings, flow=FlowSettings(tables=str(site.tables)))
    return make_proof(settings, DAY, None)


@pytest.mark.parametrize(
    ("events", "doubts"),
    [
        (ALL, set()),
        (SILENT, {("silent", "gw-2")}),
        ([each for each in ALL if (each.stream, each.sequence) != (ALARMS, 7)], {("lost", "gw-1"), ("statement", "gw-1")}),
    ],
    ids=["complete", "a silent gateway", "a gap that nothing explains"],
)
def test_a_proof_names_each_thing_that_is_wrong_and_nothing_else(kafka, folder, events, doubts):
    made = proof_of(kafka, folder, events)
    found = {(each.kind, each.gateway) for each in made.document.doubts}
    assert found <= doubts
    assert bool(found) == bool(doubts) == (not made.document.complete)
    assert (made.signed, made.unsigned) == ("", "set [api.tls] or [bridge.tls] with a certificate of `fogline ca issue bridge`")


def _fails(*_):
    raise Unreachable("Kafka is away")


def _dies(*_):
    os._exit(3)


@pytest.mark.parametrize(("make", "why"), [(_fails, "Kafka is away"), (_dies, "ask again")])
async def test_a_proof_that_cannot_be_made_says_why_and_the_next_one_is_made(make, why):
    desk = ProofDesk(CloudSettings(tenant="t"), make)
    try:
        for _ in range(2):
            order = desk.order("alice", DAY, None)
            await until(lambda order=order: order.is_over, "the order does not end")
            assert why in order.why
    finally:
        desk.close()


async def test_orders_that_wait_are_bounded_and_a_repeated_question_is_the_same_order():
    desk = ProofDesk(CloudSettings(tenant="t"), _fails)
    try:
        first = desk.order("alice", DAY, None)
        assert desk.order("alice", DAY, None) is first
        assert desk.newest("bob") is None
        for number in range(MAX_WAITING - 1):
            desk.order(f"user-{number}", DAY, None)
        with pytest.raises(Problem, match="too many proofs"):
            desk.order("bob", DAY, None)
    finally:
        desk.close()
        await asyncio.sleep(0)
