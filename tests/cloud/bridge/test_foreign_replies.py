"""A gateway speaks for its own commands only (B2), against a real broker with two gateways on one shard."""

import queue
import time

import pytest

from cloud.shard.reply_batches import IDS, is_gap, landed, replies
from cloud.shard.shard_bench import LIMIT_S, Answers, Bench
from fogline.amqp.outcome import ACCEPTED
from fogline.commands.command import CommandState
from fogline.events.gap import decode_gap
from fogline_cloud.audit.record import AuditRecord, decode_audit
from fogline_cloud.audit.throttle import BURST
from fogline_cloud.commands.record import CommandRecord
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.committed_records import read_committed
from fogline_cloud.shard.recovery import read_commands
from fogline_cloud.shard.shard import Shard
from fogline_cloud.shard.work.command_changes import CommandChange
from fogline_lab.bridge.command_records import make_record

LATER_MS = int(time.time() * 1000) + 600_000


def write(shard: Shard, written: CommandRecord) -> CommandRecord:
    """Have a command's record written; return the current one after that."""
    done: queue.SimpleQueue[CommandRecord] = queue.SimpleQueue()
    shard.submit(CommandChange(written, done.put, lambda: done.put(written)))
    return done.get(timeout=LIMIT_S)


def states(bench: Bench) -> dict[str, CommandState]:
    return {each.id: each.state for each in read_commands(bench.clients, bench.tenant, 0)}


def audits(bench: Bench) -> list[AuditRecord]:
    stored = read_committed(bench.clients, {(topics.audit(bench.tenant), 0): None})
    return [decode_audit(each.value) for each in stored]


@pytest.mark.fault("S3")
@pytest.mark.parametrize(
    ("gateway", "change"),
    [("gw-2", {}), ("gw-2", {"device": "lamp-9"}), ("gw-1", {"device": "lamp-9"}), ("gw-2", {"commandstate": "PAUSED"})],
)
def test_only_the_commands_own_gateway_and_device_end_it(bench, gateway, change):
    """B2: the foreign reply leaves a gap record without a body and a line in the audit; the real one ends the command."""
    shard, answers = bench.shard(issued=IDS.issued), Answers()
    asked = write(shard, make_record(IDS.new(), tenant=bench.tenant, expires_ms=LATER_MS))
    answers.submit(shard, replies(bench, {"commandid": asked.id, "data": b"forged", **change}, gateway=gateway))
    assert answers.next() == ACCEPTED
    assert states(bench) == {asked.id: CommandState.ACCEPTED}
    (refused,) = landed(bench)
    gap = decode_gap(refused.value)
    assert (is_gap(refused), gap.id, gap.device, gap.body_base64) == (True, None, None, None)
    assert b"forged" not in refused.value
    audit = audits(bench)[-1]
    assert (audit.decision, audit.command, audit.gateway) == ("REPLY REFUSED", asked.id, gateway)
    stream = "00112233445566cc"
    answers.submit(shard, replies(bench, {"commandid": asked.id, "stream": stream}, stream=stream))
    assert answers.next() == ACCEPTED
    assert states(bench) == {asked.id: CommandState.SUCCEEDED}
    assert shard.counters.retaken == 0


@pytest.mark.fault("S3")
@pytest.mark.parametrize("guessed", ["c" * 32, "a/b", "x" * 5000, ""])
def test_a_reply_to_a_command_that_no_bridge_made_is_refused(bench, guessed):
    """B2: nobody can make a record under an identifier before the command itself comes."""
    shard, answers = bench.shard(issued=IDS.issued), Answers()
    answers.submit(shard, replies(bench, {"commandid": guessed}, gateway="gw-2"))
    assert answers.next() == ACCEPTED
    assert (states(bench), [is_gap(each) for each in landed(bench)]) == ({}, [True])
    assert write(shard, make_record("c" * 32, tenant=bench.tenant)).state is CommandState.ACCEPTED


def test_a_reply_in_another_tenants_name_writes_no_command_and_counts_once(bench):
    """Sister of B2: the event is refused for its tenant, and must not end or make a command on its way."""
    shard, answers = bench.shard(issued=IDS.issued), Answers()
    answers.submit(shard, replies(bench, {"commandid": IDS.new(), "tenant": "other"}))
    assert answers.next() == ACCEPTED
    assert (states(bench), [is_gap(each) for each in landed(bench)]) == ({}, [True])
    assert b"lamp-1" not in landed(bench)[0].value
    assert [known.refused for known in shard._commits.owned.admission.known.values()] == [1]


def test_a_refused_reply_does_not_move_its_device_to_the_gateway_that_sent_it(bench):
    """Sister of B2: a route learned from a forged reply would send the device's next command to the forger."""
    shard, answers = bench.shard(issued=IDS.issued), Answers()
    answers.submit(shard, replies(bench, {"commandid": "c" * 32, "device": "door-1"}, gateway="gw-2"))
    assert answers.next() == ACCEPTED
    assert shard._routes.gateway_of("door-1") is None


def test_a_reply_to_a_command_of_a_bridge_that_died_is_taken(bench):
    """The bridge sent a direct command and died before it wrote a record: the device's answer is not lost."""
    shard, answers = bench.shard(issued=IDS.issued), Answers()
    command_id = IDS.new()
    answers.submit(shard, replies(bench, {"commandid": command_id}))
    assert answers.next() == ACCEPTED
    assert (states(bench), [is_gap(each) for each in landed(bench)]) == ({command_id: CommandState.SUCCEEDED}, [False])


@pytest.mark.fault("S3")
def test_a_flood_of_refused_replies_leaves_a_gap_record_each_and_few_audit_lines(bench):
    """Sister of B2: a lying gateway could fill the audit topic."""
    shard, answers = bench.shard(issued=IDS.issued), Answers()
    answers.submit(shard, replies(bench, *({"commandid": "made-up"} for _ in range(3 * BURST)), gateway="gw-2"))
    assert answers.next() == ACCEPTED
    assert [is_gap(each) for each in landed(bench)] == [True] * 3 * BURST
    assert len(audits(bench)) == BURST
