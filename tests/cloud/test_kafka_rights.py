"""The rights of each process in Kafka, and the judgement of a cluster's ACLs."""

import pytest

from fogline.errors import Misconfigured
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.rights import Acl, KafkaRole, Right, problems, read_principals, rights

EACH = ["bridge=User:b", "flow=User:f", "operator=User:o"]
PRINCIPALS = read_principals(EACH)


def given(*found: Right) -> list[Acl]:
    return [Acl(True, each.principal, "*", each.operation, each.kind, "literal", each.name) for each in found]


def acl(principal="User:x", operation="write", kind="topic", name="hono.telemetry.t", *, pattern="literal", **other):
    values = {"allow": True, "host": "*", **other}
    return Acl(principal=principal, operation=operation, kind=kind, pattern=pattern, name=name, **values)


def judged(*more: Acl, without: Right | None = None) -> list[str]:
    made = [each for each in rights("t", 2, PRINCIPALS) if each != without]
    return problems("t", 2, PRINCIPALS, [*given(*made), *more])


def test_only_the_bridge_may_write_raw_topics_and_read_its_secret():
    writers = {(each.name, each.principal) for each in rights("t", 2, PRINCIPALS) if each.operation == "write"}
    for name in topics.raw_topics("t"):
        assert {principal for topic, principal in writers if topic == name} == {"User:b"}
    readers = {each.principal for each in rights("t", 2, PRINCIPALS) if each.name == topics.checkpoint("t")}
    assert readers == {"User:b"}


def test_transactional_ids_are_named_one_by_one():
    """A prefix would cover the ids of another tenant whose name begins with this one and a dash."""
    names = [each.name for each in rights("t", 2, PRINCIPALS) if each.kind == "transactional_id"]
    assert names == ["fogline-t-0", "fogline-t-1", "fogline-t-command-key"]


def test_the_made_acls_have_no_problems():
    assert judged() == []


@pytest.mark.parametrize("right", rights("t", 2, PRINCIPALS), ids=str)
def test_each_missing_right_is_found(right):
    assert judged(without=right) == [f"missing: {right}"]


@pytest.mark.parametrize(
    "wider",
    [
        acl("User:f", "all", name="*"),
        acl("User:f", "write", name="fogline.", pattern="prefixed"),
        acl("User:*", "write", name="fogline.dead.t"),
    ],
    ids=str,
)
def test_a_wider_acl_gives_the_right_too(wider):
    missing = Right("User:f", "write", "topic", "fogline.dead.t")
    assert not [each for each in judged(wider, without=missing) if each.startswith("missing")]


def test_an_acl_for_one_host_is_not_enough():
    missing = Right("User:f", "write", "topic", "fogline.dead.t")
    assert judged(acl("User:f", name="fogline.dead.t", host="10.0.0.1"), without=missing) == [f"missing: {missing}"]


def test_a_denied_right_is_missing():
    denied = acl("User:*", "all", name="fogline.dead.t", allow=False)
    assert "missing: User:f may write topic fogline.dead.t" in judged(denied)


@pytest.mark.parametrize(
    "foreign",
    [
        acl(),
        acl("User:*"),
        acl("User:f"),
        acl(operation="all"),
        acl(name="*"),
        acl(name="hono.", pattern="prefixed"),
        acl(host="10.0.0.1"),
        acl(name="fogline.commands.t"),
        acl(name="fogline.audit.t"),
        acl(operation="read", name="fogline.checkpoint.t"),
        acl(operation="read", kind="group", name="fogline-bridge-t"),
        acl(kind="transactional_id", name="fogline-t-1"),
        acl(kind="transactional_id", name="fogline-t", pattern="prefixed"),
    ],
    ids=str,
)
def test_an_acl_that_gives_others_a_right_of_the_bridge_is_found(foreign):
    assert judged(foreign) == [f"foreign: {foreign}; only the bridge (User:b) should"]


@pytest.mark.parametrize(
    "harmless",
    [
        acl(allow=False),
        acl("User:b"),
        acl(operation="read"),
        acl(name="hono.telemetry.t2"),
        acl(name="fogline.canonical.t"),
        acl(kind="group", operation="read", name="hono.telemetry.t"),
        acl(kind="transactional_id", name="fogline-t-1-0"),
    ],
    ids=str,
)
def test_other_acls_are_left_alone(harmless):
    assert not [each for each in judged(harmless) if each.startswith("foreign")]


def test_a_role_may_have_several_principals():
    both = read_principals(["bridge=User:CN=b-1,O=acme", "bridge=User:CN=b-2,O=acme"])
    assert both == [(KafkaRole.BRIDGE, "User:CN=b-1,O=acme"), (KafkaRole.BRIDGE, "User:CN=b-2,O=acme")]
    assert problems("t", 2, both, given(*rights("t", 2, both))) == []


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["flow=User:f"], "the bridge is missing"),
        (["bridge"], "bridge=User:bridge"),
        (["bridge=b"], "bridge=User:bridge"),
        (["bridge=User:*"], "one principal"),
        (["admin=User:a"], "expected bridge, flow, operator or api"),
        (["bridge=User:b", "flow=User:b"], "the bridge needs a principal of its own"),
    ],
)
def test_a_wrong_argument_is_refused_with_an_example(texts, said):
    with pytest.raises(Misconfigured, match=said):
        read_principals(texts)
