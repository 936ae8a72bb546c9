"""Creates and reads Kafka's ACLs, as an administrator."""

from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from fogline.errors import Misconfigured
from fogline_cloud.kafka.clients import KafkaClients, mapped
from fogline_cloud.kafka.rights import Acl, Right

_LIMIT_S = 30.0
_KINDS = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)


def create_acls(clients: KafkaClients, rights: Iterable[Right]) -> None:
    """Create the ACLs that give the rights. Those that exist stay. Raises `Misconfigured` if Kafka refuses it."""
    bindings = [
        AclBinding(
            ResourceType[each.kind.upper()],
            each.name.removesuffix("*"),
            ResourcePatternType.PREFIXED if each.name.endswith("*") else ResourcePatternType.LITERAL,
            each.principal,
            "*",
            AclOperation[each.operation.upper()],
            AclPermissionType.ALLOW,
        )
        for each in rights
    ]
    admin = clients.admin()
    with _refused("creating ACLs"):
        for future in admin.create_acls(bindings, request_timeout=_LIMIT_S).values():
            future.result(_LIMIT_S)


def read_acls(clients: KafkaClients) -> list[Acl]:
    """Return the cluster's ACLs for topics, groups and transactional ids. Raises `Misconfigured` like `create_acls`."""
    admin = clients.admin()
    with _refused("reading the ACLs"):
        futures: list[Future[list[Any]]] = [
            admin.describe_acls(
                AclBindingFilter(kind, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY),
                request_timeout=_LIMIT_S,
            )
            for kind in _KINDS
        ]
        return [_acl(each) for future in futures for each in future.result(_LIMIT_S)]


def _acl(binding: AclBinding) -> Acl:
    return Acl(
        allow=binding.permission_type is AclPermissionType.ALLOW,
        principal=binding.principal,
        host=binding.host,
        operation=binding.operation.name.lower(),
        kind=binding.restype.name.lower(),
        pattern=binding.resource_pattern_type.name.lower(),
        name=binding.name,
    )


@contextmanager
def _refused(what: str) -> Iterator[None]:
    """Raise `Misconfigured` with the remedy if Kafka has no authorizer, or this user is no administrator."""
    with mapped(what):
        try:
            yield
        except KafkaException as error:
            match error.args[0].code():
                case KafkaError.SECURITY_DISABLED:
                    why = "Kafka checks no ACLs: set authorizer.class.name at every broker"
                case KafkaError.CLUSTER_AUTHORIZATION_FAILED:
                    why = "this user may not: run the command as an administrator of Kafka, such as one of its super.users"
                case _:
                    raise
            raise Misconfigured(f"{what}: {why}") from None
