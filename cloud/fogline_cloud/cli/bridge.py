"""`fogline bridge`: take gateways' events into Kafka."""

import argparse
import asyncio
from typing import Any

from fogline.commandline import announce
from fogline.one_cpu import stay_on_one_cpu
from fogline.settings import require_loopback, split_endpoint
from fogline_cloud import provision
from fogline_cloud.bridge.bridge import run_bridge
from fogline_cloud.cli.common import with_config, with_json
from fogline_cloud.cli.topics import report
from fogline_cloud.kafka import KafkaClients
from fogline_cloud.settings import load


def register(groups: "argparse._SubParsersAction[Any]") -> None:
    """Add the subcommands."""
    parser = groups.add_parser("bridge", help="take gateways' events into Kafka")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    run = commands.add_parser(
        "run", help="serve gateways until Ctrl-C", epilog="example: fogline bridge run --config cloud.toml"
    )
    check = commands.add_parser(
        "check",
        help="check settings, Kafka and topics",
        epilog="example: fogline bridge check --config cloud.toml --single-node",
    )
    check.add_argument("--single-node", action="store_true", help="do not ask for three replicas")
    with_json(check)
    for each, command in ((run, run_run), (check, run_check)):
        with_config(each)
        each.set_defaults(run=command)


def run_run(arguments: argparse.Namespace) -> int:
    """Serve until a signal."""
    settings = load(arguments.config)
    if settings.bridge.one_cpu:
        stay_on_one_cpu()
    asyncio.run(
        run_bridge(settings, lambda host, port: announce(ready="bridge", name=settings.bridge.name, amqp=f"{host}:{port}"))
    )
    return 0


def run_check(arguments: argparse.Namespace) -> int:
    """Say what would keep a bridge from serving safely; status 1 if anything would."""
    settings = load(arguments.config)
    require_loopback(split_endpoint(settings.bridge.listen, "bridge.listen")[0], "bridge.listen")
    clients = KafkaClients(settings.kafka)
    problems = provision.check_topics(clients, settings)
    if not problems and not arguments.single_node:
        problems = provision.check_replication(clients, settings)
    return report(problems, as_json=arguments.json)
