"""`fogline`: the command for the cloud side and for operators."""

import argparse
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module

from fogline.process.console import command_line
from fogline.process.console.command_line import Parser, ShowVersion
from fogline.process.console.completion import add_completion
from fogline.process.console.terminal import tell

COMMANDS = {
    "ca": ("fogline_cloud.cli.administration.ca", "a certificate authority for TLS"),
    "gateway": ("fogline_cloud.cli.administration.gateway", "let gateways enrol, and list them"),
    "user": ("fogline_cloud.cli.administration.user", "passwords of operators' programs"),
    "access": ("fogline_cloud.cli.administration.access", "check who may do what"),
    "topics": ("fogline_cloud.cli.administration.topics", "create and check the Kafka topics"),
    "bridge": ("fogline_cloud.cli.bridge", "write gateways' events to Kafka"),
    "api": ("fogline_cloud.cli.api", "serve commands and events over HTTP"),
    "flow": ("fogline_cloud.cli.tables.flow", "write the tables from raw events with Spark"),
    "dead": ("fogline_cloud.cli.tables.dead", "events that no parser could read"),
    "table": ("fogline_cloud.cli.tables.table", "maintain the tables"),
    "fleet": ("fogline_cloud.cli.tables.fleet", "ask about all devices over time"),
    "pipeline": ("fogline_cloud.cli.tables.pipeline", "declare tables over Fogline's"),
    "sink": ("fogline_cloud.cli.tables.sink", "fill databases with the tables"),
    "console": ("fogline_cloud.cli.operators.console", "print the address of the operator's page"),
    "command": ("fogline_cloud.cli.operators.command", "send commands to devices"),
    "device": ("fogline_cloud.cli.operators.device", "list and change the registry of devices"),
    "ledger": ("fogline_cloud.cli.tables.ledger", "prove that no event is lost or duplicated"),
    "audit": ("fogline_cloud.cli.administration.audit", "show and verify the bridges' decisions"),
    "parser": ("fogline_cloud.cli.tables.parser", "write, test and deploy a parser"),
    "status": ("fogline_cloud.cli.administration.line_status", "show the whole line on one screen"),
    "doctor": (
        "fogline_cloud.cli.administration.doctor",
        "check settings, Kafka, bridge, certificates, disk and clock; exit status 1 if something fails",
    ),
}
"""The commands, in the order of the help, each with its module and what it does, which the module says too."""
SPARK = ("pyspark", "py4j")
"""Modules that only the package fogline-flow and the extra `spark` bring."""
CONNECT = ("google", "grpc", "grpc_status", "yaml")
"""Modules that only the extra `pipelines` brings."""
DATABASES = ("adbc_driver_duckdb", "adbc_driver_manager", "adbc_driver_postgresql", "adbc_driver_sqlite")
"""Modules that only the extra `sink` brings."""
EXAMPLE = """\
examples:
  fogline ca init --config cloud.toml           make a certificate authority, once
  fogline topics create --config cloud.toml     create the topics, once
  fogline bridge run --config cloud.toml        write gateways' events to Kafka
  fogline flow run --config cloud.toml          write the tables with Spark
  fogline command send lamp-1 switch --json '{"on": true}' --ttl 30s
  fogline device list --where type=lamp
  fogline ledger verify --config cloud.toml     prove that no event is lost or duplicated
  fogline status                                the whole line on one screen
  fogline doctor --config cloud.toml            check everything, with a remedy for each fault
"""


def build_parser(commands: Iterable[str] = COMMANDS) -> argparse.ArgumentParser:
    """Return the parser of these commands; the help names all. Only the modules of these are imported: all take two seconds."""
    parser = Parser(prog="fogline", description=__doc__, epilog=EXAMPLE, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action=ShowVersion, distribution="fogline-cloud")
    groups = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=Parser)
    for command, (module, about) in COMMANDS.items():
        if command in commands:
            import_module(module).register(groups)
        else:
            groups.add_parser(command, help=about)
    add_completion(groups, parser.prog, build_parser)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `fogline`."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        return command_line.main(build_parser(words[:1]), words)
    except KeyboardInterrupt:  # while the modules of the command are imported
        return command_line.interrupted("fogline")
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module in CONNECT:
            tell("fogline: this command needs Spark Connect: pip install 'fogline-cloud[pipelines]'")
        elif module in DATABASES:
            tell("fogline: this command needs drivers of databases: pip install 'fogline-cloud[sink]'")
        elif module in SPARK:
            remedy = "install the package fogline-flow, or: pip install 'fogline-cloud[spark]'"
            tell(f"fogline: this command needs Spark: {remedy}")
        else:
            raise
        return 2


if __name__ == "__main__":
    sys.exit(main())
