"""X7: commands are cancelled at the bridge, if it cannot have sent them, or by their gateway."""

from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from cloud.commands.direct_bench import OTHER, Bench
from fogline.address import CommandAddress
from fogline.amqp.outcome import ACCEPTED, RELEASED
from fogline.commands.command import CommandState, Reply, Status
from fogline.errors import Poison
from fogline.message import Message, pack_id
from fogline_cloud.access.access_file import AccessFile, OperatorGrant, Permissions
from fogline_cloud.access.policy import Policy
from fogline_cloud.access.principal import Principal, PrincipalKind
from fogline_cloud.bridge.commands.cancels import outcome_of
from fogline_cloud.commands.command_id import CommandIds
from fogline_cloud.commands.record import audit_of, ended
from fogline_cloud.commands.request import read_cancel
from fogline_cloud.commands.succession import as_cancelled, keep_cancellation
from fogline_lab.bridge.command_records import make_record

WHO = Principal(PrincipalKind.CLIENT, "acme", "op-2", "password")


class CancelBench(Bench):
    """A bench whose operators cancel command C1. `verdicts`: what they get."""

    def __init__(self):
        super().__init__()
        self.verdicts = []

    def cancel(self, wait_s=60.0):
        self.commands.operators.cancels.cancel("C1", WHO, self._decided, wait_s)

    def _decided(self, record):
        self.verdicts.append(outcome_of(record))

    @property
    def kinds(self):
        return [kind for kind, _ in self.sent]

    async def end(self, state, status):
        """The gateway's reply arrives, as a shard reports it."""
        verdict = ended(self.truth.get("C1"), state, Reply(status), self.commands.table.now_ms())
        self.truth.change(verdict)
        self.commands.table.learn([verdict])
        await self.turn()


async def test_a_command_that_never_left_the_bridge_is_cancelled_there_and_not_sent():
    bench = CancelBench()
    bench.submit(durable=True)
    await bench.commit()
    bench.cancel()
    bench.connect()
    assert (bench.verdicts, bench.kinds) == ([], [])
    await bench.commit()
    bench.cancel()
    assert bench.verdicts == [ACCEPTED, ACCEPTED]
    assert (bench.known.state, bench.known.status, bench.known.owes_reply) == (CommandState.CANCELLED, 410, True)
    assert audit_of(bench.known).who == str(WHO)
    assert bench.kinds == []
    bench.commands.close()


@pytest.mark.parametrize("durable", [True, False])
async def test_a_command_that_was_sent_is_cancelled_by_its_gateway_only(durable):
    bench = CancelBench()
    bench.connect()
    bench.submit(durable=durable)
    await bench.commit()
    await bench.settle(ACCEPTED)
    await bench.commit()
    bench.cancel()
    assert bench.kinds == ["command"]  # not before it is committed
    await bench.commit()
    assert (bench.kinds, bench.known.state) == (["command", "cancel"], CommandState.CANCELLING)
    await bench.settle(ACCEPTED)
    bench.cancel()
    assert bench.verdicts == []
    await bench.end(CommandState.CANCELLED, Status.CANCELLED)
    assert bench.verdicts == [ACCEPTED, ACCEPTED]
    bench.commands.close()


async def test_late_cancellation_gets_the_state_for_every_client():
    bench = CancelBench()
    bench.connect()
    bench.submit()
    await bench.commit()
    bench.cancel()
    await bench.commit()
    await bench.end(CommandState.SUCCEEDED, 200)
    bench.cancel()
    assert [(each.condition, each.description.partition(":")[0]) for each in bench.verdicts] == [
        ("fogline:too-late", "SUCCEEDED")
    ] * 2
    bench.commands.close()


async def test_a_gateway_that_did_not_take_the_command_still_decides_about_its_cancellation():
    """Else the bridge would say REJECTED, and the gateway's journal CANCELLED."""
    bench = CancelBench()
    bench.connect()
    bench.submit()
    await bench.commit()
    bench.cancel()
    await bench.settle(RELEASED)
    await bench.commit()
    assert (bench.known.state, bench.kinds) == (CommandState.CANCELLING, ["command", "cancel"])
    await bench.end(CommandState.CANCELLED, Status.CANCELLED)
    assert (bench.settled, bench.verdicts) == ([ACCEPTED], [ACCEPTED])
    bench.commands.close()


async def test_a_cancellation_outlives_its_bridge_and_the_command_is_not_sent_by_the_next():
    bench = CancelBench()
    bench.connect()
    bench.submit(durable=True)
    await bench.commit()
    bench.disconnect()
    bench.cancel()
    await bench.commit()
    heir = bench.heir()
    heir.__class__ = CancelBench
    heir.verdicts = []
    await heir.turn()
    heir.cancel(0.0)
    heir.connect()
    assert heir.kinds == ["cancel"]
    await heir.end(CommandState.CANCELLED, Status.CANCELLED)
    heir.cancel()
    assert [str(each) for each in heir.verdicts][-1] == "accepted"
    heir.commands.close()
    bench.commands.close()


async def test_a_gateway_with_another_command_of_this_id_ends_it_as_a_conflict():
    bench = CancelBench()
    bench.connect()
    bench.submit()
    await bench.commit()
    bench.cancel()
    await bench.commit()
    await bench.settle(OTHER)
    await bench.commit()
    assert (bench.known.state, bench.known.status) == (CommandState.REJECTED, 409)
    bench.commands.close()


async def test_command_without_a_timely_decision_is_asked_for_again():
    bench = CancelBench()
    bench.connect()
    bench.submit()
    await bench.commit()
    bench.cancel(0.0)
    await bench.commit()
    while not bench.verdicts:
        await bench.turn()
    assert [each.state.value for each in bench.verdicts] == ["modified"]
    bench.commands.close()


async def test_a_cancellation_that_may_not_be_committed_is_released_and_can_be_asked_for_again():
    bench = CancelBench()
    bench.submit(durable=True)
    await bench.commit()
    bench.cancel()
    bench.shard.changes.get_nowait().give_up()
    await bench.turn()
    assert bench.verdicts == [RELEASED]
    bench.cancel()
    await bench.commit()
    assert bench.verdicts == [RELEASED, ACCEPTED]
    bench.shard.ready = False
    bench.cancel()
    assert bench.verdicts[-1] == RELEASED
    bench.commands.close()


async def test_client_without_the_right_to_send_a_command_cannot_cancel_it():
    bench = CancelBench()
    bench.submit(durable=True)
    await bench.commit()
    grant = OperatorGrant(name="op-2", devices=["lamp-1"], commands=["blink"])
    bench.commands.operators.cancels._policy = Policy("acme", 1, access=lambda: Permissions(AccessFile(operator=[grant])))
    with pytest.raises(Poison, match="may not cancel command 'switch' to lamp-1") as refused:
        bench.cancel()
    assert refused.value.reason == "not-authorised"
    with pytest.raises(Poison, match="not known here") as unknown:
        bench.commands.operators.cancels.cancel("C9", WHO, bench.verdicts.append)
    assert unknown.value.reason == "unknown-command"
    assert bench.known.state is CommandState.ACCEPTED
    bench.commands.close()


def test_a_request_names_the_command_by_its_id_or_by_the_operators_own():
    ids, address = CommandIds(b"k" * 32), CommandAddress("acme", "")
    message = Message(correlation_id=7, reply_to="command_response/acme/me", properties={"cancel": True})
    assert read_cancel(message, address, WHO, ids=ids) == ids.of_message("acme", "op-2", "me", pack_id(7))
    assert read_cancel(Message(properties={"cancel": "C1"}), address, WHO, ids=ids) == "C1"
    assert read_cancel(Message(), address, WHO, ids=ids) is None
    for wrong in (replace(message, correlation_id=None), Message(properties={"cancel": 7})):
        with pytest.raises(Poison):
            read_cancel(wrong, address, WHO, ids=ids)


# --- newest wins


def newer(command_id="C2", **change):
    return {"id": command_id, "durable": True, "newest_wins": True, **change}


async def test_newer_command_replaces_waiting_ones_at_the_bridge_and_is_the_only_one_sent():
    bench = CancelBench()
    for command_id in ("C1", "C2", "C3"):
        bench.submit(**newer(command_id))
        await bench.commit()
    bench.connect()
    await bench.commit()  # the journal to which it is sent
    known = bench.commands.table.registry.get
    for command_id, newest in (("C1", "C2"), ("C2", "C3")):
        end = known(command_id)
        assert (end.state, end.status, end.why) == (CommandState.CANCELLED, 410, f"replaced by {newest}")
        assert (audit_of(end).who, bench.truth.get(command_id).state) == (end.operator, CommandState.CANCELLED)
    assert known("C3").state is CommandState.ACCEPTED
    assert bench.kinds == ["command"]
    bench.commands.close()


async def test_command_that_may_be_at_the_gateway_is_cancelled_there_before_the_newer_one_is_sent():
    bench = CancelBench()
    bench.connect()
    bench.submit(durable=True)
    await bench.commit()
    await bench.settle(ACCEPTED)
    await bench.commit()
    bench.submit(**newer())
    await bench.commit()
    assert (bench.kinds, bench.known.state) == (["command", "cancel", "command"], CommandState.CANCELLING)
    await bench.end(CommandState.CANCELLED, Status.CANCELLED)
    assert bench.known.state is CommandState.CANCELLED
    bench.commands.close()


async def test_an_heir_goes_on_with_a_replacement_that_was_committed_and_not_asked_for():
    """The newer command and the end of the older one are one transaction."""
    bench = CancelBench()
    bench.submit(durable=True)
    await bench.commit()
    bench.submit(**newer())
    change = bench.shard.changes.get_nowait()
    change.perform(SimpleNamespace(registry=bench.truth, writer=SimpleNamespace(write_command=lambda _: None)))
    heir = bench.heir()
    await heir.turn()
    heir.connect()
    await heir.commit()
    assert [kind for kind, _ in heir.sent] == ["command"]
    assert heir.known.state is CommandState.CANCELLED, "no bridge has sent it"
    heir.commands.close()


@pytest.mark.parametrize("change", [{"device": "lamp-2"}, {"name": "dim"}, {"newest_wins": False}])
async def test_other_commands_are_not_replaced(change):
    bench = CancelBench()
    bench.commands.routes.recall("lamp-2", "gw-1", 1)
    bench.submit(durable=True)
    await bench.commit()
    bench.submit(**newer(**change))
    await bench.commit()
    assert bench.known.state is CommandState.ACCEPTED
    bench.commands.close()


def test_a_doubt_that_was_decided_before_the_replacement_was_known_leaves_the_command_to_its_gateway():
    doubt = ended(make_record(), CommandState.IN_DOUBT, Reply(Status.NO_ANSWER), 9, provisional=True)
    replaced = as_cancelled(make_record(), "client acme/me (asserted)", 5, "C2")
    kept = keep_cancellation(replaced, doubt)
    assert (kept.state, kept.cancelling, kept.replaced_by) == (CommandState.IN_DOUBT, True, "C2")
    assert keep_cancellation(make_record(), doubt) == keep_cancellation(None, doubt) == doubt
