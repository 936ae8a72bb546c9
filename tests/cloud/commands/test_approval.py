"""Who may approve a command that needs two operators."""

import pytest

from fogline.amqp.outcome import NOT_ALLOWED, UNAUTHORIZED
from fogline.commands.command import CONFLICT, CommandState
from fogline_cloud.access.access_file import AccessFile, ApprovalRule, DeviceBinding, Permissions, loosened
from fogline_cloud.access.principal import ASSERTED, KAFKA, Principal, PrincipalKind
from fogline_cloud.commands.approval import approval_refusal, proposal_refusal
from fogline_cloud.commands.record import audit_of
from fogline_lab.bridge.command_records import make_record


def client(name, proof="certificate"):
    return Principal(PrincipalKind.CLIENT, "acme", name, proof)


def proposed(by=None, **more):
    operator = str(by or client("alice"))
    return make_record(state=CommandState.PROPOSED, operator=operator, durable=True, **more)


def condition(outcome):
    return None if outcome is None else outcome.condition


@pytest.mark.parametrize(
    ("sender", "by", "refused"),
    [
        (client("alice"), client("bob"), None),
        (client("alice"), client("alice"), UNAUTHORIZED),
        (client("alice"), client("alice", "password"), UNAUTHORIZED),
        (client("alice"), client("bob", ASSERTED), UNAUTHORIZED),
        (client("a b) (c"), client("a b) (c", "password"), UNAUTHORIZED),
        (client("a" * 300), client("a" * 299 + "b"), None),
        (client("a" * 300), client("a" * 300, "password"), UNAUTHORIZED),
        (client("writer", KAFKA), client("bob"), None),
        (client("al"), client("alice"), None),
    ],
)
def test_another_person_must_approve_whatever_proves_the_name(sender, by, refused):
    assert condition(approval_refusal(proposed(sender), by)) == refused


@pytest.mark.parametrize("state", [each for each in CommandState if each is not CommandState.PROPOSED])
def test_only_a_command_that_waits_for_it_is_approved(state):
    assert condition(approval_refusal(make_record(state=state), client("bob"))) == CONFLICT


def test_a_command_that_cannot_wait_or_whose_sender_is_unproven_is_refused_at_once():
    assert proposal_refusal(proposed()) is None
    assert condition(proposal_refusal(make_record(operator=str(client("alice")), durable=False))) == NOT_ALLOWED
    assert condition(proposal_refusal(proposed(client("alice", ASSERTED)))) == UNAUTHORIZED


def test_the_audit_names_the_operator_who_approved():
    record = make_record(state=CommandState.ACCEPTED, operator=str(client("alice")), approved_by=str(client("bob")))
    audit = audit_of(record)
    assert (audit.who, audit.decision) == (str(client("bob")), "ACCEPTED")
    assert str(client("alice")) in audit.why


RULES = AccessFile(approval=[ApprovalRule(devices=["lock-*"], commands=["open", "un*"]), ApprovalRule(devices=["valve-1"])])


@pytest.mark.parametrize(
    ("device", "command", "needs"),
    [
        ("lock-1", "open", True),
        ("lock-1", "unlock", True),
        ("lock-1", "close", False),
        ("lamp-1", "open", False),
        ("valve-1", "anything", True),
    ],
)
def test_the_access_file_names_the_commands_that_take_two(device, command, needs):
    assert Permissions(RULES).needs_approval(device, command) is needs


def test_a_file_that_is_cut_off_before_the_approvals_is_not_adopted():
    bound = [DeviceBinding(name="*", gateways=["*"])]
    former = Permissions(AccessFile(device=bound, approval=RULES.approval))
    assert "approval" in loosened(former, Permissions(AccessFile(device=bound)))
    assert loosened(former, Permissions(AccessFile(device=bound, approval=RULES.approval[:1]))) == ""
