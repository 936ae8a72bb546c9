"""`fogline topics`: create and check the tenant's topics, and Kafka's ACLs for them; raise the number of shards."""

import argparse
import json
from typing import Any

from fogline.process.console.command_line import add_watch
from fogline.process.console.terminal import show, tell
from fogline_cloud.cli.common import add_command, add_group
from fogline_cloud.kafka import acl_admin
from fogline_cloud.kafka import rights as kafka_rights
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.settings import CloudSettings, load
from fogline_cloud.shard import topic_admin
from fogline_cloud.shard.reshard import reshard

EXAMPLE = """\
examples:
  fogline topics create --replication 3
  fogline topics create --acls bridge=User:bridge flow=User:flow operator=User:alice
  fogline topics check --acls bridge=User:bridge flow=User:flow operator=User:alice
  fogline topics reshard     # after `shards` was raised in the settings of all processes; then start them again
"""


def register(groups: "argparse._SubParsersAction[Any]") -> None:
    """Add the subcommands."""
    raw: dict[str, Any] = {"epilog": EXAMPLE, "formatter_class": argparse.RawDescriptionHelpFormatter}
    commands = add_group(groups, "topics", "create and check the Kafka topics", description=__doc__, **raw)
    create = add_command(commands, "create", run_create, "create the missing topics", **raw)
    create.add_argument("--replication", type=int, default=1, help="copies of each partition (default: 1)")
    check = add_command(commands, "check", run_check, "print the problems", **raw)
    add_watch(check)
    about = "raise the number of shards to `shards` of the settings, and move what belongs to other shards then"
    grow = add_command(commands, "reshard", run_reshard, about, **raw)
    for each, what in ((create, "also create"), (check, "also check"), (grow, "first create")):
        about = f"{what} the ACLs for the Kafka principals of the bridge, the flow and operators"
        each.add_argument("--acls", nargs="+", metavar="ROLE=PRINCIPAL", help=about)


def run_create(arguments: argparse.Namespace) -> int:
    """Create the missing topics, and the ACLs before them."""
    settings = load(arguments.config)
    clients = KafkaClients(settings.kafka)
    rights: list[kafka_rights.Right] = []
    if arguments.acls is not None:
        rights = _create_acls(clients, settings, arguments.acls)
    created = topic_admin.create_topics(clients, settings, arguments.replication)
    if arguments.json:
        show(json.dumps({"created": created, "shards": settings.shards, "acls": [str(each) for each in rights]}))
        return 0
    show(f"created {len(created)} topics with {settings.shards} shards" if created else "all topics exist")
    if rights:
        show(f"Kafka has the {len(rights)} ACLs")
    return 0


def run_reshard(arguments: argparse.Namespace) -> int:
    """Raise the number of shards. A command that was killed goes on where it ended."""
    settings = load(arguments.config)
    if arguments.acls is not None:
        _create_acls(KafkaClients(settings.kafka), settings, arguments.acls)
    done = reshard(settings)
    if arguments.json:
        show(json.dumps({"former": done.former, "shards": done.shards, "moved": dict(done.moved)}))
    elif done.former == done.shards:
        show(f"{settings.tenant} has {done.shards} shards already")
    else:
        moved = ", ".join(f"{count} of {topic}" for topic, count in sorted(done.moved.items()))
        show(f"{settings.tenant} has {done.shards} shards, and had {done.former}; records that moved: {moved}")
    return 0


def _create_acls(clients: KafkaClients, settings: CloudSettings, texts: list[str]) -> list[kafka_rights.Right]:
    principals, names = kafka_rights.read_principals(texts), settings.flow.canonical.names
    rights = kafka_rights.rights(settings.tenant, settings.shards, principals, names)
    acl_admin.create_acls(clients, rights)
    return rights


def run_check(arguments: argparse.Namespace) -> int:
    """Print the problems of the topics and, if asked for, of the ACLs. Return 1 if there are any."""
    settings = load(arguments.config)
    clients = KafkaClients(settings.kafka)
    principals = kafka_rights.read_principals(arguments.acls) if arguments.acls is not None else None
    problems = topic_admin.check_topics(clients, settings)
    if principals is not None:
        acls, names = acl_admin.read_acls(clients), settings.flow.canonical.names
        problems += kafka_rights.problems(settings.tenant, settings.shards, principals, acls, names)
    return report(problems, as_json=arguments.json)


def report(problems: list[str], *, as_json: bool) -> int:
    """Print problems. Return the exit status, 1 if there are any."""
    if as_json:
        show(json.dumps({"ok": not problems, "problems": problems}))
    elif not problems:
        show("no problems found")
    for each in problems:
        tell(f"{each}")
    return 1 if problems else 0
