"""`fogline topics`: make the tenant's topics, or say what is wrong with them."""

import argparse
import json
import sys
from typing import Any

from fogline_cloud import provision
from fogline_cloud.cli.common import with_config, with_json
from fogline_cloud.kafka import KafkaClients
from fogline_cloud.settings import load


def register(groups: "argparse._SubParsersAction[Any]") -> None:
    """Add the subcommands."""
    parser = groups.add_parser("topics", help="make and check the Kafka topics")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    create = commands.add_parser(
        "create", help="make what is missing", epilog="example: fogline topics create --config cloud.toml --replication 3"
    )
    create.add_argument("--replication", type=int, default=1, help="copies of each partition (default: 1)")
    check = commands.add_parser("check", help="say what is wrong", epilog="example: fogline topics check --config cloud.toml")
    for each, run in ((create, run_create), (check, run_check)):
        with_config(each)
        with_json(each)
        each.set_defaults(run=run)


def run_create(arguments: argparse.Namespace) -> int:
    """Make the topics."""
    settings = load(arguments.config)
    made = provision.create_topics(KafkaClients(settings.kafka), settings, arguments.replication)
    if arguments.json:
        print(json.dumps({"created": made, "shards": settings.shards}))
    else:
        print(f"made {len(made)} topics with {settings.shards} shards" if made else "all topics are there")
    return 0


def run_check(arguments: argparse.Namespace) -> int:
    """Say what is wrong with the topics; status 1 if anything is."""
    settings = load(arguments.config)
    problems = provision.check_topics(KafkaClients(settings.kafka), settings)
    return report(problems, as_json=arguments.json)


def report(problems: list[str], *, as_json: bool) -> int:
    """Print problems; status 1 if there are any."""
    if as_json:
        print(json.dumps({"ok": not problems, "problems": problems}))
    elif not problems:
        print("all is well")
    for each in problems:
        sys.stderr.write(f"{each}\n")
    return 1 if problems else 0
