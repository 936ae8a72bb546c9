"""`fogline topics`: create and check the tenant's topics."""

import argparse
import json
import sys
from typing import Any

from fogline_cloud import topic_admin
from fogline_cloud.cli.common import add_command, add_group
from fogline_cloud.kafka import KafkaClients
from fogline_cloud.settings import load


def register(groups: "argparse._SubParsersAction[Any]") -> None:
    """Add the subcommands."""
    commands = add_group(groups, "topics", "create and check the Kafka topics")
    example = "example: fogline topics create --config cloud.toml --replication 3"
    create = add_command(commands, "create", run_create, "create the missing topics", epilog=example)
    create.add_argument("--replication", type=int, default=1, help="copies of each partition (default: 1)")
    add_command(commands, "check", run_check, "print the problems", epilog="example: fogline topics check --config cloud.toml")


def run_create(arguments: argparse.Namespace) -> int:
    """Create the missing topics."""
    settings = load(arguments.config)
    created = topic_admin.create_topics(KafkaClients(settings.kafka), settings, arguments.replication)
    text = f"created {len(created)} topics with {settings.shards} shards" if created else "all topics exist"
    print(json.dumps({"created": created, "shards": settings.shards}) if arguments.json else text)
    return 0


def run_check(arguments: argparse.Namespace) -> int:
    """Print the problems of the topics. Return 1 if there are any."""
    settings = load(arguments.config)
    return report(topic_admin.check_topics(KafkaClients(settings.kafka), settings), as_json=arguments.json)


def report(problems: list[str], *, as_json: bool) -> int:
    """Print problems. Return the exit status, 1 if there are any."""
    if as_json:
        print(json.dumps({"ok": not problems, "problems": problems}))
    elif not problems:
        print("no problems found")
    for each in problems:
        sys.stderr.write(f"{each}\n")
    return 1 if problems else 0
