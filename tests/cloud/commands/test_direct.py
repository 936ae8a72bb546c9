"""Direct commands at the bridge (B3): settled only after the commit, and never started a second time by a bridge."""

import msgspec
import pytest

from cloud.commands.direct_bench import GONE, OTHER, Bench, direct
from fogline.amqp.outcome import ACCEPTED, MODIFIED, RELEASED, rejected
from fogline.commands.command import CommandState


async def test_released_is_settled_only_after_its_record_is_committed():
    bench = Bench()
    bench.connect()
    bench.submit()
    await bench.settle(RELEASED)
    assert bench.settled == []
    await bench.commit()
    assert (bench.settled, bench.known.state, bench.known.reply_delivered) == ([RELEASED], CommandState.REJECTED, True)
    bench.commands.close()


@pytest.mark.parametrize("outcome", [ACCEPTED, OTHER, rejected("amqp:not-allowed", "its signature is wrong")])
async def test_every_other_outcome_is_settled_after_the_commit_too(outcome):
    """Sister of B3: an operator whose command was accepted gets the reply from an heir, which must know the reply address."""
    bench = Bench()
    bench.connect()
    bench.submit()
    await bench.settle(outcome)
    assert bench.settled == []
    await bench.commit()
    assert bench.settled == [outcome]
    bench.commands.close()


async def test_a_command_that_may_not_be_committed_is_settled_as_modified():
    bench = Bench()
    bench.connect()
    bench.submit()
    await bench.settle(RELEASED)
    while not bench.shard.changes.empty():
        bench.shard.changes.get_nowait().give_up()
    await bench.turn()
    assert bench.settled == [MODIFIED]
    bench.submit()
    bench.shard.ready = False
    await bench.turn()
    assert bench.sent[-1][0] == "query"
    await bench.settle(RELEASED)
    assert bench.settled == [MODIFIED, MODIFIED]
    bench.commands.close()


@pytest.mark.parametrize(
    ("outcome", "state"),
    [(ACCEPTED, CommandState.DISPATCHED), (RELEASED, CommandState.REJECTED), (OTHER, CommandState.REJECTED)],
)
async def test_an_heir_asks_the_gateway_and_never_starts_it(outcome, state):
    bench = Bench()
    bench.connect()
    bench.submit()
    await bench.commit()
    heir = bench.heir()
    await heir.turn()
    heir.connect()
    assert [kind for kind, _ in heir.sent] == ["query"]
    await heir.settle(outcome)
    await heir.commit()
    assert (heir.known.state, heir.settled) == (state, [])
    assert [kind for kind, _ in heir.sent] == ["query"]
    heir.commands.close()


async def test_a_gateway_that_comes_back_to_the_same_bridge_is_asked_too():
    """Sister of B3: the bridge is alive, but the gateway's outcome was lost with the connection."""
    bench = Bench()
    bench.connect()
    bench.submit()
    await bench.commit()
    bench.disconnect()
    await bench.turn()
    assert bench.settled == []
    bench.connect()
    assert [kind for kind, _ in bench.sent] == ["command", "query"]
    await bench.settle(RELEASED)
    await bench.commit()
    assert bench.settled == [RELEASED]
    bench.commands.close()


async def test_a_durable_command_is_sent_again_and_not_asked_for():
    bench = Bench()
    bench.submit(durable=True)
    await bench.commit()
    assert bench.settled == [ACCEPTED]
    heir = bench.heir()
    await heir.turn()
    heir.connect()
    assert heir.sent == [], "its record does not name the journal yet"
    await heir.commit()
    assert [kind for kind, _ in heir.sent] == ["command"]
    heir.commands.close()


async def test_a_gateway_that_refuses_the_question_leaves_the_command_in_doubt_and_unstarted(monkeypatch):
    bench = Bench()
    bench.connect()
    bench.submit()
    await bench.commit()
    heir = bench.heir()
    await heir.turn()
    heir.connect()
    heir.submit()
    await heir.settle(GONE)
    assert {kind for kind, _ in heir.sent} == {"query"}
    heir.commands.table.open["C1"].expires_s = -1e9
    heir.commands.table._on_timer("C1")
    await heir.commit()
    assert (heir.known.state, heir.known.provisional, heir.settled) == (CommandState.IN_DOUBT, True, [ACCEPTED])
    heir.commands.close()


async def test_a_doubt_ends_when_the_gateway_says_that_it_never_had_the_command():
    bench = Bench()
    doubt = direct(state=CommandState.IN_DOUBT, provisional=True, status=504)
    bench.truth.put(doubt)
    bench.commands.table.learn([doubt])
    await bench.turn()
    bench.connect()
    assert [kind for kind, _ in bench.sent] == ["query"]
    await bench.settle(RELEASED)
    await bench.commit()
    assert (bench.known.state, bench.known.provisional, bench.known.owes_reply) == (CommandState.EXPIRED, False, True)
    bench.commands.close()


async def test_a_copy_of_a_released_command_is_a_new_attempt_under_the_same_id():
    bench = Bench()
    bench.connect()
    bench.submit()
    await bench.settle(RELEASED)
    await bench.commit()
    bench.submit()
    assert [kind for kind, _ in bench.sent] == ["command", "command"]
    bench.commands.table.learn([msgspec.structs.replace(bench.truth.get("C1"))])  # the shard was taken again meanwhile
    await bench.turn()
    await bench.settle(ACCEPTED)
    await bench.commit()
    assert (bench.settled, bench.known.state, bench.known.attempt) == ([RELEASED, ACCEPTED], CommandState.DISPATCHED, 2)
    bench.commands.close()


async def test_a_copy_waits_for_the_result_of_the_journal_query():
    """The operator of a bridge that died sends again before the gateway is back."""
    bench = Bench()
    bench.connect()
    bench.submit()
    await bench.commit()
    heir = bench.heir()
    await heir.turn()
    heir.submit()
    assert (heir.settled, heir.sent) == ([], [])
    heir.connect()
    await heir.settle(RELEASED)
    await heir.commit()
    assert heir.settled == [RELEASED]
    heir.commands.close()


def adopted(**change):
    return direct(state=CommandState.SUCCEEDED, status=200, digest="", operator="", reply_to="", **change)


@pytest.mark.parametrize(
    ("outcome", "settled"),
    [(ACCEPTED, ACCEPTED), (RELEASED, ACCEPTED), (GONE, ACCEPTED), (OTHER, OTHER)],
)
async def test_a_command_known_from_a_reply_alone_is_accepted_only_if_the_journal_confirms_it(outcome, settled):
    """B2: a record without a digest says nothing of what was asked."""
    bench = Bench()
    bench.truth.put(adopted())
    bench.commands.table.learn([adopted()])
    await bench.turn()
    bench.submit()
    assert bench.settled == [MODIFIED]  # not at present: its gateway is away
    bench.connect()
    bench.submit()
    assert bench.sent[-1][0] == "query"
    await bench.settle(outcome)
    await bench.commit()
    assert bench.settled[-1].state is settled.state
    assert (bench.known.reply_to, bench.known.digest) == (("me", "00") if outcome == ACCEPTED else ("", ""))
    assert {kind for kind, _ in bench.sent} == {"query"}
    bench.commands.close()
