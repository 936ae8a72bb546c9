"""`fogline bridge`: write gateways' events to Kafka."""

import argparse
import asyncio
from typing import Any

from fogline.errors import Misconfigured
from fogline.process.console.command_line import announce
from fogline.process.files.settings_file import require_loopback, split_endpoint
from fogline.process.files.tls_files import require_tls
from fogline.process.one_cpu import stay_on_one_cpu
from fogline.tracing.settings import collector_address
from fogline_cloud.authority.own_certificate import own_certificate_problems
from fogline_cloud.bridge.bridge import run_bridge
from fogline_cloud.bridge.via.vias import check_vias
from fogline_cloud.cli.administration.topics import report
from fogline_cloud.cli.common import add_command, add_group
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.settings import load
from fogline_cloud.shard import topic_admin


def register(groups: "argparse._SubParsersAction[Any]") -> None:
    """Add the subcommands."""
    commands = add_group(groups, "bridge", "write gateways' events to Kafka")
    example = "example: fogline bridge run --config cloud.toml"
    run = add_command(commands, "run", run_run, "serve gateways until Ctrl-C", as_json=False, epilog=example)
    run.add_argument("--insecure-dev", action="store_true", help="serve without TLS: on loopback, for development only")
    example = "example: fogline bridge check --config cloud.toml --single-node"
    check = add_command(commands, "check", run_check, "check settings, Kafka and topics", epilog=example)
    check.add_argument("--single-node", action="store_true", help="do not require three replicas")


def run_run(arguments: argparse.Namespace) -> int:
    """Serve gateways until SIGINT or SIGTERM."""
    settings = load(arguments.config)
    require_tls(settings.bridge.tls, "bridge.tls", insecure_dev=arguments.insecure_dev)
    if problems := own_certificate_problems(settings):
        raise Misconfigured(f"{problems[0]}: no gateway can connect")
    if settings.bridge.one_cpu:
        stay_on_one_cpu()
    asyncio.run(
        run_bridge(settings, lambda host, port: announce(ready="bridge", name=settings.bridge.name, amqp=f"{host}:{port}"))
    )
    return 0


def run_check(arguments: argparse.Namespace) -> int:
    """Print the problems that keep a bridge from serving safely. Return 1 if there are any."""
    settings = load(arguments.config)
    if settings.bridge.tls is None:
        require_loopback(split_endpoint(settings.bridge.listen, "bridge.listen")[0], "bridge.listen")
    if settings.bridge.metrics is not None:
        require_loopback(split_endpoint(settings.bridge.metrics, "bridge.metrics")[0], "bridge.metrics")
    if settings.tracing is not None:
        collector_address(settings.tracing)
    check_vias(settings.bridge)
    problems = own_certificate_problems(settings)
    clients = KafkaClients(settings.kafka)
    problems += topic_admin.check_topics(clients, settings)
    if not problems and not arguments.single_node:
        problems = topic_admin.check_replication(clients, settings)
    return report(problems, as_json=arguments.json)
