"""`fogline topics`: create and check the tenant's topics, and Kafka's ACLs for them; raise the number of shards."""

import argparse
import json
from pathlib import Path
from typing import Any

from fogline.errors import Misconfigured, Unreachable
from fogline.process.console.command_line import add_watch, counted
from fogline.process.console.terminal import show, tell
from fogline_cloud.cli.common import add_command, add_group
from fogline_cloud.kafka import acl_admin
from fogline_cloud.kafka import rights as kafka_rights
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.ledger.ranges import shown
from fogline_cloud.reshard.reshard import reshard
from fogline_cloud.settings import CloudSettings, load
from fogline_cloud.shard import topic_admin

MAX_REPLICAS = 1000
EXAMPLE = """\
examples:
  fogline topics create --replication 3
  fogline topics create --acls bridge=User:bridge flow=User:flow operator=User:alice
  fogline topics check --acls bridge=User:bridge flow=User:flow operator=User:alice
  fogline topics reshard                        after `shards` was raised in the settings of all processes; then start them
  fogline topics rebuild --from-raw             after Kafka was lost (docs/lost-site.md)
"""


def register(groups: "argparse._SubParsersAction[Any]") -> None:
    """Add the subcommands."""
    raw: dict[str, Any] = {"epilog": EXAMPLE, "formatter_class": argparse.RawDescriptionHelpFormatter}
    commands = add_group(groups, "topics", "create and check the Kafka topics", description=__doc__, **raw)
    create = add_command(commands, "create", run_create, "create the missing topics", **raw)
    create.add_argument("--replication", type=counted(MAX_REPLICAS), default=1, help="copies of each partition (default: 1)")
    check = add_command(commands, "check", run_check, "print the problems", **raw)
    add_watch(check)
    about = "raise the number of shards to `shards` of the settings, and move what belongs to other shards then"
    grow = add_command(commands, "reshard", run_reshard, about, **raw)
    for each, what in ((create, "also create"), (check, "also check"), (grow, "first create")):
        about = f"{what} the ACLs for the Kafka principals of the bridge, the flow and operators"
        each.add_argument("--acls", nargs="+", metavar="ROLE=PRINCIPAL", help=about)
    rebuild = add_command(
        commands,
        "rebuild",
        run_rebuild,
        "let the Kafka of the settings take the place of a lost one",
        description="After `fogline topics create`, and while no bridge and no flow runs: take the high-water marks of all "
        "streams and the positions of the flow from the records that a mirror has brought, and from the tables. It can be "
        "repeated.",
        **raw,
    )
    source = rebuild.add_mutually_exclusive_group()
    source.add_argument("--from-raw", action="store_true", help="first write the records of table raw that Kafka lacks")
    source.add_argument(
        "--from-kafka",
        type=Path,
        metavar="FILE",
        help="first copy what Kafka lacks of the streams of another Kafka, that of this settings file",
    )
    compare = add_command(
        commands,
        "compare",
        run_compare,
        "print what another Kafka has and this one lacks: sequences, and records of registry, commands and audit; exit status "
        "1 if there is anything",
        epilog="example: fogline topics compare former.toml",
    )
    compare.add_argument("other", type=Path, metavar="FILE", help="the settings file of the other Kafka")


def run_rebuild(arguments: argparse.Namespace) -> int:
    """Rebuild records, marks and positions in another Kafka."""
    from fogline_cloud.rebuild.rebuild import rebuild  # noqa: PLC0415 - a bridge needs no Arrow

    settings = load(arguments.config)
    other = None if arguments.from_kafka is None else _load_other(arguments.from_kafka, settings)
    found = rebuild(settings, from_raw=arguments.from_raw, other=other, on_step=tell)
    places = [
        (table, *place, offset) for table, of_table in found.positions.items() for place, offset in sorted(of_table.items())
    ]
    if arguments.json:
        names = ("gateway", "stream", "lane", "sequences")
        replaced = [dict(zip(names, each, strict=True)) for each in found.replaced]
        positions = [dict(zip(("table", "topic", "partition", "next"), each, strict=True)) for each in places]
        counts = {"records": found.records, "there": found.there, "marked": found.marked}
        show(json.dumps({**counts, "replaced": replaced, "positions": positions}))
        return 0
    for gateway, stream, lane, (first, last) in found.replaced:
        show(f"only in the tables: {gateway} {lane} {stream}: {first}..{last}")
    for table, topic, partition, offset in places:
        if offset:
            show(f"table {table}: {topic}[{partition}] goes on at offset {offset}")
    show(f"{found.records} records written, {found.there} were there; {found.marked} streams have a mark of their own")
    return 0


def run_compare(arguments: argparse.Namespace) -> int:
    """Print what another Kafka has and this one lacks. Return 1 if there is anything."""
    from fogline_cloud.rebuild.rebuild import compare  # noqa: PLC0415 - a bridge needs no Arrow

    settings = load(arguments.config)
    found = compare(settings, _load_other(arguments.other, settings), tell)
    if arguments.json:
        names = ("gateway", "stream", "lane", "sequences")
        lacks = [dict(zip(names, each, strict=True)) for each in found.streams]
        show(json.dumps({"lacks": lacks, "state": found.state}))
    else:
        for gateway, stream, lane, spans in found.streams:
            show(f"lacking: {gateway} {lane} {stream}: {shown(spans, len(spans))}")
        for topic, count in found.state.items():
            show(f"lacking: {count} of the newest records of {topic}")
        if not found.streams and not found.state:
            show("this Kafka has every sequence of the other one, and its registry, commands and audit")
    return 1 if found.streams or found.state else 0


def _load_other(file: Path, settings: CloudSettings) -> CloudSettings:
    """Load the settings of another Kafka of the same tenant. Raises `Misconfigured`."""
    other = load(file)
    if other.tenant != settings.tenant:
        raise Misconfigured(f"{file}: tenant is {other.tenant}, but that of --config is {settings.tenant}")
    return other


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
    try:
        done = reshard(settings)
    except Unreachable as error:
        raise Unreachable(f"{error}. Run this again, and only one at a time: bridges may wait until it has ended") from None
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
