"""The rights of each process in Kafka, and the problems of a cluster's ACLs. Pure.

Operations and kinds of resources have Kafka's names in lower case. `tests/flows/test_secured_flow.py` runs every process with
these rights only.
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from fogline.errors import Misconfigured
from fogline_cloud.kafka import topics


class KafkaRole(StrEnum):
    """A process, or a person, that has a principal of its own in Kafka."""

    BRIDGE = "bridge"
    FLOW = "flow"
    OPERATOR = "operator"
    API = "api"


class Right(NamedTuple):
    """One operation of a principal on one resource. A `name` that ends with `*` stands for all that begin so."""

    principal: str
    operation: str
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.principal} may {self.operation} {self.kind} {self.name}"


class Acl(NamedTuple):
    """One ACL of the cluster. `pattern`: `literal` or `prefixed`. `host`: `*` for every host."""

    allow: bool
    principal: str
    host: str
    operation: str
    kind: str
    pattern: str
    name: str

    def __str__(self) -> str:
        name = f"{self.name}*" if self.pattern == "prefixed" else self.name
        return f"{self.principal} may {self.operation} {self.kind} {name}"


Principals = Sequence[tuple[KafkaRole, str]]
EVERYBODY: Final = "User:*"
_IMPLIED: Final = {"describe": {"read", "write", "delete", "alter"}, "describe_configs": {"alter_configs"}}
"""For an operation, those that include it."""


def read_principals(texts: Iterable[str]) -> Principals:
    """Read the arguments of `--acls`, such as `bridge=User:bridge`. Raises `Misconfigured`."""
    found: list[tuple[KafkaRole, str]] = []
    for text in texts:
        role, _, principal = text.partition("=")
        if role not in {each.value for each in KafkaRole}:
            raise Misconfigured(f"--acls {text}: expected bridge, flow, operator or api, for example bridge=User:bridge")
        if not principal.startswith("User:") or principal in ("User:", EVERYBODY):
            raise Misconfigured(f"--acls {text}: expected one principal of Kafka, for example {role}=User:{role}")
        found.append((KafkaRole(role), principal))
    bridges = _bridges(found)
    if not bridges:
        raise Misconfigured("--acls: the bridge is missing, for example bridge=User:bridge")
    if shared := next((each for each in found if each[0] is not KafkaRole.BRIDGE and each[1] in bridges), None):
        raise Misconfigured(f"--acls {shared[0]}={shared[1]}: the bridge needs a principal of its own")
    return found


def rights(tenant: str, shards: int, principals: Principals, names: Sequence[str] = ()) -> list[Right]:
    """Return the rights that the principals need, and no others. `names`: of the further topics of readings."""
    found = {Right(principal, *each) for role, principal in principals for each in _needs(role, tenant, shards, names)}
    return sorted(found)


def problems(tenant: str, shards: int, principals: Principals, acls: Sequence[Acl], names: Sequence[str] = ()) -> list[str]:
    """Return the missing rights, and the ACLs that give others the rights of the bridge, a line each. `names`: as `rights`."""
    wanted = rights(tenant, shards, principals, names)
    missing = [f"missing: {each}" for each in wanted if not _has(each, acls)]
    own = list(_exclusive(tenant, shards))
    bridges = _bridges(principals)
    foreign = [
        f"foreign: {acl}; only the bridge ({', '.join(sorted(bridges))}) should"
        for acl in acls
        if acl.allow and acl.principal not in bridges and any(_covers(acl, *each) for each in own)
    ]
    return [*missing, *sorted(set(foreign))]


def _needs(role: KafkaRole, tenant: str, shards: int, names: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yield operation, kind and name for everything that a role does."""
    raw, derived = topics.raw_topics(tenant), topics.derived_topics(tenant, names)
    yield "describe", "group", topics.READER_GROUP  # every consumer asks for the coordinator of its group
    if role is KafkaRole.BRIDGE:
        yield from _exclusive(tenant, shards)
        yield from _each(("read", "describe_configs"), raw)
        yield from _each(("read",), [topics.commands(tenant), topics.audit(tenant), topics.devices(tenant), topics.crl(tenant)])
        yield from _each(("describe",), derived)
        yield "read", "topic", topics.command(tenant)
    elif role is KafkaRole.FLOW:
        yield from _each(("read",), raw)
        yield from _each(("write",), derived)
    elif role is KafkaRole.API:
        readings = [topics.canonical(tenant), *(topics.canonical_topic(tenant, name) for name in names)]
        own = [topics.commands(tenant), topics.devices(tenant), *readings, topics.audit(tenant)]
        yield from _each(("read",), own)
        yield from _each(("describe",), raw)  # the page of the flow tells what waits there
    else:
        yield from _each(("read",), [*raw, topics.audit(tenant)])


def _exclusive(tenant: str, shards: int) -> Iterator[tuple[str, str, str]]:
    """Yield the rights that nobody but the bridge should have."""
    own = [topics.commands(tenant), topics.audit(tenant), topics.devices(tenant), topics.crl(tenant)]
    yield from _each(("write",), [*topics.raw_topics(tenant), *own])
    yield from _each(("read", "write"), [topics.checkpoint(tenant), topics.credentials(tenant)])
    yield "read", "group", topics.bridge_group(tenant)
    yield "read", "group", topics.command_group(tenant)
    yield "read", "group", topics.consumer_group(tenant, "*")
    for each in (*range(shards), topics.COMMAND_KEY):
        yield "write", "transactional_id", topics.transactional_id(tenant, each)


def _each(operations: Iterable[str], names: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    return ((operation, "topic", name) for name in names for operation in operations)


def _bridges(principals: Principals) -> set[str]:
    return {principal for role, principal in principals if role is KafkaRole.BRIDGE}


def _has(right: Right, acls: Iterable[Acl]) -> bool:
    """Return True if the ACLs allow it from every host, and none denies it."""
    _, operation, kind, name = right
    about = [acl for acl in acls if acl.principal in (right.principal, EVERYBODY)]
    denied = any(not acl.allow and acl.operation in (operation, "all") and _names(acl, kind, name) for acl in about)
    return not denied and any(acl.allow and acl.host == "*" and _covers(acl, operation, kind, name) for acl in about)


def _covers(acl: Acl, operation: str, kind: str, name: str) -> bool:
    return acl.operation in {operation, "all", *_IMPLIED.get(operation, ())} and _names(acl, kind, name)


def _names(acl: Acl, kind: str, name: str) -> bool:
    return acl.kind == kind and (name.startswith(acl.name) if acl.pattern == "prefixed" else acl.name in ("*", name))
