"""Commands and cancellations race with devices, crashes, takeovers and clocks: one verdict, and no effect that it denies."""

from collections import Counter

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from chaos.command_world import World
from chaos.gateway_copies import back_up, empty_card, restore, ten_days
from fogline.amqp.outcome import DeliveryState
from fogline.commands.command import CommandState, Status

NUMBERS = st.integers(1, 3)
RARELY = st.sampled_from([False, False, True])
ENDS: Counter[str] = Counter()
REPLACED: Counter[str] = Counter()
DID_NOTHING = (CommandState.EXPIRED, CommandState.CANCELLED)


class Races(RuleBasedStateMachine):
    """Each rule is one step of one part. At the end everything works again, and all have to agree."""

    @initialize(reachable=st.booleans(), durable=st.booleans())
    def begin(self, reachable, durable):
        self.world = World()
        self.world.set_reachable(reachable=reachable)
        self.world.connect()
        self.world.ask(1, durable=durable, ttl_ms=600_000, properties={"idempotent": False})

    @rule(number=NUMBERS, durable=st.booleans(), idempotent=RARELY, ttl_s=st.sampled_from([5, 600, 600]))
    def ask(self, number, durable, idempotent, ttl_s):
        number += self.world.first_number
        self.world.ask(number, durable=durable, ttl_ms=ttl_s * 1000, properties={"idempotent": idempotent})

    @rule(number=st.integers(4, 6), ttl_s=st.sampled_from([5, 600, 600]))
    def replace(self, number, ttl_s):
        """A command that replaces what waits."""
        number += self.world.first_number
        self.world.ask(number, durable=True, ttl_ms=ttl_s * 1000, properties={"idempotent": False, "newest_wins": True})

    @rule(number=st.integers(1, 6))
    def cancel(self, number):
        if len(self.world.asked) >= number:
            self.world.cancel(list(self.world.asked)[number - 1])

    @rule(times=st.integers(1, 3))
    def bridge_commits(self, times):
        for _ in range(times):
            self.world.loop.call(self.world.bridge.commit)

    @rule(times=st.integers(1, 3))
    def gateway_receives(self, times):
        for _ in range(times):
            self.world.deliver()

    @rule()
    def gateway_commits(self):
        self.world.loop.call(self.world.gateway.commit)

    @rule()
    def gateway_commits_and_goes_on(self):
        self.world.loop.call(self.world.gateway.commit)
        self.world.loop.call(self.world.gateway.notify)

    @rule()
    def reply_arrives(self):
        self.world.upload()

    @rule(times=st.integers(1, 3))
    def all_parts_step(self, times):
        for _ in range(times):
            self.world.step_all()

    @rule(number=st.integers(1, 6))
    def cancel_and_step(self, number):
        self.cancel(number)
        self.world.step_all()

    @rule(again=st.booleans())
    def device_does_it(self, again):
        self.world.adapter("reach")
        self.world.answer(again=again)
        self.world.step_all()

    @rule(reachable=st.booleans())
    def device_comes_or_goes(self, reachable):
        self.world.set_reachable(reachable=reachable)

    @rule(step=st.sampled_from(["reach", "reach", "reach", "not sent", "lose", "reach and lose"]))
    def adapter_steps(self, step):
        self.world.adapter(step)

    @rule(step=st.sampled_from(["stall", "flow", "publish", "publish", "release", "release"]))
    def line_steps(self, step):
        """A line stalls or flows; at QoS 2 PUBLISH or PUBREL goes alone."""
        getattr(self.world.line, step)()

    @rule(again=st.booleans())
    def device_answers(self, again):
        self.world.answer(again=again)

    @rule(what=st.sampled_from(["back up", "back up", "back up", "restore", "empty card", "ten days"]))
    def something_rare_happens(self, what):
        {"back up": back_up, "restore": restore, "empty card": empty_card, "ten days": ten_days}[what](self.world)

    @rule(what=st.sampled_from(["line", "line", "bridge", "zombie", "gateway", "power"]))
    def something_fails(self, what):
        if what == "line":
            self.world.disconnect()
        elif what in ("bridge", "zombie"):
            self.world.bridge_dies(zombie=what == "zombie")
        else:
            self.world.gateway_dies(reboot=what == "power")

    @rule()
    def gateway_connects(self):
        self.world.connect()

    @rule(seconds=st.sampled_from([0.1, 0.1, 1.0, 1.0, 6.0, 700.0]), hours=st.sampled_from([0, 0, 0, 48, -48]))
    def time_passes(self, seconds, hours):
        """The bridge's wall clock may jump besides."""
        self.world.jump_ms = hours * 3_600_000
        self.world.loop.advance(seconds)

    def teardown(self):
        if not hasattr(self, "world"):
            return
        world = self.world
        world.settle_down()
        assert not world.line.late
        for command_id, message in world.asked.items():
            record = world.truth.get(command_id)
            if record is None:
                excused = world.unrecorded | world.old
                assert not world.effects[command_id] or command_id in excused, "it was done, and nobody knows it"
            else:
                self.check(command_id, message, record)
        self.check_order()

    def check(self, command_id, message, record):
        """All have the same verdict on one command, and nothing has happened that it denies."""
        world = self.world
        at_bridge, at_gateway = world.bridge.side.table.registry.get(command_id), world.journal_state(command_id)
        story = f"{record.state} at the topic, {at_bridge.state} at the bridge, {at_gateway} at the gateway"
        assert record.final, story
        ENDS[record.state] += 1
        assert at_bridge.state is record.state, story
        assert at_gateway in (None, record.state) or command_id in world.forgotten, story
        if record.state is CommandState.IN_DOUBT:
            assert command_id in world.in_doubt | world.forgotten, f"{story}: no byte of it can have left"
        if not record.digest and command_id in world.forgotten:
            return  # it is known from its reply alone, and the journal that could confirm an operator's copy is gone
        heard = world.heard.get(command_id)
        if heard is not None:
            assert heard.properties["state"] == record.state.value, (story, heard.properties["state"])
        else:
            outcomes = [outcome for settled, outcome in world.settled if settled == command_id]
            told = outcomes and outcomes[-1].state in (DeliveryState.REJECTED, DeliveryState.RELEASED)
            assert told, f"{story}, and the operator heard nothing but {outcomes}"
        if command_id in world.unrecorded:
            return
        effects = world.effects[command_id]
        assert effects <= 1 or message.properties["idempotent"], story
        if record.state in DID_NOTHING or record.status in (Status.OFFLINE, Status.QUOTA):
            assert not effects, f"{story}, but it was done"
        if record.state is CommandState.SUCCEEDED:
            assert effects, story
        for cancelled, attempt, outcome in world.cancels:
            if cancelled == command_id and attempt == record.attempt and outcome.state is not DeliveryState.MODIFIED:
                was_cancelled = record.state is CommandState.CANCELLED
                assert (outcome.state is DeliveryState.ACCEPTED) == was_cancelled, f"{story}, but a client was told {outcome}"
        if record.replaced_by and record.state is CommandState.CANCELLED:
            REPLACED[record.state] += 1
            assert heard is None or heard.body.decode() == f"replaced by {record.replaced_by}"

    def check_order(self):
        """The device does durable commands in the order of their acceptance, and none after one that has replaced it."""
        world = self.world
        first = {command_id: world.done.index(command_id) for command_id in world.effects.keys() - world.line.overtaken}
        in_order = [first[command_id] for command_id in world.accepted if command_id in first]
        assert in_order == sorted(in_order), f"accepted {world.accepted}, done {world.done}"
        for place, newest in enumerate(world.accepted):
            record = world.truth.get(newest)
            if record is not None and record.newest_wins and newest in first:
                older = set(world.accepted[:place]) & set(world.done[first[newest] :])
                assert not older, f"{older} came after {newest}, which has replaced it"


def _steps(examples: int, length: int) -> settings:
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    return settings(
        max_examples=examples,
        stateful_step_count=length,
        suppress_health_check=slow,
        deadline=None,
    )


def test_everyone_agrees_about_every_command_however_its_steps_are_mixed():
    """15,000 steps."""
    run(300)


def test_gateway_is_not_asked_to_cancel_a_command_that_the_bridge_is_ending():
    """A command that expires is replaced before its end is committed: EXPIRED everywhere."""
    races = Races()
    races.begin(reachable=False, durable=True)
    races.something_fails("line")
    races.all_parts_step(1)
    races.replace(4, ttl_s=5)
    races.time_passes(700.0, hours=0)
    races.bridge_commits(1)
    races.teardown()
    assert {record.state for record in map(races.world.truth.get, races.world.asked)} == {CommandState.EXPIRED}


@pytest.mark.parametrize(
    ("waits_s", "begins", "state"),
    [(0.0, False, CommandState.EXPIRED), (6.0, False, CommandState.EXPIRED), (6.0, True, CommandState.IN_DOUBT)],
)
def test_the_verdict_on_an_attempt_whose_record_was_lost_is_everybodys(waits_s, begins, state):
    """A refused direct command is sent again and taken; the bridge dies before it has written that."""
    races = Races()
    races.begin(reachable=False, durable=False)
    races.ask(2, durable=False, idempotent=False, ttl_s=5)
    races.all_parts_step(2)
    races.device_comes_or_goes(reachable=True)
    races.ask(2, durable=False, idempotent=False, ttl_s=5)
    races.gateway_receives(1)
    if begins:
        races.gateway_commits_and_goes_on()
        races.gateway_commits_and_goes_on()
        races.adapter_steps("reach")
    races.something_fails("bridge")
    if waits_s:
        races.time_passes(waits_s, hours=0)
        races.gateway_connects()
        races.all_parts_step(1)
        races.ask(2, durable=False, idempotent=False, ttl_s=5)
    races.teardown()
    second = list(races.world.asked)[1]
    assert races.world.truth.get(second).state is state


def test_a_device_that_comes_between_two_commands_gets_the_first_one_first():
    """The journal has not committed the first one when the device comes and the second one arrives."""
    races = waiting_at_the_gateway()
    races.device_comes_or_goes(reachable=True)
    races.ask(2, durable=True, idempotent=False, ttl_s=600)
    races.bridge_commits(1)
    races.gateway_receives(1)
    for _ in range(4):
        races.gateway_commits_and_goes_on()
        races.device_does_it(again=False)
    assert races.world.done == races.world.accepted
    races.teardown()


def test_a_command_that_expires_before_the_journal_has_it_stops_no_other_one():
    races = waiting_at_the_gateway()
    races.time_passes(700.0, hours=0)
    races.device_comes_or_goes(reachable=True)
    races.all_parts_step(2)
    races.ask(2, durable=True, idempotent=False, ttl_s=600)
    races.all_parts_step(2)
    races.device_does_it(again=False)
    states = [races.world.truth.get(each).state for each in races.world.asked]
    assert states == [CommandState.EXPIRED, CommandState.SUCCEEDED]
    races.teardown()


def waiting_at_the_gateway() -> Races:
    """A durable command has arrived at the gateway, and its journal has not committed it."""
    races = Races()
    races.begin(reachable=False, durable=True)
    races.bridge_commits(1)
    races.gateway_receives(1)
    return races


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_everyone_agrees_after_250_000_steps():
    run(5000)


def run(examples):
    ENDS.clear()
    REPLACED.clear()
    run_state_machine_as_test(Races, settings=_steps(examples, 50))
    found = ", ".join(f"{count} {state}" for state, count in sorted(ENDS.items()))
    print(f"{examples * 50} steps: at most one effect, none of what expired or was cancelled, one end everywhere: {found}")
    assert ENDS.keys() >= {"SUCCEEDED", "REJECTED", "EXPIRED", "CANCELLED", "IN_DOUBT"}
    assert REPLACED, "no command was replaced"
