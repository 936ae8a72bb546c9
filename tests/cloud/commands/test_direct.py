"""Direct commands at the bridge (B3): told only what is committed, and never started a second time by a bridge."""

import asyncio
import time
from types import SimpleNamespace

import msgspec
import pytest

from cloud.commands.test_dispatch import OneShard, dispatcher
from cloud.commands.test_registry import record
from fogline.amqp.outcome import ACCEPTED, DECODE_ERROR, MODIFIED, RELEASED, rejected
from fogline.command import CONFLICT, Deadline, State, is_command, is_query
from fogline.errors import Unreachable
from fogline_cloud.commands.registry import Registry

GONE = rejected(DECODE_ERROR, "a hello is not readable")
OTHER = rejected(CONFLICT, "another body")


class Bench:
    """A dispatcher with one gateway, whose words a test gives, and a shard that commits when a test says so."""

    def __init__(self):
        self.shard = OneShard()
        self.shard.ready = True
        self.truth = Registry()
        self.commands = dispatcher(self.shard)
        self.commands._routes.recall("lamp-1", "gw-1", 1)
        self.sent: list[tuple[str, asyncio.Future]] = []
        self.told: list = []
        self.guest = SimpleNamespace(
            principal=SimpleNamespace(name="gw-1"),
            control=self,
            welcomed=True,
            deadline=lambda left_ms, _=None: Deadline("boot", left_ms),
        )

    def send(self, message):
        """As a sender: the outcome comes when a test sets it."""
        outcome = asyncio.get_running_loop().create_future()
        kind = "command" if is_command(message) else "question" if is_query(message) else "?"
        self.sent.append((kind, outcome))
        return outcome

    def connect(self):
        self.commands._gateways._by_name["gw-1"] = self.guest
        self.commands._arrived(self.guest)

    def disconnect(self):
        del self.commands._gateways._by_name["gw-1"]
        for _, outcome in self.sent:
            if not outcome.done():
                outcome.set_exception(Unreachable("it is gone"))

    def submit(self, **change):
        self.commands.submit(direct(**change), self.told.append)

    async def says(self, outcome):
        """The gateway's word on what it got last."""
        self.sent[-1][1].set_result(outcome)
        await self.turn()

    async def turn(self):
        """Let callbacks run."""
        for _ in range(5):
            await asyncio.sleep(0)

    async def commit(self):
        """Commit every change that waits."""
        while not self.shard.changes.empty():
            change = self.shard.changes.get_nowait()
            stands = change.record if self.truth.change(change.record) else self.truth.get(change.record.id)
            change.done(stands)
            await self.turn()

    @property
    def known(self):
        return self.commands._registry.get("C1")

    def heir(self) -> "Bench":
        """Another bridge, which has read what is committed."""
        self.commands.close()
        made = Bench()
        made.truth = self.truth
        made.commands.tell(self.truth.everything())
        return made


def direct(**change):
    now_ms = int(time.time() * 1000)
    return record(accepted_ms=now_ms, expires_ms=now_ms + 600_000, **change)


async def test_released_is_told_only_after_its_end_is_committed():
    bench = Bench()
    bench.connect()
    bench.submit()
    await bench.says(RELEASED)
    assert bench.told == []
    await bench.commit()
    assert (bench.told, bench.known.state, bench.known.told) == ([RELEASED], State.REJECTED, True)
    bench.commands.close()


@pytest.mark.parametrize("word", [ACCEPTED, OTHER, rejected("amqp:not-allowed", "its signature is wrong")])
async def test_every_other_word_of_the_gateway_is_told_after_the_commit_too(word):
    """Sister of B3: an operator that was told accepted gets its answer from an heir, which must know whom to send it to."""
    bench = Bench()
    bench.connect()
    bench.submit()
    await bench.says(word)
    assert bench.told == []
    await bench.commit()
    assert bench.told == [word]
    bench.commands.close()


async def test_what_may_not_be_committed_is_told_as_modified():
    bench = Bench()
    bench.connect()
    bench.submit()
    await bench.says(RELEASED)
    while not bench.shard.changes.empty():
        bench.shard.changes.get_nowait().give_up()
    await bench.turn()
    assert bench.told == [MODIFIED]
    bench.submit()
    bench.shard.ready = False
    await bench.turn()
    assert bench.sent[-1][0] == "question"
    await bench.says(RELEASED)
    assert bench.told == [MODIFIED, MODIFIED]
    bench.commands.close()


@pytest.mark.parametrize(("word", "state"), [(ACCEPTED, State.DISPATCHED), (RELEASED, State.REJECTED), (OTHER, State.REJECTED)])
async def test_an_heir_asks_the_gateway_and_never_starts_it(word, state):
    bench = Bench()
    bench.connect()
    bench.submit()
    await bench.commit()
    heir = bench.heir()
    await heir.turn()
    heir.connect()
    assert [kind for kind, _ in heir.sent] == ["question"]
    await heir.says(word)
    await heir.commit()
    assert (heir.known.state, heir.told) == (state, [])
    assert [kind for kind, _ in heir.sent] == ["question"]
    heir.commands.close()


async def test_a_gateway_that_comes_back_to_the_same_bridge_is_asked_too():
    """Sister of B3: the bridge is alive, but the gateway's word was lost with the connection."""
    bench = Bench()
    bench.connect()
    bench.submit()
    await bench.commit()
    bench.disconnect()
    await bench.turn()
    assert bench.told == []
    bench.connect()
    assert [kind for kind, _ in bench.sent] == ["command", "question"]
    await bench.says(RELEASED)
    await bench.commit()
    assert bench.told == [RELEASED]
    bench.commands.close()


async def test_a_durable_command_is_sent_again_and_not_asked_for():
    bench = Bench()
    bench.submit(durable=True)
    await bench.commit()
    assert bench.told == [ACCEPTED]
    heir = bench.heir()
    await heir.turn()
    heir.connect()
    assert [kind for kind, _ in heir.sent] == ["command"]
    heir.commands.close()


async def test_a_gateway_too_old_to_be_asked_leaves_it_in_doubt_and_unstarted(monkeypatch):
    bench = Bench()
    bench.connect()
    bench.submit()
    await bench.commit()
    heir = bench.heir()
    await heir.turn()
    heir.connect()
    heir.submit()
    await heir.says(GONE)
    assert {kind for kind, _ in heir.sent} == {"question"}
    heir.commands._courses["C1"].ends_s = -1e9
    heir.commands._on_time("C1")
    await heir.commit()
    assert (heir.known.state, heir.known.provisional, heir.told) == (State.IN_DOUBT, True, [ACCEPTED])
    heir.commands.close()


async def test_a_doubt_ends_when_the_gateway_says_that_it_never_had_the_command():
    bench = Bench()
    doubt = direct(state=State.IN_DOUBT, provisional=True, status=504)
    bench.truth.put(doubt)
    bench.commands.tell([doubt])
    await bench.turn()
    bench.connect()
    assert [kind for kind, _ in bench.sent] == ["question"]
    await bench.says(RELEASED)
    await bench.commit()
    assert (bench.known.state, bench.known.provisional, bench.known.owes_answer) == (State.EXPIRED, False, True)
    bench.commands.close()


async def test_a_copy_of_a_released_command_is_a_new_attempt_under_the_same_id():
    bench = Bench()
    bench.connect()
    bench.submit()
    await bench.says(RELEASED)
    await bench.commit()
    bench.submit()
    assert [kind for kind, _ in bench.sent] == ["command", "command"]
    bench.commands.tell([msgspec.structs.replace(bench.truth.get("C1"))])  # the shard was taken again meanwhile
    await bench.turn()
    await bench.says(ACCEPTED)
    await bench.commit()
    assert (bench.told, bench.known.state, bench.known.attempt) == ([RELEASED, ACCEPTED], State.DISPATCHED, 2)
    bench.commands.close()


async def test_a_copy_waits_for_the_answer_of_the_journal():
    """The operator of a bridge that died sends again before the gateway is back."""
    bench = Bench()
    bench.connect()
    bench.submit()
    await bench.commit()
    heir = bench.heir()
    await heir.turn()
    heir.submit()
    assert (heir.told, heir.sent) == ([], [])
    heir.connect()
    await heir.says(RELEASED)
    await heir.commit()
    assert heir.told == [RELEASED]
    heir.commands.close()


def adopted(**change):
    return direct(state=State.SUCCEEDED, status=200, digest="", operator="", reply_to="", **change)


@pytest.mark.parametrize(
    ("word", "told"),
    [(ACCEPTED, ACCEPTED), (RELEASED, ACCEPTED), (GONE, ACCEPTED), (OTHER, OTHER)],
)
async def test_a_command_known_from_a_reply_alone_is_answered_only_if_the_journal_confirms_it(word, told):
    """B2: a record without a digest says nothing of what was asked."""
    bench = Bench()
    bench.truth.put(adopted())
    bench.commands.tell([adopted()])
    await bench.turn()
    bench.submit()
    assert bench.told == [MODIFIED]  # not at present: its gateway is away
    bench.connect()
    bench.submit()
    assert bench.sent[-1][0] == "question"
    await bench.says(word)
    await bench.commit()
    assert bench.told[-1].state is told.state
    assert (bench.known.reply_to, bench.known.digest) == (("me", "00") if word == ACCEPTED else ("", ""))
    assert {kind for kind, _ in bench.sent} == {"question"}
    bench.commands.close()
